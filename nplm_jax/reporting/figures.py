"""Draws figures of runs, sweeps and hyperparameter searches as PNG files."""

from __future__ import annotations

import math
import operator
import pathlib
import statistics
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from nplm_jax.reporting.catalog import METRICS
from nplm_jax.reporting.run_reporter import read_metrics
from nplm_jax.reporting.text import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Point: TypeAlias = tuple[Mapping[str, Any], float]  # the overridden values of a sweep point by key, and its perplexity
_Line: TypeAlias = list[tuple[Any, float]]  # the value of a key and the perplexity of points that differ only in it

_BEST: Mapping[str, Any] = {'marker': '*', 'color': 'black', 'markersize': 14, 'linestyle': '', 'label': 'best'}
_MAX_COLUMNS = 4  # maximum number of panels in a row
_MAX_LABEL = 20  # maximum characters of a tick label; labels with more in total are rotated
_MIN_RATIO = 10.0  # minimum ratio of the largest to the smallest value of a parameter for a logarithmic axis
_ONE_DECADE = 10.0  # logarithmic axes with a smaller ratio have round tick labels instead of 1, 2, 5 x 10^k


def draw_learning_curve(folder: pathlib.Path, title: str, paper_valid: float = 0.0) -> pathlib.Path:
    """Draws the learning curve of a run: training and validation perplexity by epoch.

    Args:
        folder: The run folder, which contains metrics.jsonl.
        title: The title of the figure.
        paper_valid: The validation perplexity in the paper, or 0 if the paper gives none.

    Returns:
        The path of the figure, learning_curve.png.
    """
    figure, axes = _new_figure()
    rows = read_metrics(folder / METRICS)
    for key, label, style in (('train_perplexity', 'training batches', '-'), ('valid_perplexity', 'validation', 'o-')):
        points = [(r['epoch'], r[key]) for r in rows if r.get(key) is not None]
        if points:
            axes.plot(*zip(*points), style, label=label, markersize=4)
    if paper_valid:
        axes.axhline(paper_valid, color='grey', linestyle=':', label='paper, validation')
    axes.set(xlabel='epoch', ylabel='perplexity', yscale='log')
    axes.set_title(title, parse_math=False)  # a name may contain $
    label_log_axis(axes.yaxis)
    axes.legend()
    return save_figure(figure, folder / 'learning_curve.png')


def draw_sweep(points: Sequence[Point], path: pathlib.Path, comparable: bool = True) -> pathlib.Path | None:
    """Draws the validation perplexities of the points of a sweep, and marks the best point.

    There is one panel for each key that varies, in order of decreasing effect. Every panel shows all points. Thin lines
    connect points that differ only in the panel's key. The thick line is the geometric mean of the thin lines that have
    a point for every value of the key.

    Args:
        points: For each point, the overridden values by flattened key, and the validation perplexity.
        path: The PNG file to write.
        comparable: Whether all points were evaluated on the same words. If False, no point is marked as the best.

    Returns:
        The path of the file. If no key varies, no file is written and None is returned.
    """
    points = [(overrides, valid) for overrides, valid in points if math.isfinite(valid)]
    keys = dict.fromkeys(key for overrides, _ in points for key in overrides if key != 'name')
    found: dict[str, Any] = {key: list(dict.fromkeys(overrides.get(key) for overrides, _ in points)) for key in keys}
    values = {key: sorted(v) if _are_numbers(key, v) else v for key, v in found.items() if len(v) > 1}
    if not values:
        return None
    lines = {key: _lines(points, values, key) for key in values}
    means = {key: _geometric_means(lines[key], values[key]) for key in values}
    best, valid = min(points, key=operator.itemgetter(1))
    figure, panels, columns = _new_panels(len(values))
    for axes, key in zip(panels, sorted(values, key=lambda key: -max(means[key] or [0]) / min(means[key] or [1]))):
        _draw_panel(axes, key, values[key], lines[key], means[key])
        if comparable:
            axes.plot([values[key].index(best.get(key))], [valid], **_BEST)
    label_log_axis(panels[0].yaxis)
    settings = ', '.join(f'{key}={best.get(key)}' for key in values)
    title = (
        f'Best of {len(points)} points: {settings} ({valid:.4g})' if comparable else 'Perplexities on different words'
    )
    figure.suptitle(textwrap.fill(title, 34 * columns), fontsize='medium').set_parse_math(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc='outside lower center', ncols=columns)
    return save_figure(figure, path)


def draw_slices(points: Sequence[Point], path: pathlib.Path) -> pathlib.Path:
    """Draws the validation perplexity of each trial of a search against each parameter, and marks the best trial.

    Args:
        points: For each trial, the parameters and the validation perplexity, which must be finite.
        path: The PNG file to write.

    Returns:
        The path.
    """
    keys = list(dict.fromkeys(key for values, _ in points for key in values))
    figure, panels, _ = _new_panels(len(keys))
    best, valid = min(points, key=operator.itemgetter(1))
    for axes, key in zip(panels, keys):
        shown = [(values[key], perplexity) for values, perplexity in points if key in values]
        if are_numbers := _are_numbers(key, [value for value, _ in shown]):
            low, high = min(shown)[0], max(shown)[0]
            axes.set_xscale('log' if 0 < low and high >= _MIN_RATIO * low else 'linear')
        else:
            shown = [(str(value), perplexity) for value, perplexity in shown]
        axes.plot(*zip(*shown), 'o', color='C0', alpha=0.6, markersize=4, label='trial')
        if key in best:
            axes.plot([best[key] if are_numbers else str(best[key])], [valid], **_BEST)
        axes.set(xlabel=key, yscale='log')
        axes.grid(alpha=0.3)
    label_log_axis(panels[0].yaxis)
    figure.legend(*panels[0].get_legend_handles_labels(), loc='outside lower center', ncols=2)
    return save_figure(figure, path)


