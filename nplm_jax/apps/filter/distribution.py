"""Summarizes the distribution of document perplexities: counts, deciles, and examples from both ends."""

import heapq
import math
import operator
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nplm_jax.reporting.text import markdown_table, save_figure

_EXAMPLES, _SHOWN = 3, 72  # the number of examples at each end, and the maximum characters of an example
_MAX_BINS = 24
_BAR = 24  # length of the longest bar (characters)


class Distribution:
    """The perplexities of all documents (float64), and the documents with the lowest and highest perplexities."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self.lowest: list[tuple[float, str]] = []
        self.highest: list[tuple[float, str]] = []

    def add(self, perplexities_D: np.ndarray, texts: Sequence[str]) -> None:
        """Adds documents that contain words."""
        self._parts.append(perplexities_D)
        found = [(float(p), ' '.join(text[: 4 * _SHOWN].split())[:_SHOWN]) for p, text in zip(perplexities_D, texts)]
        self.lowest = heapq.nsmallest(_EXAMPLES, [*self.lowest, *found], key=operator.itemgetter(0))
        self.highest = heapq.nlargest(_EXAMPLES, [*self.highest, *found], key=operator.itemgetter(0))

    def perplexities(self) -> np.ndarray:
        """Returns all perplexities in ascending order, as a float64 array."""
        return np.sort(np.concatenate(self._parts)) if self._parts else np.zeros(0)

    def results(self) -> dict[str, Any]:
        """Returns the counts, deciles and examples as JSON-serializable values. Requires at least one document."""
        sorted_D = self.perplexities()
        edges = bin_edges(sorted_D)
        counts = np.diff(np.searchsorted(sorted_D, edges)).tolist()
        infinite = len(sorted_D) - int(np.searchsorted(sorted_D, math.inf))
        rows = [{'from': a, 'below': b, 'documents': n} for a, b, n in zip(edges, edges[1:], counts) if n]
        rows += [{'from': math.inf, 'below': math.inf, 'documents': infinite}] if infinite else []
        deciles = {f'{10 * k}%': quantile(sorted_D, k / 10) for k in range(1, 10)}
        ends = {'lowest': self.lowest, 'highest': self.highest}
        examples = {end: [{'perplexity': p, 'text': text} for p, text in rows] for end, rows in ends.items()}
        return {'histogram': rows, 'deciles': deciles, **examples}


def quantile(sorted_D: np.ndarray, share: float) -> float:
    """Returns the quantile of the perplexities. At most `share` of the documents have a lower perplexity."""
    place = math.floor(share * len(sorted_D) + 1e-9)
    return float(sorted_D[place]) if place < len(sorted_D) else math.inf


def bin_edges(sorted_D: np.ndarray) -> list[float]:
    """Returns the edges of about _MAX_BINS bins for the finite perplexities: 1, 2 and 5 times powers of ten."""
    finite = sorted_D[np.isfinite(sorted_D)]
    edges = [0.0, *(m * 10.0**k for k in range(309) for m in (1, 2, 5))]
    first, last = (np.searchsorted(edges, finite[[0, -1]], 'right') - 1).tolist() if len(finite) else (0, 0)
    step = (last - first) // _MAX_BINS + 1
    return edges[first : last + step + 1 : step]


def describe(results: dict[str, Any]) -> str:
    """Returns the distribution as tables and lines of text."""
    counts = [row['documents'] for row in results['histogram']]
    table, total, seen = [], sum(counts), 0
    for row, count in zip(results['histogram'], counts):
        seen += count
        name = f'{row["from"]:,g} to {row["below"]:,g}' if math.isfinite(row['from']) else 'infinite'
        bar = '#' * math.ceil(_BAR * count / max(counts))
        table.append([name, f'{count:,}', f'{count / total:.1%}', f'{seen / total:.1%}', bar])
    deciles = [[share, f'{value:,.1f}'] for share, value in results['deciles'].items()]
    parts = [
        markdown_table(['perplexity', 'documents', 'share', 'cumulative share', ''], table),
        markdown_table(['share of documents', 'perplexity below'], deciles),
        *(f'{end}:\n' + '\n'.join(map(_example, results[end])) for end in ('lowest', 'highest')),
    ]
    return '\n\n'.join(parts)


def _example(example: dict[str, Any]) -> str:
    return f'  {example["perplexity"]:>12,.1f}  {example["text"]}'


def draw(perplexities: Iterable[float], path: pathlib.Path) -> None:
    """Draws a histogram of the finite perplexities, with a logarithmic axis, as a PNG file."""
    finite = np.array([p for p in perplexities if math.isfinite(p)])
    figure = Figure(figsize=(6, 3.2), layout='constrained')
    axes = figure.subplots()
    low, high = (finite.min(), finite.max()) if len(finite) else (1, 2)
    axes.hist(finite, np.geomspace(low, high * (1 + 1e-9), 61).tolist(), color='#0072B2')
    axes.set(xscale='log', xlabel='perplexity', ylabel='documents')
    save_figure(figure, path)
