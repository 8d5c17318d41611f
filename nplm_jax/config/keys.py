"""Builds sections and components from flat config values, and lists their keys."""

import dataclasses
import functools
import types
import typing
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, cast

from nplm_jax.config import plugins
from nplm_jax.config.checked_fields import OPTION_TYPES, Options, check_value, describe_allowed
from nplm_jax.config.component import DEFAULT, KIND, MEANING, NEEDS, key_fields, metadata_of
from nplm_jax.config.plugins import is_path
from nplm_jax.config.registry import KINDS, component_class
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.names import did_you_mean

_hints = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))


class Key(NamedTuple):
    """A config key of a run, with its value and documentation.

    Attributes:
        name: The flattened key, such as `model.h`.
        value: The value in this run.
        default: The default value.
        allowed: The constraint on the value, or '' if only the type is constrained.
        meaning: The description of the key, or '' for the keys of an unimported plug-in and for options.
    """

    name: str
    value: Any
    default: Any
    allowed: str
    meaning: str


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A plug-in that is not imported, because the user did not name its module.

    Attributes:
        name: The import path of the plug-in.
        values: The values of the plug-in's section by flattened key.
        others: The config keys outside this section; some of them may exist only because of the plug-in.
    """

    name: str
    values: Options
    others: frozenset[str] = dataclasses.field(default=frozenset(), repr=False, compare=False)


def build(section: type, remaining: dict[str, Any], prefix: str = '', settings: Any = None, **given: Any) -> Any:
    """Builds a section or a component, and removes its keys from `remaining`.

    Each value is checked against the type and range of its field.

    Args:
        section: The dataclass of the section or component.
        remaining: The values by flattened key. Missing keys take their defaults.
        prefix: The prefix of the keys, such as `model.`.
        settings: The partly built settings that contain the section, or None if the section is the settings.
        **given: The values of fields that are not keys, such as the name of a component.

    Raises:
        BadInput: A value has a wrong type or is out of range, or a plug-in cannot be used.
    """
    made = types.SimpleNamespace(**given)
    settings = settings or made
    fields = sorted(key_fields(section), key=lambda field: KIND not in field.metadata)
    names = {f'{prefix}{field.name}' for field in fields}
    for field in fields:
        name = f'{prefix}{field.name}'
        value = default = field.metadata.get(DEFAULT, field.default)
        needs, kind = metadata_of(section, field.name, NEEDS), field.metadata.get(KIND)
        if needs and not needs(made, settings):
            pass
        elif kind:
            value = _build_component(kind, remaining, names)
        elif isinstance(default, Options):
            value = _build_options(f'{prefix}name', made.name, name, remaining)
        elif dataclasses.is_dataclass(default):
            value = build(type(default), remaining, f'{name}.', settings)
        else:
            value = check_value(remaining.pop(name, default), _hints(section)[field.name], name)
        setattr(made, field.name, value)
    return section(**vars(made))


def _build_component(kind: str, remaining: dict[str, Any], others: Collection[str]) -> Any:
    """Builds a component and removes its keys from `remaining`; see `build`.

    Args:
        kind: The key that chooses the component, such as `model.family`.
        remaining: The values by flattened key.
        others: The keys that belong to the section itself rather than to the component.
    """
    name, section = check_value(remaining.pop(kind, KINDS[kind].default), str, kind), f'{kind.partition(".")[0]}.'
    if is_path(name) and not plugins.is_allowed(plugins.check_path(kind, name)):
        shared = tuple(f'{other}.' for other in others if other.startswith(section))
        own = [key for key in remaining if key.startswith(section) and not f'{key}.'.startswith(shared)]
        return Unknown(name, Options(_take(own, remaining)), frozenset(remaining))
    found = component_class(kind, name)
    for key, field in ((f'{section}{field.name}', field) for field in key_fields(found) if KIND not in field.metadata):
        is_free = key not in others and key not in KINDS
        require(is_free, kind, name, f'the field {field.name} has the same name as the key {key}')
    return build(found, remaining, section, name=name)


def _build_options(kind: str, path: str, section: str, remaining: dict[str, Any]) -> Options:
    """Builds the options of a function plug-in and removes their keys from `remaining`."""
    if is_path(path) and plugins.is_allowed(plugins.check_path(kind, path)):
        function = plugins.load_function(kind, path)
        return Options(vars(build(plugins.arguments(function), remaining, f'{section}.')), function)
    own = [key for key in remaining if is_path(path) and key.startswith(f'{section}.')]
    return Options({key.removeprefix(f'{section}.'): value for key, value in _take(own, remaining).items()})


def _take(keys: Collection[str], remaining: dict[str, Any]) -> dict[str, Any]:
    """Removes the keys of an unimported plug-in from `remaining` and returns their values."""
    for key in keys:
        require(type(remaining[key]) in OPTION_TYPES, key, remaining[key], 'must be a string, a number or a Boolean')
    return {key: remaining.pop(key) for key in keys}


def list_keys(section: Any, prefix: str = '', settings: Any = None) -> Iterator[Key]:
    """Yields the config keys of a section or component, and of everything nested in it. For arguments, see `build`."""
    settings = settings or section
    for field in key_fields(type(section)):
        name, value = f'{prefix}{field.name}', getattr(section, field.name)
        needs, kind = metadata_of(type(section), field.name, NEEDS), field.metadata.get(KIND)
        if needs and not needs(section, settings):
            continue
        if kind:
            chooser = KINDS[kind]
            meaning = f'{chooser.meaning}: {" | ".join(chooser.paths)} | an import path'
            yield Key(kind, value.name, chooser.default, '', meaning)
            if isinstance(value, Unknown):
                yield from (Key(key, x, x, '', '') for key, x in value.values.items())
            else:
                yield from list_keys(value, f'{kind.partition(".")[0]}.', settings)
        elif isinstance(value, Options):
            yield from (Key(f'{name}.{option}', x, x, '', '') for option, x in value.items())
        elif dataclasses.is_dataclass(value):
            yield from list_keys(value, f'{name}.', settings)
        else:
            default = field.metadata.get(DEFAULT, field.default)
            meaning = metadata_of(type(section), field.name, MEANING) or ''
            yield Key(name, value, default, describe_allowed(_hints(cast(Any, type(section)))[field.name]), meaning)


def list_components(section: Any) -> Iterator[tuple[str, Any]]:
    """Yields the components in a section, at any depth, with the keys that choose them."""
    for field in () if isinstance(section, Unknown) else key_fields(type(section)):
        value, kind = getattr(section, field.name), field.metadata.get(KIND)
        if kind and value is not None:
            yield kind, value
        if dataclasses.is_dataclass(value):
            yield from list_components(value)


def unknown_key(key: str, settings: Any, value: Any = ...) -> BadInput:
    """Returns the error for a key that a run lacks. Its message lists valid keys and suggests the most similar one."""
    values = {known.name: known.value for known in list_keys(settings)}
    section = key.partition('.')[0]
    peers = [name for name in values if name.startswith(f'{section}.')]
    near = did_you_mean(key, values, dotted=True)
    if '.' not in key or not (peers or hasattr(settings, section)):
        sections = dict.fromkeys(name.partition('.')[0] for name in values if '.' in name)
        return BadInput(key, f'is not a config key; the sections are {", ".join(sections)}{near}', value=value)
    if not peers:
        family = f'model.family={settings.model.name}'
        return BadInput(key, f'is not a key of {family}; count-based models have no {section}.* keys', value=value)
    kinds = [f'{kind}={values[kind]}' for kind in KINDS if kind.startswith(f'{section}.') and kind in values]
    of_kinds = f'is not a key of {", ".join(kinds)}' if kinds else 'is not a config key'
    return BadInput(key, f'{of_kinds}; the keys are {", ".join(peers)}{near}', value=value)
