"""The settings of a run: its sections and its components, built from a config whose keys are exactly theirs.

The defaults are the network of the paper's kind that is best on Brown after about ten minutes on 2 CPU cores.
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
_SHARING = 'corpus.tokens', 'optimizer.schedule'  # kinds with keys in the section of another component
LOADED_PLUGINS = ('model.family', 'output.kind', 'corpus.tokens')  # keys of the plug-ins that a trained model needs


def _trains(section: Any, settings: Any) -> bool:
    return is_neural(settings.model.name)


@dataclasses.dataclass(frozen=True)
class Settings:
    """One experiment: everything that its result depends on.

    Attributes:
        model: The body of a network, or the estimator of a count-based model.
        output: The output layer; None for a count-based model.
        optimizer: The update rule; None for a count-based model.
        train: How a network is trained.
    """

    name: Name = key('default', 'name of the run, of its folder and of its row in a table')
    seed: CountOrZero = key(
        1, 'random seed of the initial parameters, the order of the words, dropout and sampled words'
    )
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
    """Returns the settings of a config with some values changed.

    A model or an output layer in place of another keeps the values of the keys that both have with the same default,
    such as the number of features. An optimizer has its own defaults: the rate and the decay of one are wrong for
    another. A tokenizer and a schedule, whose keys are in the section of another component, keep all keys of both.

    Args:
        values: The values of the config by flattened key.
        changes: The values that change by flattened key.
        given: The keys that the user changed, each of which the run must have; None for those of `changes`. Other keys
            that the run does not have are dropped.
        renew: Whether all keys of a new component have their defaults, also where it takes its own place.

    Raises:
        BadInput: A value has a wrong type or is impossible, or the run has no such key.
    """
    required = changes.keys() if given is None else given
    named = [kind for kind in CHOOSERS if kind in changes]
    former = {CORPUS: '', **{kind: KINDS[kind].default for kind in KINDS}, **values}
    replaced = [kind for kind in named if check_value(changes[kind], str, kind) != former[kind] or renew]
    dropped: tuple[str, ...] = ()
    if values and replaced:
        settle({}, values)  # raises BadInput for a key that the former run does not have: it would be dropped
        dropped = tuple(name for kind in replaced for name in _dropped(kind, former[kind], changes[kind], renew))
    kept = {name: value for name, value in values.items() if not f'{name}.'.startswith(dropped)}
    remaining = {**kept, **changes}
    settings, drops = build(Settings, remaining), bool(replaced) or given is not None
    if left := [name for name in remaining if name in required or not drops]:
        raise unknown_key(left[0], settings, remaining[left[0]])
    return settings


def _dropped(kind: str, former: str, name: str, renew: bool) -> list[str]:
    """Returns the keys that a component does not keep of the former one of its kind, each with a dot at its end."""
    if kind in _SHARING:
        return []
    if kind == CORPUS:
        return ['corpus.options.']
    defaults, own, section = _defaults(kind, former), _defaults(kind, name), kind.partition('.')[0]
    all_go = renew or kind == 'optimizer.name'
    return [f'{section}.{key}.' for key, x in defaults.items() if all_go or own.get(key, ...) != x]


def _defaults(kind: str, name: str) -> dict[str, Any]:
    """Returns the default of each key of a component by the name of its field."""
    fields = key_fields(component_class(kind, name))
    return {field.name: field.metadata.get(DEFAULT, field.default) for field in fields if KIND not in field.metadata}


def from_config(config: ConfigDict | Mapping[str, Any]) -> Settings:
    """Checks types and ranges of a config, and builds its components.

    Args:
        config: A ConfigDict, or a nested or flattened dictionary; a key that it lacks has its default. It is the
            user's: the modules of its plug-ins count as named, and are imported. `from_record` reads those of others.

    Returns:
        The settings. `runs.experiment.load_settings` also checks that the components fit together.

    Raises:
        BadInput: A value has a wrong type or is impossible, or the run has no such key.
    """
    flat = flatten(config)
    with trusting(flat):
        return settle({}, flat)


def from_record(record: Mapping[str, Any]) -> Settings:
    """Returns the settings that a config.json holds.

    Imports no plug-in whose module the user did not name: it is `Unknown`, see `require_imported`.

    Raises:
        BadInput: The folder has another format, its digest is wrong, or a key is missing, is not one of the run, or has
            an impossible value.
    """
    flat = records.read_values(record)
    settings = settle({}, flat)
    if missing := min(to_flat(settings).keys() - flat.keys(), default=''):
        raise BadInput(missing, 'missing')
    return settings


def replace(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Returns settings with other values of some flattened keys: `replace(settings, {'model.h': 50})`; see `settle`.

    The changes are the user's: see `from_config`.
    """
    with trusting_settings(settings), trusting(changes):
        return settle(to_flat(settings), changes)


