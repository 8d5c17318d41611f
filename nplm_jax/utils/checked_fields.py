"""Builds dataclasses from a config, one for each section, and checks each value by its annotation."""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from ml_collections import ConfigDict

from nplm_jax.utils import plugins
from nplm_jax.utils.errors import BadInput, did_you_mean, require, require_one_of

T = TypeVar('T')


class Check(NamedTuple):
    """A condition on a value.

    Attributes:
        allowed: What is allowed, for the error message.
        holds: Tells whether a value is allowed.
        names: The names among the allowed values, of which the message suggests the nearest.
    """

    allowed: str
    holds: Callable[[Any], bool]
    names: tuple[str, ...] = ()


class OptionsOf(NamedTuple):
    """Marks the field of a section that holds the options of a plug-in.

    Attributes:
        field: An earlier field of the section, which names the plug-in.
        is_class: Whether the plug-in is a class; else it is a function.
    """

    field: str
    is_class: bool


class UncheckedOptions(dict[str, Any]):
    """The options of a plug-in that is not imported, by name: plain data, hashable as other sections are."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def key(default: Any, meaning: str) -> Any:
    """Returns a field with its default and its meaning, which the reference of keys and `--print_config` show."""
    return dataclasses.field(default=default, metadata={'meaning': meaning})


def at_least(least: float) -> Check:
    """Returns the check of a finite number that has a least value."""
    return Check(f'must be {least} or more', lambda value: math.isfinite(value) and value >= least)


def build(settings_class: type[T], flat: Mapping[str, Any], imports: bool = True) -> T:
    """Builds a dataclass, and the dataclasses in its fields, from values by flattened key.

    Args:
        settings_class: The dataclass. The annotation of each field says what its value may be.
        flat: The values; a key that is not among them has its default.
        imports: Whether to import the plug-ins that the user named, to check their options. The options of others
            are `UncheckedOptions`.

    Raises:
        BadInput: A key is unknown, or has a wrong type or an impossible value.
    """
    remaining = dict(flat)
    settings = _build_section(settings_class, remaining, '', imports)
    for name in remaining:
        *sections, _ = name.split('.')
        allowed = dataclasses.asdict(settings)
        for section in sections:
            allowed = allowed[section] if isinstance(allowed.get(section), dict) else {}
        near = did_you_mean(name, ('.'.join([*sections, key]) for key in allowed), dotted=True)
        raise BadInput(f'{name}: unknown key; allowed here: {", ".join(allowed) or "none"}{near}')
    return typing.cast(T, settings)


def _build_section(section_class: type, flat: dict[str, Any], prefix: str, imports: bool) -> Any:
    """Removes the keys of a section from `flat`, checks their values and returns the section."""
    values: dict[str, Any] = {}
    for field, kind in typing.get_type_hints(section_class, include_extras=True).items():
        name = f'{prefix}{field}'
        marks = getattr(kind, '__metadata__', ())
        if marks and isinstance(marks[0], OptionsOf):
            chooser, is_class = marks[0]
            plugin = values.get(chooser, getattr(section_class, chooser))
            if plugins.is_path(plugin) and not (imports and plugins.is_allowed(plugin)):
                values[field] = _pop_options(flat, name)
                continue
            kind = plugins.options_class(f'{prefix}{chooser}', plugin, is_class)
        if dataclasses.is_dataclass(kind):
            value = flat.pop(name, {})  # `flatten` leaves only an empty section, or a value that is no section
            require(value == {}, name, value, 'must be a section')
            values[field] = _build_section(typing.cast(type, kind), flat, f'{name}.', imports)
        elif name in flat:
            values[field] = _checked(flat.pop(name), kind, name)
    return section_class(**values)


def _pop_options(flat: dict[str, Any], name: str) -> UncheckedOptions:
    """Removes the options of a plug-in that is not imported from `flat`, and returns them by name."""
    value = flat.pop(name, {})
    require(value == {}, name, value, 'must be a section')
    options = {key: flat.pop(key) for key in list(flat) if key.startswith(f'{name}.')}
    for key, value in options.items():
        require(type(value) in plugins.OPTION_TYPES, key, value, 'must be a string, a number or a bool')
    return UncheckedOptions({key.removeprefix(f'{name}.'): value for key, value in options.items()})


def _checked(value: Any, kind: Any, name: str) -> Any:
    """Returns the value, an int as a float where `kind` is one. Raises BadInput unless it has that type and range."""
    checks = getattr(kind, '__metadata__', ())
    expected = kind.__origin__ if checks else kind
    if typing.get_origin(kind) is Literal:
        require_one_of(name, value, typing.get_args(kind))
        return value
    if isinstance(value, int):
        require(-(2**31) <= value < 2**31, name, value, 'must be below 2**31')
    if expected is float and type(value) is int:
        value = float(value)
    require(type(value) is expected, name, value, f'must be of type {expected.__name__}')
    for check in checks:
        require(check.holds(value), name, value, f'{check.allowed}{did_you_mean(value, check.names)}')
    return value


def flatten(values: ConfigDict | Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Returns the values of a config, or of nested dictionaries, by flattened key: {'model.h': 50}."""
    flat: dict[str, Any] = {}
    values = values.to_dict() if isinstance(values, ConfigDict) else values
    for key, value in values.items():
        flat |= flatten(value, f'{prefix}{key}.') if isinstance(value, Mapping) else {f'{prefix}{key}': value}
    return flat


def list_fields(section_class: type, prefix: str = '') -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yields the flattened key and the field of each value of a dataclass, and of those in its fields."""
    for field in dataclasses.fields(section_class):
        if dataclasses.is_dataclass(field.default):
            yield from list_fields(type(field.default), f'{prefix}{field.name}.')
        else:
            yield f'{prefix}{field.name}', field