def draw_importances(importances: Mapping[str, float], path: pathlib.Path) -> pathlib.Path:
    """Draws the importances of the parameters of a search as a bar chart.

    Args:
        importances: The importance of each parameter, in descending order. The importances sum to one.
        path: The PNG file to write.

    Returns:
        The path.
    """
    figure, axes = _new_figure()
    bars = axes.barh(list(importances), list(importances.values()))
    axes.bar_label(bars, fmt='%.2f', padding=3)
    axes.invert_yaxis()
    axes.set(xlabel='importance for the validation perplexity (PED-ANOVA)', xlim=(0, 1.1))
    return save_figure(figure, path)


def _draw_panel(axes: Axes, key: str, values: Sequence[Any], lines: Sequence[_Line], means: Sequence[float]) -> None:
    """Draws the perplexities over the values of a key, spaced evenly."""
    alpha = max(0.05, 0.4 - 0.001 * sum(map(len, lines)))
    for number, line in enumerate(lines):
        label = 'points that differ only in this key' if not number else None
        places = sorted((values.index(value), valid) for value, valid in line)
        axes.plot(*zip(*places), 'o-', color='C0', alpha=alpha, linewidth=1, markersize=4, label=label)
    if means and len(lines) > 1:
        axes.plot(means, 's-', color='C1', linewidth=2, markersize=6, label='geometric mean')
    names = [f'{value:g}' if isinstance(value, float) else str(value)[-_MAX_LABEL:] for value in values]
    crowded = sum(map(len, names)) > _MAX_LABEL
    axes.set_xticks(range(len(values)), names, rotation=45 if crowded else 0, ha='right' if crowded else 'center')
    axes.set(xlabel=key, yscale='log', xlim=(-0.4, len(values) - 0.6))
    axes.grid(alpha=0.3)


def _lines(points: Sequence[Point], keys: Collection[str], key: str) -> list[_Line]:
    """Groups the points that differ only in a key. Returns the value of the key and the perplexity of each point."""
    lines: dict[tuple[Any, ...], _Line] = {}
    for overrides, valid in points:
        others = tuple(overrides.get(other) for other in keys if other != key)
        lines.setdefault(others, []).append((overrides.get(key), valid))
    return list(lines.values())


def _geometric_means(lines: Sequence[_Line], values: Sequence[Any]) -> list[float]:
    """Returns the geometric mean of the perplexities for each value of a key.

    The means are over the lines that have a point for every value, so that they differ only in the key even if some
    points of a grid diverged. If there is no such line, the result is empty.
    """
    whole = [dict(line) for line in lines if len(dict(line)) == len(values)]
    return [statistics.geometric_mean(line[value] for line in whole) for value in values] if whole else []


def _are_numbers(key: str, values: Sequence[Any]) -> bool:
    """Returns whether the values of a key are numeric. Seeds are treated as names."""
    return key != 'seed' and all(type(value) in (int, float) for value in values)


def label_log_axis(axis: Axis) -> None:
    """Labels a logarithmic axis with plain numbers, even if it spans less than a decade."""
    import matplotlib.ticker  # noqa: PLC0415 (slow to import)

    low, high = axis.get_view_interval()
    is_short = high < _ONE_DECADE * low
    locator = matplotlib.ticker.AutoLocator() if is_short else matplotlib.ticker.LogLocator(subs=(1, 2, 5))
    axis.set_major_locator(locator)
    axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter('%g'))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def _new_figure() -> tuple[Figure, Axes]:
    """Creates a figure with axes, without the global state of pyplot."""
    import matplotlib.figure  # noqa: PLC0415 (slow to import)

    axes = (figure := matplotlib.figure.Figure(figsize=(6.4, 4), layout='constrained')).subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def _new_panels(num_panels: int) -> tuple[Figure, list[Axes], int]:
    """Creates a figure with a grid of panels for validation perplexities.

    Returns:
        The figure, its panels and the number of columns.
    """
    import matplotlib.figure  # noqa: PLC0415 (slow to import)

    rows = -(-num_panels // _MAX_COLUMNS)
    columns = -(-num_panels // rows)
    figure = matplotlib.figure.Figure(figsize=(2.2 + 2.3 * columns, 1.4 + 2.6 * rows), layout='constrained')
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes in panels[:, 0]:
        axes.set_ylabel('validation perplexity')
    for axes in panels.flat[num_panels:]:
        axes.remove()
    return figure, list(panels.flat[:num_panels]), columns
