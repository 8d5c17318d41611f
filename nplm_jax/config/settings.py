"""Defines the settings of a run, and converts between configs and the dataclasses of sections and components.

By default, a run trains the best network with the paper's architecture that can be trained on Brown in about ten
minutes on 2 CPU cores.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import plugins, records
from nplm_jax.config.checked_fields import check_value, flatten
from nplm_jax.config.component import DEFAULT, FILE, KIND, NEEDS, CountOrZero, chosen, key, key_fields, metadata_of
from nplm_jax.config.keys import Unknown, build, list_components, list_keys, unknown_key
from nplm_jax.config.plugins import is_module, is_path, module_of, trust
from nplm_jax.config.registry import KINDS, component_class, is_neural
from nplm_jax.config.sections import CorpusSettings, EvalSettings, Name, PaperRow, ParallelSettings, TrainSettings
from nplm_jax.utils.errors import BadInput

CORPUS = 'corpus.name'  # names a corpus, or the function of a plug-in
CHOOSERS = (CORPUS, *KINDS)  # the keys that can name a plug-in
_SHARING = 'corpus.tokens', 'optimizer.schedule'  # these components share their section with another component
LOADED_PLUGINS = ('model.family', 'output.kind', 'corpus.tokens')  # plug-ins of these kinds are part of a trained model


def _trains(section: Any, settings: Any) -> bool:
    return is_neural(settings.model.name)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of an experiment, which determine the result.

    Attributes:
        model: The body of a network, or the estimator of a count-based model.
        output: The output layer, or None for a count-based model.
        optimizer: The update rule, or None for a count-based model.
        train: The training settings of a network.
    """

    name: Name = key('default', 'name of the run, used for its folder and its row in tables')
    seed: CountOrZero = key(1, 'random seed for parameter initialization, data order, dropout and sampled words')
    corpus: CorpusSettings = CorpusSettings()
    model: Any = chosen('model.family')
    output: Any = chosen('output.kind', _trains)
    optimizer: Any = chosen('optimizer.name', _trains)
    train: TrainSettings = dataclasses.field(default=TrainSettings(), metadata={NEEDS: _trains})
    eval: EvalSettings = EvalSettings()
    parallel: ParallelSettings = ParallelSettings()
    paper: PaperRow = PaperRow()

    @property
    def is_neural(self) -> bool:
        """Whether the model is a network."""
        return is_neural(self.model.name)


def settle(
    values: Mapping[str, Any], changes: Mapping[str, Any], given: Collection[str] | None = None, renew: bool = False
) -> Settings:
    """Applies changes to the values of a config and builds the settings.

    If the model or the output layer is replaced, a key such as the number of features keeps its value, provided that
    both components have the key with the same default. A new optimizer starts from its own defaults, because learning
    rates and decays do not transfer. If a tokenizer or a schedule is replaced, all keys of its section are kept,
    because another component shares the section.

    Args:
        values: The values of the config by flattened key.
        changes: The changed values by flattened key.
        given: The keys that the user changed; by default, the keys of `changes`. Each of them must be a key of the run.
            Other keys that are not keys of the run are dropped if `given` is passed or a component is replaced.
            Otherwise, they are errors.
        renew: Whether to reset all keys of the changed components to their defaults, even if the name is the same.

    Raises:
        BadInput: A value has the wrong type or is out of range, or a key is not a key of the run.
    """
    required = changes.keys() if given is None else given
    named = [kind for kind in CHOOSERS if kind in changes]
    former = {CORPUS: '', **{kind: KINDS[kind].default for kind in KINDS}, **values}
    replaced = [kind for kind in named if check_value(changes[kind], str, kind) != former[kind] or renew]
    dropped: tuple[str, ...] = ()
    if values and replaced:
        settle({}, values)  # raises BadInput for unknown keys, which would otherwise be dropped
        dropped = tuple(name for kind in replaced for name in _dropped(kind, former[kind], changes[kind], renew))
    kept = {name: value for name, value in values.items() if not f'{name}.'.startswith(dropped)}
    remaining = {**kept, **changes}
    settings, drops = build(Settings, remaining), bool(replaced) or given is not None
    if left := [name for name in remaining if name in required or not drops]:
        raise unknown_key(left[0], settings, remaining[left[0]])
    return settings


def _dropped(kind: str, former: str, name: str, renew: bool) -> list[str]:
    """Returns the keys to reset when component `name` replaces `former`. A dot is appended to each key."""
    if kind in _SHARING:
        return []
    if kind == CORPUS:
        return ['corpus.options.', 'paper.']
    defaults, own, section = _defaults(kind, former), _defaults(kind, name), kind.partition('.')[0]
    all_go = renew or kind == 'optimizer.name'
    return [f'{section}.{key}.' for key, x in defaults.items() if all_go or own.get(key, ...) != x]


