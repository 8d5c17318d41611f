"""Turns the names of parts (`lstm`, `adam`, an import path) into classes and instances; lists the keys that each reads.

A part is a frozen dataclass whose fields are its keys. To add one, write a module and a line in PARTS, then run `python
-m nplm_jax.config.parts`, which writes the list of all keys (`sections.KEYS_FILE`). A part outside this package is a
plug-in: its import path stands in place of a name in PARTS, and those of its fields that are no keys of the package are
its options. Importing this module imports no JAX; making a part imports the module of the part.
"""

import dataclasses
import functools
import importlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import checked_fields, plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.component import FILE, Part, metadata_of
from nplm_jax.config.plugins import is_path
from nplm_jax.config.registry import NETWORKS, PARTS, RATES, rates_of
from nplm_jax.config.sections import KEYS_FILE, READS
from nplm_jax.config.settings import FIELDS, HYPERPARAMETERS, OPTION_SECTIONS, Settings
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.names import require_one_of

_KEYS_OF_IMPORTED = ('model.n',)  # of a model that no part estimates, such as an imported ARPA file
PLUGIN = 'plug-in'  # stands for all plug-ins of a kind that are functions
_OF_NETWORKS = ('output', 'optimizer', 'train')  # sections that only networks read
_OWNERS = {key: kind for kind in reversed(READS) for keys in READS[kind].values() for key in keys}


def make_all(settings: Settings) -> dict[str, Any]:
    """Returns the parts of a run by the keys that name them.

    Raises:
        BadInput: A part does not exist, the run does not read some keys, or a part refuses its values.
    """
    _check_unread(settings)
    made = {key: make(key, settings) for key in _kinds(settings)}
    for part in made.values():
        part.check()
    return made


def base_class(key: str) -> Any:
    """Returns the class that plug-ins of a kind subclass."""
    return _import(PARTS[key].base)


def is_neural(family: str) -> bool:
    """Returns whether a `model.family` is trained by gradients; the others are estimated from counts."""
    return family in NETWORKS or is_path(family)


def part_class(key: str, name: str) -> type[Any]:
    """Returns the dataclass of a part.

    Args:
        key: A key of PARTS, such as `model.family`.
        name: Its value.

    Raises:
        BadInput: The name is unknown, or that of a plug-in that cannot be imported or is of another kind.
    """
    kind = PARTS[key]
    if not is_path(name):
        require_one_of(key, name, kind.paths, f', or {plugins.IMPORT_PATH}')
        return _import(kind.paths[name])
    base = base_class(key)
    if key in plugins.FUNCTIONS:
        return base
    part = plugins.load_class(key, name, base)
    keys = _keys_of(key, part)
    for field in dataclasses.fields(part):
        read = keys.get(field.name, '')
        has_value = field.default is not dataclasses.MISSING or read in FIELDS
        require(has_value, key, name, f'its option {field.name} needs a default')
        is_method = callable(getattr(base, field.name, None))
        require(not is_method, key, name, f'its field {field.name} has the name of a method of {base.__name__}')
        # Runs that differ in HYPERPARAMETERS share a program, and runs that differ outside `corpus` share a text.
        is_fixed = read not in HYPERPARAMETERS and (key != 'corpus.tokens' or read[:7] in ('', 'corpus.'))
        require(is_fixed, key, name, f'its field {field.name} would read {read}, which it cannot; give it another name')
    return part


def _keys_of(key: str, part: type[Any]) -> dict[str, str]:
    """Returns the key of each field of a part; see `plugins.keys_of`."""
    return plugins.keys_of(key, part, FIELDS, OPTION_SECTIONS[key])


@functools.cache
def _import(path: str) -> Any:
    module, _, name = path.partition(':')
    return getattr(importlib.import_module(module), name)


def make(key: str, settings: Any, name: str = '', **values: Any) -> Any:
    """Returns a part with the values that settings give its keys.

    Args:
        key: A key of PARTS.
        settings: The settings, or what has the section that the part reads.
        name: Another part than that of the settings.
        **values: Fields of the part that are not keys, or have other values.

    Raises:
        BadInput: See `part_class`.
    """
    part = part_class(key, name or config_lib.value_of(settings, key))
    read = {field: config_lib.value_of(settings, of_field) for field, of_field in _keys_of(key, part).items()}
    return part(**read | values)


