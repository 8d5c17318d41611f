"""Validates config values against types and ranges, and flattens nested configs."""

import math
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from nplm_jax.config.component import Check
from nplm_jax.utils.errors import require
from nplm_jax.utils.names import require_one_of
from nplm_jax.utils.untrusted import is_unicode

if TYPE_CHECKING:
    from ml_collections import ConfigDict

_TYPE_NAMES: Mapping[Any, str] = {int: 'an integer', float: 'a number', bool: 'True or False', str: 'a string'}
OPTION_TYPES = (bool, int, float, str)  # types of the keys that a plug-in adds


class Options(dict[str, Any]):
    """The options of a function plug-in, by name. This dictionary is hashable, because config sections must be.

    Attributes:
        function: The function, or None if the user did not name its module, which is then not imported.
    """

    def __init__(self, values: Iterable[Any] | Mapping[str, Any] = (), function: Any = None) -> None:
        super().__init__(values)
        self.function = function

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.function is getattr(other, 'function', None)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def check_value(value: Any, kind: Any, name: str) -> Any:
    """Checks the type and range of a config value, and returns the value. An int becomes a float if `kind` is float.

    Raises:
        BadInput: The value has the wrong type or is out of range.
    """
    expected = kind.__origin__ if hasattr(kind, '__metadata__') else kind
    if typing.get_origin(kind) is Literal:
        require_one_of(name, value, names := typing.get_args(kind))
        expected = type(names[0])
    if isinstance(value, int):
        require(-(2**31) <= value < 2**31, name, value, 'must be between -2**31 and 2**31 - 1')
    if expected is float and type(value) is int:
        value = float(value)
    require(type(value) is expected, name, value, f'must be {_TYPE_NAMES.get(expected, expected)}')
    if isinstance(value, str):  # JSON cannot represent file names in another encoding
        require(is_unicode(value), name, value, 'must be valid Unicode; rename the file')
    for check in _checks(kind):
        require(check.holds(value), name, value, check.allowed)
    if isinstance(value, float):  # JSON cannot represent NaN or infinity
        require(math.isfinite(value), name, value, 'must be finite')
    return value


def describe_allowed(kind: Any) -> str:
    """Returns a description of the values that a type allows, or '' if it has neither a range nor a list of values."""
    if typing.get_origin(kind) is Literal:
        return f'must be one of {", ".join(map(str, typing.get_args(kind)))}'
    return '; '.join(check.allowed for check in _checks(kind))


def _checks(kind: Any) -> list[Check]:
    """Returns the `Check` objects in the metadata of an `Annotated` type."""
    return [each for each in getattr(kind, '__metadata__', ()) if isinstance(each, Check)]


def flatten(values: 'ConfigDict | Mapping[str, Any]', prefix: str = '') -> dict[str, Any]:
    """Flattens a config or a nested dictionary, so that {'model': {'h': 50}} becomes {'model.h': 50}."""
    is_config = isinstance(values, Mapping) or hasattr(values, 'to_dict')
    require(is_config, 'config', values, 'must be a ConfigDict or a dictionary')
    flat: dict[str, Any] = {}
    values = values if isinstance(values, Mapping) else values.to_dict()
    for key, value in values.items():
        flat |= flatten(value, f'{prefix}{key}.') if isinstance(value, Mapping) else {f'{prefix}{key}': value}
    return flat