def _defaults(kind: str, name: str) -> dict[str, Any]:
    """Returns the default values of a component's keys, by field name."""
    fields = key_fields(component_class(kind, name))
    return {field.name: field.metadata.get(DEFAULT, field.default) for field in fields if KIND not in field.metadata}


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks the types and ranges of a config and builds its components.

    Args:
        config: A ConfigDict, or a nested or flattened dictionary. Missing keys take their defaults. The config is
            trusted, so its plug-ins are imported. Use `from_record` for untrusted configs.

    Returns:
        The settings. This function does not check that the components are compatible;
        `runs.experiment.load_settings` does.

    Raises:
        BadInput: A value has the wrong type or is out of range, or a key is not a key of the run.
    """
    flat = flatten(config)
    with trusting(flat):
        return settle({}, flat)


def from_record(record: Mapping[str, Any]) -> Settings:
    """Builds the settings from the content of a run's config.json.

    A plug-in is imported only if the user named its module. Any other plug-in becomes an `Unknown` object; see
    `require_imported`.

    Raises:
        BadInput: The format version or the digest is wrong, a key is missing or unknown, or a value is out of range.
    """
    flat = records.read_values(record)
    settings = settle({}, flat)
    if missing := min(to_flat(settings).keys() - flat.keys(), default=''):
        raise BadInput(missing, 'is missing')
    return settings


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns a copy of the settings with some values replaced, as in `replace(settings, {'model.h': 50})`.

    Plug-ins named in `changes` are trusted and imported; see `from_config`. For replaced components, see `settle`.
    """
    with trusting_settings(settings), trusting(changes):
        return settle(to_flat(settings), changes)


def override(config: ConfigDict | Mapping[str, Any], changes: Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of a config with some keys changed.

    Args:
        config: The config, such as a preset, or its values by flattened key.
        changes: The new values by flattened key, such as {'model.family': 'lstm', 'model.h': 300}. For replaced
            components, see `settle`.

    Raises:
        BadInput: A value has the wrong type or is out of range, or a key is not a key of the run.
    """
    values, changes = flatten(config), flatten(changes)
    with trusting(values), trusting(changes):
        return to_config(settle(values, changes))


def default_config() -> ConfigDict:
    """Returns the default config, locked against new keys. The files in `configs/` modify it."""
    return to_config(from_config({}))


def to_flat(settings: Settings) -> dict[str, Any]:
    """Returns the value of each key of a run as a flat dictionary, such as {'model.h': 50}."""
    return {key.name: key.value for key in list_keys(settings)}


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the settings as a nested, JSON-serializable dictionary, from which `from_config` rebuilds them."""
    nested: dict[str, Any] = {}
    for name, value in to_flat(settings).items():
        *sections, last = name.split('.')
        section = nested
        for inner in sections:
            section = section.setdefault(inner, {})
        section[last] = value
    return nested


def to_config(settings: Settings) -> ConfigDict:
    """Returns the config of a run, locked against new keys."""
    return ConfigDict(to_dict(settings)).lock()


def components(settings: Settings) -> dict[str, Any]:
    """Returns the components of a run, by the config key that chooses each of them, such as `model.family`."""
    found = dict(list_components(settings))
    return {kind: found[kind] for kind in KINDS if kind in found}


def plugins_of(settings: Settings, kinds: Collection[str] = CHOOSERS) -> dict[str, str]:
    """Returns the import paths of those plug-ins of a run that the keys in `kinds` choose, by key."""
    names = {CORPUS: settings.corpus.name, **{kind: x.name for kind, x in components(settings).items()}}
    return {kind: name for kind, name in names.items() if kind in kinds and is_path(name)}


def plugin_modules(settings: Settings, kinds: Collection[str] = CHOOSERS) -> list[str]:
    """Returns the module names of those plug-ins of a run that the keys in `kinds` choose."""
    return list(dict.fromkeys(map(module_of, plugins_of(settings, kinds).values())))


def trusting(flat: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Allows the import of the plug-ins named in `flat`, config values from the user, within a `with` block."""
    paths = (flat[kind] for kind in CHOOSERS if isinstance(flat.get(kind), str) and is_path(flat[kind]))
    return trust(filter(is_module, map(module_of, paths)))  # `plugins.load` rejects the others


def trusting_settings(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Allows, within a `with` block, the import of the plug-ins that were imported when `settings` was built."""
    found = components(settings)
    is_known = {kind: not isinstance(component, Unknown) for kind, component in found.items()}
    is_known[CORPUS] = settings.corpus.options.function is not None
    return trusting({kind: path for kind, path in plugins_of(settings).items() if is_known[kind]})


def require_imported(settings: Settings) -> None:
    """Raises BadInput if a plug-in of a trained model was not imported; the message explains how to allow it."""
    for kind in LOADED_PLUGINS:
        if isinstance(component := components(settings).get(kind), Unknown):
            plugins.load(kind, component.name)


def user_files(settings: Settings) -> dict[str, str]:
    """Returns the paths of the user's files that the output layer needs, by config key (`file_unless` of `key`)."""
    layer, found = settings.output, {}
    for field in key_fields(type(layer)) if layer is not None and not isinstance(layer, Unknown) else ():
        names_none, path = metadata_of(type(layer), field.name, FILE), getattr(layer, field.name)
        if names_none is not None and path not in names_none:
            found[f'output.{field.name}'] = path
    return found
