"""Values of config keys: the check of a value against a type and a range, and nested values by flattened key."""

import math
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from nplm_jax.utils.errors import require
from nplm_jax.utils.names import require_one_of
from nplm_jax.utils.untrusted import is_unicode

if TYPE_CHECKING:
    from ml_collections import ConfigDict

_TYPE_NAMES: Mapping[Any, str] = {int: 'an integer', float: 'a number', bool: 'True or False', str: 'a string'}
OPTION_TYPES = (bool, int, float, str)  # of a key that a plug-in adds


class Options(dict[str, Any]):
    """The options of a plug-in that is a function by name, hashable as sections are.

    Attributes:
        function: The function; None if the user did not name its module.
    """

    def __init__(self, values: Iterable[Any] | Mapping[str, Any] = (), function: Any = None) -> None:
        super().__init__(values)
        self.function = function

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.function is getattr(other, 'function', None)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def check_value(value: Any, kind: Any, name: str) -> Any:
    """Returns the value, an int as a float where `kind` is one. Raises BadInput unless it has that type and range."""
    checks = getattr(kind, '__metadata__', ())
    expected = kind.__origin__ if checks else kind
    if typing.get_origin(kind) is Literal:
        require_one_of(name, value, names := typing.get_args(kind))
        expected = type(names[0])
    if isinstance(value, int):
        require(-(2**31) <= value < 2**31, name, value, 'must be below 2**31')
    if expected is float and type(value) is int:
        value = float(value)
    require(type(value) is expected, name, value, f'must be {_TYPE_NAMES.get(expected, expected)}')
    if isinstance(value, str):  # of a file name in another encoding, which no JSON file of a run could hold
        require(is_unicode(value), name, value, 'must be valid Unicode; rename the file')
    for check in checks:
        require(check.holds(value), name, value, check.allowed)
    if isinstance(value, float):  # no JSON file of a run could hold another
        require(math.isfinite(value), name, value, 'must be finite')
    return value


def describe_allowed(kind: Any) -> str:
    """Returns what is allowed for a value of a type that is a range or a choice; '' for another type."""
    if typing.get_origin(kind) is Literal:
        return f'must be one of {", ".join(map(str, typing.get_args(kind)))}'
    return '; '.join(check.allowed for check in getattr(kind, '__metadata__', ()))


def flatten(values: 'ConfigDict | Mapping[str, Any]', prefix: str = '') -> dict[str, Any]:
    """Returns the values of a config, or of nested dictionaries, by flattened key: {'model.h': 50}."""
    is_config = isinstance(values, Mapping) or hasattr(values, 'to_dict')
    require(is_config, 'config', values, 'must be a ConfigDict or a dictionary')
    flat: dict[str, Any] = {}
    values = values if isinstance(values, Mapping) else values.to_dict()
    for key, value in values.items():
        flat |= flatten(value, f'{prefix}{key}.') if isinstance(value, Mapping) else {f'{prefix}{key}': value}
    return flat
