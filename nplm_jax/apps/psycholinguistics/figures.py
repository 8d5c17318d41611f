"""Draws figures of word surprisals and model gains.

Surprisal panels read like lines of text. The width of a word on the axis depends only on its length in characters, so
items that begin with the same words are aligned.
"""

import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.reporting.text import COLORS, save_figure, style_axes

MAX_PANELS = 12
MAX_CHARACTERS = 96  # characters in a panel before its last word; longer items continue in the next panel

_MIN_WIDTH = 4  # minimum width of a word (characters)
_UNKNOWN = '#999999'


def draw_surprisal(
    stimuli: Stimuli, surprisals: Mapping[str, Sequence[float]], in_vocabulary: Sequence[bool], path: pathlib.Path
) -> str:
    """Draws the surprisal of each word, in at most MAX_PANELS panels.

    Args:
        stimuli: The words.
        surprisals: The surprisal of each word, in bits, by model name.
        in_vocabulary: Whether each word is in the vocabulary. Words outside it are grey.
        path: The PNG file to write.

    Returns:
        A note about the words that the figure omits, or '' if it shows all words.
    """
    panels = list(itertools.islice(_panels(stimuli), MAX_PANELS))
    rows = [row for _, panel in panels for row in panel]
    note = f'the first {len(rows):,} of {len(stimuli.words):,} words' if len(rows) < len(stimuli.words) else ''
    width = max(40, *(sum(_width(stimuli.words[row]) for row in panel) for _, panel in panels))
    size = 1 + 0.088 * width, 0.9 + 1.5 * len(panels)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(hspace=0.1))
    all_axes = figure.subplots(len(panels), 1, sharey=True, squeeze=False)[:, 0]
    for axes, (title, panel) in zip(all_axes, panels):
        words = [stimuli.words[row] for row in panel]
        widths = np.array(list(map(_width, words)))
        positions = np.cumsum(widths) - widths / 2
        style_axes(axes, grid='y')
        for name, bits_W in surprisals.items():
            bits = np.asarray(bits_W)[panel]
            finite = np.where(np.isfinite(bits), bits, np.nan)
            axes.plot(positions, finite, 'o-', markersize=4, linewidth=1.4, label=name, clip_on=False)
        axes.set_xticks(positions, words, fontsize=9, parse_math=False)
        axes.tick_params(axis='x', length=0, labelbottom=True)
        for tick, row in zip(axes.get_xticklabels(), panel):
            tick.set_color('black' if in_vocabulary[row] else _UNKNOWN)
        axes.spines['left'].set_visible(False)
        axes.set_title(title, loc='left', fontsize=9, fontweight='bold', parse_math=False)
        axes.set_xlim(0, width)
    all_axes[0].set_ylim(0, None)
    all_axes[0].locator_params(axis='y', nbins=4)
    figure.supylabel('surprisal (bits)', fontsize=10)
    columns = max(1, width // (max(map(len, surprisals)) + 8))
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside upper right', ncols=columns, frameon=False, fontsize=9)
    grey = '' if all(in_vocabulary[row] for row in rows) else 'grey: not in the vocabulary'
    if note or grey:
        figure.supxlabel('; '.join(filter(None, (note, grey))), fontsize=8, color=_UNKNOWN)
    save_figure(figure, path, dpi=150)
    return note and f'figure: {note}'


def _panels(stimuli: Stimuli) -> Iterator[tuple[str, list[int]]]:
    """Yields the title and the rows of each panel. A panel shows an item, or a segment of a long item."""
    for item in stimuli.items:
        title = ', '.join(f'{column} {stimuli.columns[column][item.start]}' for column in stimuli.names.item)
        before = [0, *np.cumsum([_width(stimuli.words[row]) for row in item])]  # characters before each word
        for panel, rows in itertools.groupby(item, key=lambda row: before[row - item.start] // MAX_CHARACTERS):
            yield (f'{title}, continued' if panel else title), list(rows)


def _width(word: str) -> int:
    return max(len(word), _MIN_WIDTH) + 2


def draw_gains(models: Mapping[str, Mapping[str, Any]], path: pathlib.Path) -> None:
    """Draws the gain of each model as a point with its 95% interval.

    Args:
        models: The `gain` and `interval` of each model, in nats per word, by name.
        path: The PNG file to write.
    """
    width = 5 + 0.1 * max(map(len, models))  # inches; the axis label takes 4, and the names are to its left
    figure = Figure(figsize=(width, 1.4 + 0.4 * len(models)), layout='constrained')
    axes = figure.subplots()
    style_axes(axes, grid='x')
    for position, row in enumerate(models.values()):
        axes.plot([1000 * end for end in row['interval']], [position, position], color=COLORS[0], linewidth=1.5)
        axes.plot(1000 * row['gain'], position, 'o', color=COLORS[0])
    axes.axvline(0, color='black', linewidth=0.8)
    axes.set_yticks(range(len(models)), list(models), parse_math=False)
    axes.set_ylim(len(models) - 0.5, -0.5)
    figure.supxlabel('gain and 95% interval (thousandths of a nat per word)', fontsize='medium')
    save_figure(figure, path)
