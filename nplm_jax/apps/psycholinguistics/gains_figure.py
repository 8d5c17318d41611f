"""The figure of `nplm reading-times`: the gain of each model with its interval."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from nplm_jax.reporting.text import save_figure


def draw(models: Mapping[str, Mapping[str, Any]], path: pathlib.Path) -> None:
    """Draws a point and a line of the 95% interval per model.

    Args:
        models: By name the gain and its interval, nats per word.
        path: The PNG file to write.
    """
    width = 5 + 0.1 * max(map(len, models))  # inches: the names stand left of the axes, whose label is 4 inches wide
    figure = Figure(figsize=(width, 1.4 + 0.4 * len(models)), layout='constrained')
    axes = figure.subplots()
    for place, row in enumerate(models.values()):
        axes.plot([1000 * end for end in row['interval']], [place, place], color='#0072B2', linewidth=1.5)
        axes.plot(1000 * row['gain'], place, 'o', color='#0072B2')
    axes.axvline(0, color='black', linewidth=0.8)
    axes.set_yticks(range(len(models)), list(models), parse_math=False)
    axes.set_ylim(len(models) - 0.5, -0.5)
    figure.supxlabel('gain, thousandths of a nat per word, and its 95% interval', fontsize='medium')
    axes.grid(axis='x', alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)
    save_figure(figure, path)
