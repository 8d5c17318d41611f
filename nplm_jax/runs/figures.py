"""The figures of a run and of a sweep, as PNG files beside their numbers."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.runs.reporting import read_metrics
from nplm_jax.utils.text import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_ONE_DECADE = 10.0  # a logarithmic axis that spans less has its labels at round numbers instead of at 1, 2, 5 x 10^k


def draw_learning_curve(folder: pathlib.Path, title: str, paper_valid: float = 0.0) -> pathlib.Path:
    """Draws perplexity against epochs.

    Args:
        folder: The folder of a run, with its metrics.jsonl.
        title: The title of the figure.
        paper_valid: The validation perplexity that the paper prints; 0 where it prints none.

    Returns:
        The path of the figure, learning_curve.png.
    """
    figure, axes = _new_figure()
    rows = read_metrics(folder / 'metrics.jsonl')
    for key, label, style in (('train_perplexity', 'training batches', '-'), ('valid_perplexity', 'validation', 'o-')):
        points = [(r['epoch'], r[key]) for r in rows if r.get(key) is not None]
        if points:
            axes.plot(*zip(*points), style, label=label, markersize=4)
    if paper_valid:
        axes.axhline(paper_valid, color='grey', linestyle=':', label='the paper, validation')
    axes.set(xlabel='epoch', ylabel='perplexity', yscale='log')
    axes.set_title(title, parse_math=False)  # a `$` in a name is no formula
    label_log_axis(axes.yaxis)
    axes.legend()
    save_figure(figure, path := folder / 'learning_curve.png')
    return path


def draw_sweep(points: Sequence[tuple[Mapping[str, Any], float]], path: pathlib.Path) -> pathlib.Path | None:
    """Draws the validation perplexity of the points of a sweep in which one or two keys vary.

    Args:
        points: The flattened keys that each point overrides, and its validation perplexity.
        path: The PNG file to write.

    Returns:
        The path; None, and no file, where no key varies or more than two do.
    """
    points = [(overrides, valid) for overrides, valid in points if math.isfinite(valid)]
    values: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for overrides, _ in points for key in overrides if key != 'name'):
        values[key] = list(dict.fromkeys(overrides.get(key) for overrides, _ in points))
    varying = sorted((key for key in values if len(values[key]) > 1), key=lambda key: -len(values[key]))
    if not 1 <= len(varying) <= 2:
        return None
    x, *others = varying
    is_number = x != 'seed' and all(type(value) in (int, float) for value in values[x])  # seeds are names
    figure, axes = _new_figure()
    for line in values[others[0]] if others else [None]:
        chosen = [(o.get(x), valid) for o, valid in points if not others or o.get(others[0]) == line]
        if is_number:
            chosen.sort()
        where: list[Any] = [value if is_number else str(value) for value, _ in chosen]
        axes.plot(where, [v for _, v in chosen], 'o-', label=f'{others[0]} = {line}' if others else None)
    best, valid = min(points, key=lambda point: point[1])
    axes.plot([best[x] if is_number else str(best.get(x))], [valid], '*', color='black', markersize=14, label='best')
    axes.set(xlabel=x, ylabel='validation perplexity', yscale='log')
    if is_number and min(values[x]) > 0 and max(values[x]) >= _ONE_DECADE * min(values[x]):
        axes.set(xscale='log')
        label_log_axis(axes.xaxis)
    label_log_axis(axes.yaxis)
    axes.legend()
    save_figure(figure, path)
    return path


def label_log_axis(axis: Axis) -> None:
    """Labels a logarithmic axis with plain numbers, some of which are in sight however little it spans."""
    import matplotlib.ticker  # noqa: PLC0415 (half a second that only the end of a run needs)

    low, high = axis.get_view_interval()
    is_short = high < _ONE_DECADE * low
    locator = matplotlib.ticker.AutoLocator() if is_short else matplotlib.ticker.LogLocator(subs=(1, 2, 5))
    axis.set_major_locator(locator)
    axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter('%g'))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def _new_figure() -> tuple[Figure, Axes]:
    """Returns a figure and its axes, without pyplot and its global state."""
    import matplotlib.figure  # noqa: PLC0415 (half a second that only the end of a run needs)

    axes = (figure := matplotlib.figure.Figure(figsize=(6.4, 4), layout='constrained')).subplots()
    axes.grid(alpha=0.3)
    return figure, axes
