"""Defines the presets that several corpora share, and resolves `--config=FILE:PRESET`.

A preset is a dictionary of config values by flattened key.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from nplm_jax.config.compose import components_of, kind_of, with_components
from nplm_jax.config.plugins import is_path
from nplm_jax.config.settings import CHOOSERS, default_config, override
from nplm_jax.utils.errors import require

Preset = Mapping[str, Any]  # values by flattened key: {'model.h': 50}

# Count-based models.
NGRAMS: dict[str, Preset] = {
    'interpolated': {'model.family': 'interpolated', 'model.n': 3},
    **{
        f'{family}_{n}': {'model.family': family, 'model.n': n}
        for family in ('kneser_ney', 'modified_kneser_ney')
        for n in (3, 4, 5)
    },
}
# The names of the count-based models in the paper.
_NGRAMS_IN_PAPER = {**dict.fromkeys(NGRAMS, 'Kneser-Ney back-off'), 'interpolated': 'Del. Int.'}

# The paper's training recipe: a batch size of 1, no dropout, and b initialized with zeros.
PAPER_RECIPE: Preset = {
    'optimizer.name': 'paper',
    'model.dropout': 0.0,
    'train.unigram_bias': False,
    'train.batch_size': 1,
    'train.checkpoint_every': 100_000,
    'train.log_every': 10_000,
    'train.steps_per_execution': 1000,
}
# The best optimizer for a few epochs of training: it keeps one second moment per row of C, and uses Adam for all other
# parameters.
ROWWISE_ADAM: Preset = {
    'output.kind': 'sampled',
    'optimizer.name': 'rowwise_adam',
    'optimizer.learning_rate': 0.003,
    'optimizer.table_rate': 2.0,
    'optimizer.clip_norm': 1.0,
    'optimizer.decay': 0.0,
}
# Noise-contrastive estimation, for networks that are trained by gradient descent on a large vocabulary.
NCE: Preset = {'output.kind': 'nce', 'optimizer.learning_rate': 6.0}
# Number of validation words during training, for texts on which a full validation takes half as long as an epoch.
VALID_WORDS = 20_000
_FEW_LARGE_UPDATES: Preset = {'train.checkpoint_every': 500, 'train.log_every': 100, 'train.steps_per_execution': 20}

# The network of the paper's Table 2. The weight decay of 1e-5 and the 5 epochs come from the paper. The learning rate
# is the same as for Brown. Training without dropout has not been compared with alternatives for a text of this length.
TABLE2_NETWORK: Preset = {
    'model.n': 6,
    'model.h': 60,
    'model.m': 100,
    'model.direct': True,
    'model.dropout': 0.0,
    'optimizer.learning_rate': 1.5,
    'optimizer.decay': 1e-5,
    'train.epochs': 5,
}
# Training settings of recurrent networks, which read parallel streams of consecutive words.
RECURRENT: Preset = {'train.batch_size': 512, 'model.bptt_length': 16, **_FEW_LARGE_UPDATES}
# A window network with residual layers and weight tying, for a corpus of a million words or more. It is not in the
# paper.
RESIDUAL: Preset = {
    'model.family': 'residual',
    'model.expansion': 2,
    'model.n': 6,
    'model.m': 200,
    'model.h': 400,
    'model.tied': True,
    'model.variational': True,
    'model.dropout': 0.25,
    'output.kind': 'nce',
    'optimizer.name': 'adam',
    'optimizer.learning_rate': 0.003,
    'optimizer.clip_norm': 1.0,
    'optimizer.decay': 0.0,
    'train.batch_size': 1024,
    'model.bptt_length': 32,
    'train.epochs': 4,
    'train.affixes': True,
    'train.calibrate': True,
    **_FEW_LARGE_UPDATES,
}
# A Mogrifier LSTM. With optimizer.row_adaptivity=0.5, the rows of a table partly share their second moments. The rows
# of rare words therefore change less per update, which allows a higher learning rate.
_MOGRIFIER: Preset = {
    **ROWWISE_ADAM,
    'model.rounds': 2,
    'model.tied': True,
    'model.variational': True,
    'optimizer.row_adaptivity': 0.5,
    'optimizer.learning_rate': 0.008,
    'train.evaluate_every': 0,  # once an epoch
    'train.patience': 4,
    'train.valid_words': VALID_WORDS,
    'train.affixes': True,
    'train.calibrate': True,
    **RECURRENT,
}
_BROWN = 800_000  # training words of Brown
# The minimum numbers of training words and units for attention. Attention raises the perplexity on shorter texts.
# `--minutes` chooses narrower networks for large texts only if there is hardly time to read the text once.
_MIN_ATTENTION_WORDS, _MIN_ATTENTION_UNITS = 20_000, 96
# The dropout rates of features, outputs and words, and the weight decay, for some values of `_equivalent_passes`.
# `network` interpolates between them.
_BY_EQUIVALENT_PASSES = {
    0.5: (0.0, 0.0, 0.0, 0.13),  # one_minute of WikiText-2, whose decay is 0.05
    2.4: (0.0, 0.0, 0.0, 0.2),  # one_minute
    7.68: (0.15, 0.3, 0.0, 0.2),  # five_minutes
    52.0: (0.5, 0.6, 0.05, 0.2),  # a network of 400 units trained for 26 passes
}


def _equivalent_passes(width: int, passes: float, words: int) -> float:
    """Returns the number of passes over Brown that overfit a network of 200 units as much as this training does."""
    return passes * math.sqrt(_BROWN / words) * width / 200


def network(width: int, passes: float, words: int) -> Preset:
    """Returns a Mogrifier LSTM with the best settings for a width, a number of passes and a text size.

    The network has attention if the text has at least `_MIN_ATTENTION_WORDS` words and `width` is at least
    `_MIN_ATTENTION_UNITS`. `--minutes` uses this function.

    Args:
        width: The number of units of the LSTM, m = h.
        passes: The number of passes over the training words.
        words: The number of training words.
    """
    passes_known = np.log([*_BY_EQUIVALENT_PASSES])
    at = math.log(_equivalent_passes(width, passes, words))
    has_attention = words >= _MIN_ATTENTION_WORDS and width >= _MIN_ATTENTION_UNITS
    dropout, output_dropout, word_dropout, decay = (
        round(float(np.interp(at, passes_known, column)), 4) for column in zip(*_BY_EQUIVALENT_PASSES.values())
    )
    return {
        **_MOGRIFIER,
        'model.family': 'attentive_mogrifier' if has_attention else 'mogrifier',
        'model.m': width,
        'model.h': width,
        'model.dropout': dropout,
        'model.output_dropout': output_dropout,
        'model.word_dropout': word_dropout,
        'output.samples': 500 if width <= 256 else 1000,
        'optimizer.decay': round(decay * min(1.0, _BROWN / words), 3),  # larger texts need less decay
    }


# Networks of increasing size for a million words, named after the training times for which they were designed.
MINUTES: dict[str, Preset] = {
    'one_minute': {**network(160, 3, _BROWN), 'train.epochs': 3},
    'five_minutes': {**network(256, 6, _BROWN), 'train.epochs': 6},
    'twenty_minutes': {**network(400, 13, _BROWN), 'train.epochs': 13, 'model.memory': 512},
    'one_hour': {**network(512, 27, _BROWN), 'train.epochs': 27, 'model.memory': 512},
}


def with_paper(
    presets: Mapping[str, Preset], names: Mapping[str, str], perplexities: Mapping[str, tuple[float, float, float]]
) -> dict[str, Preset]:
    """Adds `paper.*` to presets whose perplexities are in the paper, and evaluates these presets on all words.

    Args:
        presets: The keys of each preset.
        names: The paper's names for the models of the presets, in addition to NGRAMS.
        perplexities: The paper's training (0: not printed), validation and test perplexities, by preset.
    """
    made = dict(presets)
    for name in presets.keys() & perplexities.keys():
        figures = dict(zip(('paper.train', 'paper.valid', 'paper.test'), perplexities[name]))
        made[name] = {
            **presets[name],
            'eval.train_words': 0,
            'paper.row': {**_NGRAMS_IN_PAPER, **names}[name],
            **figures,
        }
    return made


def get_config(
    corpus: str,
    words: str,
    common: Preset,
    presets: Mapping[str, Preset],
    modifiers: Mapping[str, Preset] = {},
    default: str = '',
) -> ConfigDict:
    """Returns the config of a preset for a corpus; named components replace those of the preset.

    Args:
        corpus: The name of the config file without .py, such as `brown`.
        words: An optional preset, followed by modifiers and components, separated by commas: `mlp9,cased,lstm`.
        common: The keys shared by all presets of the corpus.
        presets: The keys of each preset.
        modifiers: The keys of each modifier, which changes a preset.
        default: The preset to use if `words` does not begin with a preset.

    Returns:
        The config; its name joins the corpus and the words with hyphens.

    Raises:
        BadInput: A word is not a preset, modifier or component, or two modifiers or components have the same kind.
    """
    typed = [words] if words in presets else words.split(',')
    first = typed[0] if typed[0] in presets else default
    for kind in CHOOSERS:
        changing = [word for word in typed if kind in modifiers.get(word, {})]
        problem = f'{" and ".join(changing[:2])} both set {kind}; give only one of them'
        require(len(changing) < 2, f'configs/{corpus}.py:{words}', ..., problem)
    known = {*modifiers, *(typed[:1] if typed[0] in presets else ())}  # components that set their own values
    c = default_config()
    for keys in (common, presets[first], *(modifiers[word] for word in typed if word in modifiers)):
        c = override(c, keys)
    names = [*filter(None, presets), *modifiers]
    chosen = [word for word in typed if word not in known or (not is_path(word) and kind_of(word))]
    components = components_of(chosen, f'configs/{corpus}.py:{words}', names)
    c = with_components(c, {kind: word for kind, word in components.items() if word not in known})
    name = '-'.join(filter(None, (corpus, *(re.split('[:/]', word)[-1] for word in words.split(',')))))
    return override(c, {'name': name})
