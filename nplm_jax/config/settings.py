"""Every key of an experiment: its type, what is allowed, its default and its meaning, once, on a dataclass field.

This module declares the keys of `corpus.*` and those that belong to no part of a run. The parts
(`nplm_jax.config.parts`) declare the others. `python -m nplm_jax.config.parts` lists them in KEYS_FILE, which `--help`,
`--print_config` and messages read without importing JAX.

The defaults are the network of the paper's kind that is best on Brown after about ten minutes on 2 CPU cores.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import plugins
from nplm_jax.config.checked_fields import Options, build, declared_field, flatten, list_fields
from nplm_jax.config.component import CountOrZero, key
from nplm_jax.config.plugins import Trusted, is_module, is_path, module_of, trust
from nplm_jax.config.sections import (
    PART_KEYS,
    CorpusSettings,
    EvalSettings,
    Name,
    PaperRow,
    ParallelSettings,
    TrainSettings,
)

_SUMMARIES = {
    'model': 'which model, and its shape.',
    'output': 'how training computes the loss over all |V| words; evaluation is exact and in float32.',
    'optimizer': 'how a network is trained.',
    'optimizer.paper': 'the rate per word, epsilon_t = epsilon_0 / (1 + r t), t in words (sections 2.1 and 4.2).',
}


def _section(prefix: str) -> Any:
    """Returns a section of the keys of parts with its defaults: an instance of a dataclass that is made here."""
    start = f'{prefix}.'
    entries = {name.removeprefix(start): entry for name, entry in PART_KEYS.items() if name.startswith(start)}
    fields: list[Any] = [(name, *declared_field(entry)) for name, entry in entries.items() if '.' not in name]
    for inner in dict.fromkeys(name.partition('.')[0] for name in entries if '.' in name):
        fields.append((inner, Any, dataclasses.field(default=_section(f'{prefix}.{inner}'))))
    options = [name.removeprefix(start) for name in OPTION_SECTIONS.values() if name.startswith(start)]
    fields += [(name, Any, Options()) for name in options]
    name = f'{prefix.title().replace(".", "")}Settings'
    namespace = {'__doc__': f'`{prefix}.*`: {_SUMMARIES[prefix]}', '__module__': __name__}
    section_class = dataclasses.make_dataclass(name, fields, frozen=True, namespace=namespace)
    globals()[name] = section_class  # where another process that gets settings looks for it
    return section_class()


# The section of the options of a plug-in, by the key that names the plug-in.
OPTION_SECTIONS = {
    'corpus.name': 'corpus.options',
    'corpus.tokens': 'corpus.token_options',
    'model.family': 'model.options',
    'output.kind': 'output.options',
    'optimizer.name': 'optimizer.options',
    'optimizer.schedule': 'optimizer.schedule_options',
}
# The keys whose values are arguments of the compiled update: runs that differ only in them share one program.
HYPERPARAMETERS = (
    'seed',
    'optimizer.learning_rate',
    'optimizer.decay',
    'optimizer.paper.epsilon_0',
    'optimizer.paper.r',
    'optimizer.paper.decay',
)
LOADED_PLUGINS = ('model.family', 'output.kind', 'corpus.tokens')  # keys of the plug-ins that a trained model needs


@dataclasses.dataclass(frozen=True)
class Settings:
    """One experiment: everything that its result depends on."""

    name: Name = key('default', 'name of the run, of its folder and of its row in a table')
    seed: CountOrZero = key(
        1, 'random seed of the initial parameters, the order of the words, dropout and sampled words'
    )
    corpus: CorpusSettings = CorpusSettings()
    model: Any = _section('model')
    output: Any = _section('output')
    optimizer: Any = _section('optimizer')
    train: TrainSettings = TrainSettings()
    eval: EvalSettings = EvalSettings()
    parallel: ParallelSettings = ParallelSettings()
    paper: PaperRow = PaperRow()


FIELDS = dict(list_fields(Settings))  # by flattened key: {'model.h': ...}


def is_option(name: str) -> bool:
    """Returns whether a flattened key names an option of a plug-in, such as `model.options.width`."""
    return name.rpartition('.')[0] in OPTION_SECTIONS.values()


def value_of(settings: Any, name: str) -> Any:
    """Returns the value of a flattened key, of an option, or of a section."""
    value: Any = settings
    for part in name.split('.'):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def default_config() -> ConfigDict:
    """Returns the config of all defaults, locked against unknown keys; the files in `configs/` change its values.

    The options of plug-ins are not locked; `from_config` checks them.
    """
    return lock(ConfigDict(to_dict(Settings())))


def lock(config: ConfigDict) -> ConfigDict:
    """Locks a config against unknown keys, but for the options of plug-ins, which it gets where it has none."""
    for name in OPTION_SECTIONS.values():
        section, _, options = name.partition('.')
        if section in config and options not in config[section]:
            config[section][options] = ConfigDict()
    config.lock()
    for name in OPTION_SECTIONS.values():
        section, _, options = name.partition('.')
        if section in config:
            config[section][options].unlock()
    return config


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks types and ranges of a config and freezes it.

    Args:
        config: A ConfigDict, or a nested or flattened dictionary; a key that it lacks has its default. It is the
            user's: the modules of its plug-ins count as named, and are imported. `from_record` reads those of others.

    Returns:
        The settings. `runs.experiment.load_settings` also makes the parts of them.

    Raises:
        BadInput: A key is unknown, or has a wrong type or an impossible value.
    """
    flat = flatten(config)
    with trusting(flat):
        return _build(flat)


