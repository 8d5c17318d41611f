"""Configs from words: a preset, then components, each of which replaces its section by its defaults.

`mlp9,lstm,nce,adam` is the preset `mlp9` with an LSTM, noise-contrastive estimation and Adam. A word is the name of a
component in `registry.PARTS`, or the import path of a plug-in.
"""

import contextlib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import parts, plugins
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.plugins import is_path
from nplm_jax.config.registry import PARTS, rates_of
from nplm_jax.config.settings import FIELDS, OPTION_SECTIONS
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.names import did_you_mean

_SECTIONS = {  # whose keys a component replaces; those of a tokenizer that another one reads too stay
    'model.family': ('model.',),
    'output.kind': ('output.',),
    'optimizer.name': ('optimizer.',),
}
_SCHEDULE = 'optimizer.schedule', 'optimizer.cooldown'  # of another component than the optimizer


def chooser_of(word: str) -> str:
    """Returns the key that names a component, such as `model.family` for `lstm`; '' if there is no such component.

    Raises:
        BadInput: The word is an import path, and the plug-in cannot be imported or is of no kind.
    """
    if not is_path(word):
        return next((key for key, kind in PARTS.items() if word in kind.paths), '')
    found = plugins.load('--config', word)
    if isinstance(found, type):
        kinds = (key for key in PARTS if key not in plugins.FUNCTIONS and issubclass(found, parts.base_class(key)))
        if key := next(kinds, ''):
            return key
        bases = ', '.join(parts.base_class(key).__name__ for key in PARTS if key not in plugins.FUNCTIONS)
        raise BadInput('--config', f'must be a subclass of {bases}, or a function', value=word)
    if not callable(found):
        raise BadInput('--config', 'must be a class or a function', value=word)
    takes_rate = 'learning_rate' in inspect.signature(found).parameters
    return 'optimizer.name' if takes_rate else 'corpus.name'


def chosen(config: ConfigDict, words: str) -> dict[str, str]:
    """Returns the components of a config that its words name, by the keys that name them.

    Args:
        config: The config.
        words: What follows the colon of --config.
    """
    values = flatten(config)
    with _trusting(words.split(',')):
        named = {chooser_of(word): word for word in filter(None, words.split(','))}
    return {key: word for key, word in named.items() if values.get(key) == word}


def _trusting(words: Iterable[str]) -> contextlib.AbstractContextManager[None]:
    """Lets a block import the plug-ins among the words, which the user gave."""
    return plugins.trust(plugins.module_of(word) for word in words if is_path(word))


def with_components(config: ConfigDict, words: Sequence[str], where: str, presets: Sequence[str] = ()) -> ConfigDict:
    """Returns a config with some components in place of those of the same kind.

    Args:
        config: The config of a preset.
        words: The components.
        where: What names the words in messages, such as `configs/brown.py:mlp9,lstm`.
        presets: Other words that are allowed, for messages.

    Raises:
        BadInput: A word names no component, two components are of one kind, or one has no place beside the others.
    """
    with _trusting(words):
        made: dict[str, str] = {}
        for word in words:
            if not (key := chooser_of(word)):
                components = [name for kind in PARTS.values() for name in kind.paths]
                near = did_you_mean(word, [*presets, *components])
                allowed = f'presets are {", ".join(presets)}; components are {", ".join(components)}'
                raise BadInput(where, f'no preset or component is called {word}; {allowed}{near}')
            if key in made:
                raise BadInput(where, f'{made[key]} and {word} are both a {key}; give one')
            made[key] = word
        changes: dict[str, Any] = {}
        for key, word in made.items():
            changes |= {**_defaults(key), **rates_of(key, word)}
        sections = [OPTION_SECTIONS[key] for key in made]
        values = {name: x for name, x in flatten(config).items() if name.rpartition('.')[0] not in sections}
        config = parts.override(values, changes | made)  # at once: the order of the words does not matter
    of_run = flatten(config)
    for key in made.keys() & PARTS.keys() - of_run.keys():  # a default, which `override` does not refuse
        choice = 'optimizer.name' if key == 'optimizer.schedule' and 'optimizer.name' in of_run else 'model.family'
        raise BadInput(key, f'not read by {choice}={of_run[choice]}', value=made[key])
    return config


def _defaults(key: str) -> dict[str, Any]:
    """Returns the keys of the section that a component replaces, with their defaults."""
    replaced = (name for name in FIELDS if name.startswith(_SECTIONS.get(key, ())) and name not in (key, *_SCHEDULE))
    return {name: FIELDS[name].default for name in replaced}