def override(config: ConfigDict | Mapping[str, Any], changes: Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of a config with some keys changed: `override(config, {'model.family': 'lstm', 'model.h': 300})`.

    Args:
        config: The config, such as that of a preset, or its values by flattened key.
        changes: The values by flattened key. For a component in place of another see `settle`.

    Raises:
        BadInput: A value has a wrong type or is impossible, or the run has no such key.
    """
    values, changes = flatten(config), flatten(changes)
    with trusting(values), trusting(changes):
        return to_config(settle(values, changes))


def default_config() -> ConfigDict:
    """Returns the config of all defaults, locked against other keys; the files in `configs/` change its values."""
    return to_config(from_config({}))


def to_flat(settings: Settings) -> dict[str, Any]:
    """Returns the value of each key of a run by flattened key: {'model.h': 50}."""
    return {key.name: key.value for key in list_keys(settings)}


def to_dict(settings: Settings) -> dict[str, Any]:
    """Returns the nested dictionary that `from_config` reads, of values that JSON and a ConfigDict can hold."""
    nested: dict[str, Any] = {}
    for name, value in to_flat(settings).items():
        *sections, last = name.split('.')
        section = nested
        for inner in sections:
            section = section.setdefault(inner, {})
        section[last] = value
    return nested


def to_config(settings: Settings) -> ConfigDict:
    """Returns the config of a run: exactly its keys, locked against others."""
    return ConfigDict(to_dict(settings)).lock()


def components(settings: Settings) -> dict[str, Any]:
    """Returns the components of a run by the keys that name them."""
    found = dict(list_components(settings))
    return {kind: found[kind] for kind in KINDS if kind in found}


def plugins_of(settings: Settings, kinds: Collection[str] = CHOOSERS) -> dict[str, str]:
    """Returns the import path of each plug-in of a run by the key that names it, for some of these keys."""
    names = {CORPUS: settings.corpus.name, **{kind: x.name for kind, x in components(settings).items()}}
    return {kind: name for kind, name in names.items() if kind in kinds and is_path(name)}


def plugin_modules(settings: Settings, kinds: Collection[str] = CHOOSERS) -> list[str]:
    """Returns the modules of the plug-ins of a run, for some of the keys that name them."""
    return list(dict.fromkeys(map(module_of, plugins_of(settings, kinds).values())))


def trusting(flat: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the modules of the plug-ins among the user's values, by flattened key."""
    paths = (flat[kind] for kind in CHOOSERS if isinstance(flat.get(kind), str) and is_path(flat[kind]))
    return trust(filter(is_module, map(module_of, paths)))  # `plugins.load` refuses the others


def trusting_settings(settings: Settings) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the modules of those plug-ins of a run that were imported."""
    found = components(settings)
    is_known = {kind: not isinstance(component, Unknown) for kind, component in found.items()}
    is_known[CORPUS] = settings.corpus.options.function is not None
    return trusting({kind: path for kind, path in plugins_of(settings).items() if is_known[kind]})


def require_imported(settings: Settings) -> None:
    """Raises BadInput, which says how to name its module, for a plug-in of a trained model that was not imported."""
    for kind in LOADED_PLUGINS:
        if isinstance(component := components(settings).get(kind), Unknown):
            plugins.load(kind, component.name)


def user_files(settings: Settings) -> dict[str, str]:
    """Returns the user's files that a model is made from, by config key; see `component.key`."""
    layer, found = settings.output, {}
    for field in key_fields(type(layer)) if layer is not None and not isinstance(layer, Unknown) else ():
        names_none, path = metadata_of(type(layer), field.name, FILE), getattr(layer, field.name)
        if names_none is not None and path not in names_none:
            found[f'output.{field.name}'] = path
    return found
