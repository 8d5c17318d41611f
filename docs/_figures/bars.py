"""Draws panels of horizontal bars as SVG, for the figures of docs/explanation."""

from collections.abc import Mapping

TEXT = 'font-family="sans-serif" font-size="13"'


def draw(panels: Mapping[str, Mapping[str, tuple[float, float]]], colors: Mapping[str, str], form: str) -> str:
    """Returns an SVG with two panels in a row.

    Args:
        panels: The bars of each panel by title: a value and the value of a full bar, by label.
        colors: The color of each label.
        form: The format of a value.
    """
    height = 34 + 22 * len(colors)
    rows = (len(panels) + 1) // 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {rows * height}" width="720" {TEXT}>',
        f'<rect width="720" height="{rows * height}" fill="white"/>',
    ]
    for i, (title, bars) in enumerate(panels.items()):
        x, y = 360 * (i % 2), height * (i // 2)
        lines.append(f'<text x="{x + 90}" y="{y + 20}" font-weight="bold">{title}</text>')
        for j, (label, (value, full)) in enumerate(bars.items()):
            top, width = y + 28 + 22 * j, 190 * value / full
            lines.append(f'<text x="{x + 84}" y="{top + 13}" text-anchor="end">{label}</text>')
            lines.append(f'<rect x="{x + 90}" y="{top}" width="{width:.1f}" height="17" fill="{colors[label]}"/>')
            lines.append(f'<text x="{x + 96 + width:.1f}" y="{top + 13}">{form.format(value)}</text>')
    return '\n'.join([*lines, '</svg>', ''])
