"""Composes configs from a preset and components. Each component resets its section to the component's defaults.

`mlp9,lstm,nce,adam` is the preset `mlp9` with an LSTM, noise-contrastive estimation and Adam. A component is a name in
`registry.KINDS` or the import path of a plug-in.
"""

import inspect
from collections.abc import Sequence

from ml_collections import ConfigDict

from nplm_jax.config import plugins
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.plugins import is_path
from nplm_jax.config.registry import KINDS, base_class
from nplm_jax.config.settings import CHOOSERS, CORPUS, settle, to_config, trusting
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.names import did_you_mean


def kind_of(word: str) -> str:
    """Returns the key that chooses a component, such as `model.family` for `lstm`, or '' if there is no such component.

    Raises:
        BadInput: The word is the import path of a plug-in that cannot be imported or is not a component.
    """
    if plugins.is_file(word):
        return 'corpus.tokens'
    if not is_path(word):
        return next((key for key, kind in KINDS.items() if word in kind.paths), '')
    found = plugins.load('--config', word)
    if isinstance(found, type):
        bases = {key: base_class(key) for key, kind in KINDS.items() if not kind.takes_functions}
        if key := next((key for key, base in bases.items() if issubclass(found, base)), ''):
            return key
        allowed = f'must be a function or a subclass of one of {", ".join(base.__name__ for base in bases.values())}'
        raise BadInput('--config', allowed, value=word)
    if not callable(found):
        raise BadInput('--config', 'must be a class or a function', value=word)
    return 'optimizer.name' if 'learning_rate' in inspect.signature(found).parameters else CORPUS


def components_of(words: Sequence[str], where: str, presets: Sequence[str]) -> dict[str, str]:
    """Returns the components by the keys that choose them, such as {'model.family': 'lstm'} for the word `lstm`.

    Args:
        words: The names of the components, in any order.
        where: The key in error messages, such as `configs/brown.py:mlp9,lstm`.
        presets: The names of presets, for error messages.

    Raises:
        BadInput: A word is not a component, or two components are of the same kind.
    """
    found: dict[str, str] = {}
    paths = [plugins.check_path('--config', word) for word in words if is_path(word)]
    with plugins.trust(map(plugins.module_of, paths)):
        for word in words:
            key = kind_of(word)
            if not key and word in presets:
                raise BadInput(where, f'{word} is a preset; a preset must be the first word, before all components')
            if not key:
                names = [name for kind in KINDS.values() for name in kind.paths]
                allowed = f'The presets are {", ".join(presets)}; the components are {", ".join(names)}'
                near = did_you_mean(word, [*presets, *names]) or '.'  # before the names, whose list is long
                raise BadInput(where, f'there is no preset or component named {word}{near} {allowed}')
            if key in found:
                raise BadInput(where, f'{found[key]} and {word} both set {key}; give only one of them')
            found[key] = word
    return found


def components_among(config: ConfigDict, words: str) -> dict[str, str]:
    """Returns the components that the user named explicitly in --config, by the keys that choose them.

    Args:
        config: The config that --config selects.
        words: The text after the colon in --config, such as `mlp9,lstm`.
    """
    values, named = flatten(config), list(filter(None, words.split(',')))
    return {kind: values[kind] for kind in CHOOSERS if values.get(kind) in named}


def with_components(config: ConfigDict, components: dict[str, str]) -> ConfigDict:
    """Returns a config with some components replaced.

    Args:
        config: The config of a preset.
        components: The names of the new components, by the keys that choose them; see `components_of`.

    Raises:
        BadInput: A component cannot be combined with the others.
    """
    values = flatten(config)
    with trusting(values), trusting(components):
        return to_config(settle(values, components, renew=True))
