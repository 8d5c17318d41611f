"""What lists say of a model: its family and what gives its shape. Imports no JAX, so that they answer at once."""

from collections.abc import Mapping
from typing import Any

_SHAPE = {'n': None, 'm': None, 'h': None, 'layers': 1, 'direct': False}  # each with the value that is not named


def describe_model(values: Mapping[str, Any]) -> str:
    """Returns the family of a model and what gives its shape: `lstm m=200 h=200`.

    Args:
        values: The values of the run by flattened key. All keys of a plug-in are named, of other models the shape.
    """
    family, start = str(values['model.family']), 'model.'
    model = {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}
    named = [key for key in model if key != 'family'] if ':' in family else [key for key in _SHAPE if key in model]
    shown = [f'{key}={_show(model[key])}' for key in named if model[key] != _SHAPE.get(key)]
    return ' '.join([family, *shown])


def _show(value: Any) -> str:
    """Returns a value as text; that of a stranger's run may have characters that act on a terminal."""
    return str(value) if str(value).isprintable() else repr(value)
