"""Prints the tables of importance.md from committed results: python -m experiments.paper.section5.importance_table."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

FILE = pathlib.Path(__file__).parent / 'results' / 'importance.json'
TARGET = 280.0  # the paper's validation perplexity of MLP9
RUNS = ['loss', 'rate', 'samples', 'ms an update', 'updates to 280', 'seconds to 280', 'measured s', 'valid']
SIZES = ['updates', 'shared unigram', 'unigram', 'bigram', 'adaptive', 'KL: unigram', 'KL: bigram', 'KL: adaptive']
PARTS = ['part', 'nce, ms', 'adaptive, ms']
TIMING = ['loss', 'samples', 'least ms an update', 'median']
SEARCH = ['loss', 'rate', 'updates', 'samples', 'valid']


def measured() -> dict[str, Any]:
    """Returns the results."""
    return results.read(FILE.parent, FILE.stem)


def crossing(rows: list[dict[str, Any]], key: str) -> float | None:
    """Returns the updates or seconds at which the perplexity falls to TARGET, between the validations on its sides.

    The logarithm of the perplexity is taken as linear in between. None if it stays above.
    """
    for before, after in zip(rows, rows[1:]):
        if after['valid'] <= TARGET < before['valid']:
            high, low = np.log(before['valid'] / TARGET), np.log(after['valid'] / TARGET)
            return before[key] + (after[key] - before[key]) * high / (high - low)
    return None


def run_rows() -> list[list[str]]:
    """Returns a row for each run; `seconds to 280` are the updates times the time of one in turn with the others."""
    recorded = measured()
    rows = []
    for name, run in recorded['runs'].items():
        timing, last = recorded['timing']['updates'][name], run['rows'][-1]
        updates, seconds = crossing(run['rows'], 'updates'), crossing(run['rows'], 'seconds')
        rows.append([
            name,
            f'{run["rate"]:g}',
            f'{last["samples"]:.0f}',
            f'{timing["median"]:.2f}',
            '-' if updates is None else f'{updates:,.0f}',
            '-' if updates is None else f'{updates * timing["median"] / 1000:.0f}',
            '-' if seconds is None else f'{seconds:.0f}',
            f'{last["valid"]:.1f}',
        ])  # fmt: skip
    return rows


def size_rows() -> list[list[str]]:
    """Returns the effective sample sizes and divergences over the run of the adaptive proposal."""
    rows = []
    for row in measured()['runs']['adaptive']['rows']:
        sizes = [f'{row[name]:.1f}' for name in ('shared', 'unigram', 'bigram', 'adaptive')]
        divergences = [f'{row[f"{name}, KL"]:.3f}' for name in ('unigram', 'bigram', 'adaptive')]
        rows.append([f'{row["updates"]:,}', *sizes, *divergences])
    return rows


def timing_rows() -> list[list[str]]:
    """Returns the milliseconds of an update of each loss."""
    return [
        [name, f'{row["samples"]}', f'{row["least"]:.2f}', f'{row["median"]:.2f}']
        for name, row in measured()['timing']['updates'].items()
    ]


def part_rows() -> list[list[str]]:
    """Returns the milliseconds of the parts of an update."""
    parts = measured()['parts']
    names = list(parts['adaptive'])
    return [
        [
            name,
            *(f'{parts[loss][name]:,.{0 if name == "rows" else 2}f}' if name in parts[loss] else '-' for loss in parts),
        ]
        for name in names
    ]


def search_rows() -> list[list[str]]:
    """Returns the searches for a learning rate; with few samples, the largest rate alone."""
    recorded = measured()
    return [
        [name, f'{row["rate"]:g}', f'{row["updates"]:,}', f'{row["samples"]:.0f}', f'{row["valid"]:,.1f}']
        for name, rows in {**recorded['search'], **recorded.get('few', {})}.items()
        for row in rows
    ]


def tables(_: study.Flags) -> str:
    """Returns the tables in the order of importance.md."""
    of_runs = [markdown_table(RUNS, run_rows()), markdown_table(SIZES, size_rows())] if 'runs' in measured() else []
    return '\n\n'.join([
        markdown_table(SEARCH, search_rows()),
        markdown_table(TIMING, timing_rows()),
        markdown_table(PARTS, part_rows()),
        *of_runs,
    ])  # fmt: skip


if __name__ == '__main__':
    study.run(__doc__, show=tables)
