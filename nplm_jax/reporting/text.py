"""Formats output as strict JSON and Markdown tables, and styles figures and saves them as PNG files."""

from __future__ import annotations

import io
import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nplm_jax.utils.io import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000')  # Okabe and Ito (2008)


def to_json(values: Mapping[str, Any], **options: Any) -> str:
    r"""Serializes values to JSON, and converts infinite numbers and NaN to null.

    Unpaired surrogates are escaped, as in `\udce9`. Python uses them for bytes of file names that cannot be decoded.

    Args:
        values: The object to serialize.
        **options: Keyword arguments of `json.dumps`.
    """

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: convert(v) for k, v in value.items()}
        if isinstance(value, list):
            return [convert(v) for v in value]
        if isinstance(value, str):
            return value.encode(errors='backslashreplace').decode()
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(convert(values), **options)


def null_to_inf(value: float | None) -> float:
    """Converts a perplexity read from JSON to a float. None, which JSON writes as null, becomes infinity."""
    return math.inf if value is None else float(value)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Formats a Markdown table with padded columns.

    Floats are rounded to one decimal place. `|` becomes `\|`, and a newline becomes a space.
    """
    texts = [[f'{cell:.1f}' if isinstance(cell, float) else str(cell) for cell in row] for row in (header, *rows)]
    cells = [[text.replace('|', r'\|').replace('\n', ' ') for text in row] for row in texts]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ['| ' + ' | '.join(c.ljust(w) for c, w in zip(row, widths)) + ' |' for row in cells]
    return '\n'.join([lines[0], '|' + '|'.join('-' * (w + 2) for w in widths) + '|', *lines[1:]])


def style_axes(axes: Axes, grid: Literal['x', 'y']) -> None:
    """Applies a colorblind-safe palette and a light grid for the axis `grid`, and hides the top and right spines."""
    axes.set_prop_cycle(color=COLORS)
    axes.grid(axis=grid, alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)


def save_figure(figure: Figure, path: pathlib.Path, dpi: int = 120) -> pathlib.Path:
    """Writes a Matplotlib figure atomically as PNG. Returns the path."""
    figure.savefig(png := io.BytesIO(), format='png', dpi=dpi)
    write_atomically(path, png.getvalue())
    return path
