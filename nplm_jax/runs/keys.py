"""Finds the config keys that a run reads, by its family, output layer, optimizer and tokens, and refuses others."""

from collections.abc import Collection, Mapping
from typing import Any

from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.config import FIELDS, ModelSettings, Settings
from nplm_jax.data.tokenizers.registry import OF_TOKENIZERS, tokenizer_class
from nplm_jax.models.ngram.factory import NGRAM_MODELS
from nplm_jax.models.registry import body_class, check_family, is_network
from nplm_jax.outputs.registry import output_layer_class
from nplm_jax.training import optimizers
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.plugins import is_path

CHOICES = ('model.family', 'output.kind', 'optimizer.name', 'corpus.tokens')
_OF_FAMILIES = ('model', 'recurrent', 'mogrifier', 'residual', 'ngram')  # sections whose keys the family reads
_OF_NETWORKS = ('output', 'optimizer', 'train')  # sections that only networks read
_OF_SOFTMAX = {
    'train.suffix_smoothing',
    'train.calibrate',
}  # keys that only output layers with a softmax over all words read


def family_keys(model: ModelSettings) -> frozenset[str]:
    """Returns the keys that the family reads; none of an unknown one."""
    if not is_network(model):
        return NGRAM_MODELS[model.family].keys if model.family in NGRAM_MODELS else frozenset()
    return frozenset(body_class(model).keys)


def readers(settings: Settings) -> dict[str, frozenset[str]]:
    """Returns the keys that the chosen family, output layer, optimizer and tokenizer read, by the key that chooses.

    Raises:
        BadInput: A family, an output layer or a tokenizer is unknown.
    """
    check_family(settings.model, NGRAM_MODELS)
    output = output_layer_class(settings.output)
    of_tokens = {'corpus.tokens': frozenset(tokenizer_class(settings.corpus.tokens).keys)}
    if not is_network(settings.model):
        return {'model.family': family_keys(settings.model), **of_tokens}
    return {
        'model.family': family_keys(settings.model) | {'model.unigram_bias'},
        'output.kind': frozenset(output.keys) | (_OF_SOFTMAX if output.takes_new_words else set()),
        'optimizer.name': frozenset(f'optimizer.{key}' for key in optimizers.rule_of(settings.optimizer).keys),
        **of_tokens,
    }


def find_unread(settings: Settings) -> dict[str, str]:
    """Returns the keys that nothing reads and that differ from their defaults, each with the key that chooses."""
    read, values = readers(settings), config_lib.to_flat(settings)
    unread = {}
    for key, field in FIELDS.items():
        choice = find_choice(key, 'output.kind' in read)
        if choice not in ('', key) and key not in read[choice] and values[key] != field.default:
            unread[key] = choice
    return unread


def find_choice(key: str, is_network: bool = True) -> str:
    """Returns the key whose value decides whether a run reads `key`; '' if every run does."""
    section = key.partition('.')[0]
    if section in _OF_FAMILIES or key == 'train.bptt_length' or (section in _OF_NETWORKS and not is_network):
        return 'model.family'
    if section == 'output' or key in _OF_SOFTMAX:
        return 'output.kind'
    if key in OF_TOKENIZERS:
        return 'corpus.tokens'
    return 'optimizer.name' if section == 'optimizer' else ''


def check(settings: Settings) -> None:
    """Raises BadInput for a family or an output layer that does not exist, or for keys that the run does not read."""
    if not (unread := find_unread(settings)):
        return
    values, choice = config_lib.to_flat(settings), next(iter(unread.values()))
    keys = ', '.join(f'{key}={values[key]!r}' for key in unread if unread[key] == choice)
    options = () if choice == 'corpus.tokens' else (f'{choice.partition(".")[0]}.options.',)  # of a plug-in
    read = [key for key in values if key in readers(settings)[choice] or key.startswith(options)]
    raise BadInput(f'{keys}: not read by {choice}={values[choice]}, which reads {", ".join(read)}')


def resets(config: ConfigDict | Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns the defaults of the keys that a newly chosen family, output layer, optimizer or tokenizer does not read.

    An optimizer named by import path without a learning rate also gets the rates of `optimizers.PLUGIN_RATES`.

    Args:
        config: A config file's row in which the user changed some keys. Keys of the row that nothing reads any more are
            reset.
        given: The keys that the user changed, which stay as they are. Without a new choice among them, none is reset.
    """
    if not set(given) & set(CHOICES):
        return {}
    settings = config_lib.from_config(config)
    changes = {key: FIELDS[key].default for key in find_unread(settings).keys() - set(given)}
    if 'optimizer.name' in given and is_path(settings.optimizer.name) and 'optimizer.learning_rate' not in given:
        changes |= {key: rate for key, rate in optimizers.PLUGIN_RATES.items() if key not in given}
    return changes


def override(config: ConfigDict, changes: Mapping[str, Any]) -> ConfigDict:
    """Returns a copy of a config with some flattened keys changed, as `--config.KEY=VALUE` flags change it.

    Args:
        config: The config, such as that of a row.
        changes: The values: `{'model.family': 'lstm', 'model.h': 300}`. See `resets`.
    """
    changed = config.copy_and_resolve_references()
    changed.update_from_flattened_dict(changes)
    changed.update_from_flattened_dict(resets(changed, changes))
    return changed
