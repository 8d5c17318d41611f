"""Dataclasses whose fields are config keys: declares keys, and builds sections with each value checked."""

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from nplm_jax.config import component
from nplm_jax.config.component import MEANING, SECTION, Range
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.names import did_you_mean, require_one_of
from nplm_jax.utils.untrusted import is_unicode

if TYPE_CHECKING:
    from ml_collections import ConfigDict

T = TypeVar('T')
_TYPE_NAMES: Mapping[Any, str] = {int: 'an integer', float: 'a number', bool: 'True or False', str: 'a string'}
OPTION_TYPES = (bool, int, float, str)  # of an option that is not declared


class Options(dict[str, Any]):
    """The options of a plug-in by name: plain data, hashable as sections are."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def build(settings_class: type[T], flat: Mapping[str, Any], options: Mapping[str, type]) -> T:
    """Builds a dataclass, and the dataclasses in its fields, from values by flattened key.

    Args:
        settings_class: The dataclass. The annotation of each field says what its value may be.
        flat: The values; a key that is not among them has its default.
        options: The dataclass of the options of each plug-in that is imported, by the key of its section. The options
            of other plug-ins can be any plain values.

    Raises:
        BadInput: A key is unknown, or has a wrong type or an impossible value.
    """
    remaining = dict(flat)
    settings = _build_section(settings_class, remaining, '', options)
    for name in remaining:
        *sections, _ = name.split('.')
        allowed = dataclasses.asdict(settings)
        for section in sections:
            allowed = allowed[section] if isinstance(allowed.get(section), dict) else {}
        near = did_you_mean(name, ('.'.join([*sections, key]) for key in allowed), dotted=True)
        raise BadInput(name, f'unknown key; allowed here: {", ".join(allowed) or "none"}{near}')
    return typing.cast(T, settings)


def _build_section(section_class: type, flat: dict[str, Any], prefix: str, options: Mapping[str, type]) -> Any:
    """Removes the keys of a section from `flat`, checks their values and returns the section."""
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(section_class, include_extras=True)
    for field in dataclasses.fields(section_class):
        name, default = f'{prefix}{field.name}', field.default
        if isinstance(default, Options) or dataclasses.is_dataclass(default):
            value = flat.pop(name, {})  # `flatten` leaves only an empty section, or a value that is no section
            require(value == {}, name, value, 'must be a section')
        if isinstance(default, Options) and name not in options:
            values[field.name] = _pop_options(flat, name)
        elif isinstance(default, Options):
            values[field.name] = Options(vars(_build_section(options[name], flat, f'{name}.', options)))
        elif dataclasses.is_dataclass(default):
            values[field.name] = _build_section(type(default), flat, f'{name}.', options)
        elif name in flat:
            values[field.name] = check_value(flat.pop(name), hints[field.name], name)
    return section_class(**values)


def _pop_options(flat: dict[str, Any], name: str) -> Options:
    """Removes the options of a plug-in that is not imported from `flat`, and returns them by name."""
    options = {key: flat.pop(key) for key in list(flat) if key.startswith(f'{name}.')}
    for key, value in options.items():
        require(type(value) in OPTION_TYPES, key, value, 'must be a string, a number or a bool')
    return Options({key.removeprefix(f'{name}.'): value for key, value in options.items()})


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
    is_kind = isinstance(value, str) if expected is str else type(value) is expected  # a path may be plugins.Trusted
    require(is_kind, name, value, f'must be {_TYPE_NAMES.get(expected, expected)}')
    if isinstance(value, str):  # of a file name in another encoding, which no JSON file of a run could hold
        require(is_unicode(value), name, value, 'must be valid Unicode; rename the file')
    for check in checks:
        require(check.holds(value), name, value, check.allowed)
    return value


def flatten(values: 'ConfigDict | Mapping[str, Any]', prefix: str = '') -> dict[str, Any]:
    """Returns the values of a config, or of nested dictionaries, by flattened key: {'model.h': 50}."""
    flat: dict[str, Any] = {}
    values = values if isinstance(values, Mapping) else values.to_dict()
    for key, value in values.items():
        flat |= flatten(value, f'{prefix}{key}.') if isinstance(value, Mapping) else {f'{prefix}{key}': value}
    return flat


def list_fields(section_class: type, prefix: str = '') -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Yields the flattened key and the field of each value of a dataclass, and of those in its fields."""
    for field in dataclasses.fields(section_class):
        if dataclasses.is_dataclass(field.default):
            yield from list_fields(type(field.default), f'{prefix}{field.name}.')
        elif not isinstance(field.default, Options):
            yield f'{prefix}{field.name}', field


def list_ranges(section_class: type, prefix: str = '') -> Iterator[tuple[str, str]]:
    """Yields the flattened key and what is allowed for each value of a dataclass whose type is a range or a choice."""
    hints = typing.get_type_hints(section_class, include_extras=True)
    for field in dataclasses.fields(section_class):
        kind, name = hints[field.name], f'{prefix}{field.name}'
        if dataclasses.is_dataclass(field.default):
            yield from list_ranges(type(field.default), f'{name}.')
        elif typing.get_origin(kind) is Literal:
            yield name, f'must be one of {", ".join(map(str, typing.get_args(kind)))}'
        elif checks := getattr(kind, '__metadata__', ()):
            yield name, '; '.join(check.allowed for check in checks)


def declarations(section_class: type, section: str) -> dict[str, dict[str, Any]]:
    """Returns the keys that the fields of a part declare, as JSON holds them, by flattened key.

    Args:
        section_class: The part.
        section: The section of its keys.
    """
    hints = typing.get_type_hints(section_class, include_extras=True)
    found = {}
    for field in dataclasses.fields(section_class):
        if MEANING in field.metadata:
            kind, entry = hints[field.name], {'default': field.default, 'meaning': field.metadata[MEANING]}
            if typing.get_origin(kind) is Literal:
                entry['choices'] = typing.get_args(kind)
            else:
                entry['type'] = getattr(kind, '__origin__', kind).__name__
            for bounds in getattr(kind, '__metadata__', ()):
                defaults = bounds._field_defaults
                entry['range'] = {name: x for name, x in bounds._asdict().items() if x != defaults.get(name)}
            found[f'{field.metadata[SECTION] or section}.{field.name}'] = entry
    return found


def declared_field(entry: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the type and the field of a key, from what `declarations` returned of it."""
    if 'choices' in entry:
        kind: Any = Literal[tuple(entry['choices'])]
    else:
        kind = {kind.__name__: kind for kind in OPTION_TYPES}[entry['type']]
        kind = Annotated[kind, Range(**entry['range'])] if 'range' in entry else kind
    return kind, component.key(entry['default'], entry['meaning'])
