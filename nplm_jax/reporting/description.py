"""Describes models in one line. This module does not import JAX, which keeps commands that list runs fast."""

from collections.abc import Mapping
from typing import Any

# The keys to show, each with the value that is not shown.
_SHAPE = {'n': None, 'm': None, 'h': None, 'layers': 1, 'direct': False}


def describe_model(values: Mapping[str, Any]) -> str:
    """Returns the family and the size of a model, such as `lstm m=200 h=200`. For plug-ins, shows all keys.

    Args:
        values: The values of the run's config, by flattened key.
    """
    family, start = str(values['model.family']), 'model.'
    model = {key.removeprefix(start): value for key, value in values.items() if key.startswith(start)}
    named = [key for key in model if key != 'family'] if ':' in family else [key for key in _SHAPE if key in model]
    shown = [f'{key}={_show(model[key])}' for key in named if model[key] != _SHAPE.get(key)]
    return ' '.join([family, *shown])


def _show(value: Any) -> str:
    """Returns a value as text, with unprintable characters escaped, because runs may come from untrusted sources."""
    return str(value) if str(value).isprintable() else repr(value)