def readers(settings: Settings) -> dict[str, Collection[str]]:
    """Returns the keys that each part of a run reads, by the key that names the part."""
    return {key: _reads(key, config_lib.value_of(settings, key)) for key in _kinds(settings)}


def _kinds(settings: Settings) -> list[str]:
    """Returns the keys of the parts that a run has."""
    if not is_neural(settings.model.family):
        return ['model.family', 'corpus.tokens']
    has_schedule = 'optimizer.schedule' in _reads('optimizer.name', settings.optimizer.name)
    return [key for key in PARTS if has_schedule or key != 'optimizer.schedule']


def _reads(key: str, name: str) -> Collection[str]:
    known = PLUGIN if is_path(name) and key in plugins.FUNCTIONS else name
    return READS[key][known] if known in READS[key] else _keys_read(part_class(key, name), key, OPTION_SECTIONS[key])


def _keys_read(part: type[Any], key: str, options: str = '') -> list[str]:
    """Returns the keys of the fields of a part, and those that others read because of it."""
    return [*plugins.keys_of(key, part, FIELDS, options).values(), *sorted(part.also_reads)]


def files(settings: Settings) -> dict[str, str]:
    """Returns the user's files that a model is made from, by config key; see `component.key`."""
    if not is_neural(settings.model.family):
        return {}
    layer, found = part_class('output.kind', settings.output.kind), {}
    for field, key in _keys_of('output.kind', layer).items():
        names_none, path = metadata_of(layer, field, FILE), config_lib.value_of(settings, key)
        if names_none is not None and path not in names_none:
            found[key] = path
    return found


def values_of(key: str, part: Part) -> dict[str, Any]:
    """Returns the values of the keys of a part, by flattened key; see `make`."""
    return {name: getattr(part, field) for field, name in _keys_of(key, type(part)).items()}


def find_unread(settings: Settings) -> dict[str, str]:
    """Returns the keys that nothing reads and that differ from their defaults, each with the key that chooses."""
    read, values = readers(settings), config_lib.to_flat(settings)
    all_read, unread = set().union(*read.values()), {}
    for key, field in FIELDS.items():
        choice = _find_choice(key, read)
        if choice not in ('', key) and key not in all_read and values[key] != field.default:
            unread[key] = choice
    return unread


def keys_of(settings: Settings, imports: bool = True) -> set[str]:
    """Returns the keys that a run has, but for options: those of its parts, and those of no part.

    Args:
        settings: The settings.
        imports: Whether to import plug-ins; else the keys that only they read are left out.
    """
    kinds, reads = _kinds(settings), list[str]()
    for key in kinds:
        is_plugin = is_path(name := config_lib.value_of(settings, key))
        of_unknown = _KEYS_OF_IMPORTED if key == 'model.family' and not is_plugin else ()
        known = READS[key].get(name, of_unknown)
        reads += _reads(key, name) if name in PARTS[key].paths or (imports and is_plugin) else known
    of_none = {key for key in FIELDS if key not in PARTS and not _find_choice(key, kinds)}
    return of_none.union(kinds, reads) & FIELDS.keys()


def exact_values(settings: Settings) -> dict[str, Any]:
    """Returns the values of the keys that a run has, and of the options of its plug-ins, by flattened key."""
    keys = keys_of(settings)
    return {key: x for key, x in config_lib.to_flat(settings).items() if key in keys or key not in FIELDS}


def to_config(settings: Settings) -> ConfigDict:
    """Returns the config of a run: exactly its keys, locked against others but for the options of its plug-ins."""
    config = ConfigDict()
    for name, value in exact_values(settings).items():
        *sections, key = name.split('.')
        section = config
        for inner in sections:
            if inner not in section:
                section[inner] = ConfigDict()
            section = section[inner]
        section[key] = str(value) if isinstance(value, plugins.Trusted) else value
    return config_lib.lock(config)


def _find_choice(key: str, kinds: Collection[str]) -> str:
    """Returns the key of the part that decides whether a run with these kinds of parts reads `key`; '' if all do."""
    if 'output.kind' not in kinds and key.partition('.')[0] in _OF_NETWORKS:
        return 'model.family'
    choice = _OWNERS.get(key, '')
    return 'optimizer.name' if choice == 'optimizer.schedule' not in kinds else choice


