"""What lists say of a model: its family and what gives its shape. Imports no JAX, so that they answer at once."""

from collections.abc import Collection
from typing import Any

from nplm_jax.config.plugins import is_path
from nplm_jax.config.sections import READS

_SHAPE = {'n': None, 'm': None, 'h': None, 'layers': 1, 'direct': False}  # each with the value that is not named


def describe_model(model: Any, read: Collection[str] | None = None) -> str:
    """Returns the family and what gives its shape: `lstm m=200 h=200`.

    Args:
        model: The section `model` of the settings. Of the keys of the shape those that the family reads are named, and
            all options.
        read: The keys that the family reads; None for what is known without importing it: n of a family that is not in
            the package, and none of a plug-in.
    """
    if read is None:
        read = READS['model.family'].get(model.family, () if is_path(model.family) else ('model.n',))
    shape = {key: getattr(model, key) for key in _SHAPE if f'model.{key}' in read}
    values = {key: value for key, value in shape.items() if value != _SHAPE[key]} | model.options
    return ' '.join([model.family, *(f'{key}={value}' for key, value in values.items())])
