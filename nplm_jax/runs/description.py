"""What lists say of a model: its family and what gives its shape. Imports no JAX, so that they answer at once."""

import dataclasses
from collections.abc import Collection, Mapping

from nplm_jax.config import ModelSettings
from nplm_jax.utils.plugins import is_path

_SHAPE = {'n': None, 'm': None, 'h': None, 'layers': 1, 'direct': False}  # each with the value that is not named
# The keys of the shape that a network reads, by family. Of the other families n alone gives the shape.
OF_NETWORKS = {
    'nplm': ('n', 'm', 'h', 'direct'),
    'residual': ('n', 'm', 'h', 'layers'),
    'window_lstm': ('n', 'm', 'h', 'layers'),
    'rnn': ('m', 'h', 'layers'),
    'gru': ('m', 'h', 'layers'),
    'lstm': ('m', 'h', 'layers'),
    'mogrifier': ('m', 'h', 'layers'),
}


def describe_model(model: ModelSettings, read: Collection[str] | None = None) -> str:
    """Returns the family and what gives its shape: `lstm m=200 h=200`.

    Args:
        model: The settings. Of the keys of the shape those that the family reads are named, and all options.
        read: The keys that the family reads; None for what is known without importing it, which is none of a plug-in.
    """
    names = () if is_path(model.family) else OF_NETWORKS.get(model.family, ('n',))
    shown = [key for key in _SHAPE if (key in names if read is None else f'model.{key}' in read)]
    options = dict(model.options) if isinstance(model.options, Mapping) else dataclasses.asdict(model.options)
    shape = {key: getattr(model, key) for key in shown}
    values = {key: value for key, value in shape.items() if value != _SHAPE[key]} | options
    return ' '.join([model.family, *(f'{key}={value}' for key, value in values.items())])