def _check_unread(settings: Settings) -> None:
    """Raises BadInput for keys that the run does not read."""
    if not (unread := find_unread(settings)):
        return
    values, choice = config_lib.to_flat(settings), next(iter(unread.values()))
    *others, last = [key for key in unread if unread[key] == choice]
    key = ', '.join([*(f'{key}={values[key]!r}' for key in others), last])
    option_keys = [key for key in values if key.rpartition('.')[0] == OPTION_SECTIONS[choice]]
    shown = dict.fromkeys([*(key for key in readers(settings)[choice] if key in values), *option_keys])
    problem = f'not read by {choice}={values[choice]}, which reads {", ".join(shown)}'
    raise BadInput(key, problem, value=values[last])


def changed(
    config: ConfigDict | Mapping[str, Any], changes: Mapping[str, Any], given: Collection[str] = ()
) -> dict[str, Any]:
    """Returns the values of a config with some changed, without what only replaced parts read.

    Args:
        config: The config, or its values by flattened key.
        changes: The values that change, by flattened key.
        given: The keys that the user changed, which stay as they are; none for those of `changes`. See `resets`. A new
            optimizer without a learning rate among them has its own rates.
    """
    before, given = flatten(config), given or changes.keys()
    chosen = {key for key in changes.keys() & OPTION_SECTIONS if changes[key] != before.get(key, FIELDS[key].default)}
    values, kept = {**before, **changes}, {*changes, *given}
    if 'optimizer.name' in chosen and 'optimizer.learning_rate' not in kept:  # its own rates
        rates = {key: FIELDS[key].default for key in RATES} | rates_of('optimizer.name', changes['optimizer.name'])
        values |= {key: rate for key, rate in rates.items() if key not in kept}
    for _ in range(2):  # those that are chosen, and those that are reset because of them
        sections = [OPTION_SECTIONS[key] for key in chosen]
        values = {key: x for key, x in values.items() if key in kept or key.rpartition('.')[0] not in sections}
        reset = resets(values, given)
        values, chosen = {**values, **reset}, reset.keys() & OPTION_SECTIONS
    return values


def resets(config: ConfigDict | Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns the defaults of the keys that a newly chosen part does not read.

    Args:
        config: A config file's row in which the user changed some keys. Keys of the row that nothing reads any more are
            reset.
        given: The keys that the user changed, which stay as they are. Without a new choice among them, none is reset.
    """
    if not set(given) & PARTS.keys():
        return {}
    settings = config_lib.from_config(config)
    return {key: FIELDS[key].default for key in find_unread(settings).keys() - set(given)}


def override(config: ConfigDict | Mapping[str, Any], changes: Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of a config with some flattened keys changed, as `--config.KEY=VALUE` flags change it.

    Args:
        config: The config, such as that of a row, or its values by flattened key.
        changes: The values: `{'model.family': 'lstm', 'model.h': 300}`. See `resets`.

    Raises:
        BadInput: There is no such key, no part reads it, or a value has a wrong type or is impossible.
    """
    settings = config_lib.from_config(changed(config, flatten(changes)))
    _check_unread(settings)
    return to_config(settings)


def list_keys() -> str:
    """Returns what KEYS_FILE holds: the keys that the parts in PARTS declare, and those that each part reads."""
    declared: dict[str, dict[str, Any]] = {}
    for key, kind in PARTS.items():
        meaning = f'{kind.meaning}: {" | ".join(kind.paths)} | an import path'
        declared[key] = {'type': 'str', 'default': kind.default, 'meaning': meaning}
        for path in dict.fromkeys(_paths(key).values()):
            declared |= checked_fields.declarations(_import(path), key.partition('.')[0])
    reads = {key: {name: _keys_read(_import(path), key) for name, path in _paths(key).items()} for key in PARTS}
    return json.dumps({'keys': declared, 'reads': reads}, indent=1) + '\n'


def _paths(key: str) -> dict[str, str]:
    """Returns the parts of a kind, and the class that stands for the plug-ins that are functions."""
    return PARTS[key].paths | ({PLUGIN: PARTS[key].base} if key in plugins.FUNCTIONS else {})


if __name__ == '__main__':
    write_atomically(KEYS_FILE, list_keys())