def _build(flat: Mapping[str, Any]) -> Settings:
    """Returns the settings; the options of the plug-ins that the user named are checked, and their paths `Trusted`."""
    trusted = {key: Trusted(path) for key, path in _plugins_among(flat).items() if plugins.is_allowed(path)}
    return build(Settings, {**flat, **trusted}, option_classes(flat))


def option_classes(flat: Mapping[str, Any], imports: bool = True) -> dict[str, type]:
    """Returns the dataclass of the options of each plug-in whose module the user named, by the key of their section.

    Args:
        flat: Values by flattened key.
        imports: Whether to import plug-ins; else those of built-in parts alone are returned, which have no fields.

    Raises:
        BadInput: A plug-in cannot be imported or is of another kind.
    """
    options: dict[str, type] = {}
    for chooser, section in OPTION_SECTIONS.items():
        path = flat.get(chooser, FIELDS[chooser].default)
        if not (isinstance(path, str) and is_path(path)):
            options[section] = plugins.NoOptions
        elif imports and plugins.is_allowed(path):
            options[section] = plugins.options_class(chooser, path, section, FIELDS)
    return options


def _plugins_among(flat: Mapping[str, Any]) -> dict[str, str]:
    """Returns the import paths of plug-ins among values, by key."""
    return {key: path for key in OPTION_SECTIONS if isinstance(path := flat.get(key), str) and is_path(path)}


def trusting(flat: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the modules of the plug-ins among the user's values, by flattened key."""
    return trust(filter(is_module, map(module_of, _plugins_among(flat).values())))  # `plugins.load` refuses the others


def trusting_settings(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the modules of the plug-ins that settings name and whose paths are `Trusted`."""
    return trusting({key: path for key, path in to_flat(settings).items() if isinstance(path, Trusted)})


def plugin_modules(settings: Settings, keys: Iterable[str] = OPTION_SECTIONS) -> list[str]:
    """Returns the modules of a config's plug-ins, of those that some keys name."""
    paths = [value_of(settings, key) for key in keys]
    return list(dict.fromkeys(module_of(path) for path in paths if is_path(path)))


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the nested dictionary that `from_config` reads, of values that JSON and a ConfigDict can hold."""
    plain = lambda items: {key: str(value) if isinstance(value, Trusted) else value for key, value in items}  # noqa: E731
    return dataclasses.asdict(settings, dict_factory=plain)


def to_flat(settings: Settings) -> dict[str, Any]:
    """Returns the values of all keys by flattened key: {'model.h': 50}."""
    return flatten(dataclasses.asdict(settings))


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns settings with other values of some flattened keys: `replace(settings, {'model.h': 50})`.

    The changes are the user's: see `from_config`. A plug-in of the settings is imported, and its options are checked,
    where the user named its module.
    """
    with trusting(changes):
        return _build({**to_flat(settings), **changes})
