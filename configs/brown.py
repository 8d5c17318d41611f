"""The Brown corpus, the paper's smaller corpus (section 4), with 1,183,224 words (1,181,041 in the paper).

    nplm train brown                     the paper's network, trained in about five minutes
    nplm sweep brown                     16 networks with different n, m and h, with and without direct connections
    nplm train brown:quick               a small network with the paper's architecture, trained in about a minute
    nplm train brown:quick --search=40   40 trials around this small network
    nplm train brown:large               the paper's network, trained with the exact loss in half an hour
    nplm train brown:mlp9                a network of the paper's Table 1: mlp1, mlp3, mlp5, mlp7, mlp9
    nplm train brown:kneser_ney_5        a count-based model: interpolated, kneser_ney_3 to _5, modified_kneser_ney_3 to
                                         _5, classes_150 to _2000, classes_500_4, classes_500_5
    nplm train brown:lstm                a recurrent network: rnn, gru, lstm
    nplm train brown:residual            a window network with residual layers, trained in about ten minutes
    nplm train brown:one_minute          a Mogrifier LSTM with attention, in increasing size: one_minute, five_minutes,
                                         twenty_minutes, one_hour
    nplm train brown:mlp9,cased          mlp9 on words in upper and lower case
    nplm train brown:mlp9,paper          mlp9 with the paper's recipe and a batch size of 1
    nplm train brown:mlp9,lstm,nce,adam  mlp9 with other components, each with its default values
    nplm train brown:mlp9 --config.model.h=50 --config.seed=2

The expected results and training times are in experiments/paper/table1/README.md. For recurrent networks, see
experiments/beyond/recurrent/README.md.
"""

from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.configs import presets
from nplm_jax.configs.presets import MINUTES, network
from nplm_jax.utils.errors import BadInput

__all__ = ['get_config', 'network', 'search', 'sweep']
VOCABULARY = 16_383  # the paper's |V|
_CORPUS: presets.Preset = {
    'corpus.name': 'brown',
    'corpus.min_count': 4,
    'corpus.max_vocabulary': VOCABULARY,
    'corpus.train': 800_000.0,
    'corpus.valid': 200_000.0,
}


def _network(n: int, h: int, m: int, direct: bool) -> presets.Preset:
    """Returns a network of the paper's Table 1."""
    return {
        'model.n': n,
        'model.h': h,
        'model.m': m,
        'model.direct': direct,
        'model.dropout': 0.25 if direct else 0.1,
        'optimizer.learning_rate': 1.5 if direct else 2.0,
        'train.epochs': 6,
    }


# Table 1 of the paper: n, h, m, direct connections.
NETWORKS = {
    'mlp1': _network(5, 50, 60, True),
    'mlp3': _network(5, 0, 60, True),
    'mlp5': _network(5, 50, 30, True),
    'mlp7': _network(3, 50, 30, True),
    'mlp9': _network(5, 100, 30, False),
}
MIXTURES = {f'mlp{int(name[3:]) + 1}': name for name in NETWORKS}  # the paper's mixtures and their networks
# The paper's training (0: not printed), validation and test perplexities.
PAPER = {
    'mlp1': (182.0, 284.0, 268.0),
    'mlp3': (201.0, 327.0, 310.0),
    'mlp5': (209.0, 296.0, 279.0),
    'mlp7': (210.0, 309.0, 293.0),
    'mlp9': (175.0, 280.0, 276.0),
    'interpolated': (31.0, 352.0, 336.0),
    'kneser_ney_3': (0.0, 334.0, 323.0),
    'kneser_ney_4': (0.0, 332.0, 321.0),
    'kneser_ney_5': (0.0, 332.0, 321.0),
    'classes_150': (0.0, 348.0, 334.0),
    'classes_200': (0.0, 354.0, 340.0),
    'classes_500': (0.0, 326.0, 312.0),
    'classes_1000': (0.0, 335.0, 319.0),
    'classes_2000': (0.0, 343.0, 326.0),
    'classes_500_4': (0.0, 327.0, 312.0),
    'classes_500_5': (0.0, 327.0, 312.0),
}


def _classes(n: int, classes: int) -> presets.Preset:
    return {'model.family': 'classes', 'model.n': n, 'model.classes': classes}


_CLASSES = {
    **{f'classes_{classes}': _classes(3, classes) for classes in (150, 200, 500, 1000, 2000)},
    **{f'classes_500_{n}': _classes(n, 500) for n in (4, 5)},
}


def _describe_network(preset: str, keys: presets.Preset) -> str:
    direct = 'direct' if keys['model.direct'] else 'no direct'
    return f'{preset.upper()}: n={keys["model.n"]} h={keys["model.h"]} m={keys["model.m"]}, {direct}'


_NAMES = {
    **{preset: _describe_network(preset, keys) for preset, keys in NETWORKS.items()},
    **dict.fromkeys(_CLASSES, 'class-based back-off'),
}
# The rows of the paper's table, and three rows for modified Kneser-Ney.
TABLE1 = presets.with_paper({**NETWORKS, **presets.NGRAMS, **_CLASSES}, _NAMES, PAPER)


def _recurrent(family: str, m: int, h: int, epochs: int, learning_rate: float) -> presets.Preset:
    return {
        'model.family': family,
        'model.m': m,
        'model.h': h,
        'model.dropout': 0.3,
        'optimizer.learning_rate': learning_rate,
        'optimizer.clip_norm': 0.25,
        'optimizer.decay': 3e-6,
        'train.epochs': epochs,
        **presets.RECURRENT,
    }


# Networks that are not in the paper.
RECURRENT = {
    'rnn': _recurrent('rnn', 100, 200, 6, 5.0),
    'gru': _recurrent('gru', 100, 200, 6, 20.0),
    'lstm': _recurrent('lstm', 128, 256, 10, 20.0),
}
# The paper's network, trained in about five minutes on 2 cores without AMX instructions. Dropout, the optimizer, the
# sampled loss and the steps after training do not come from the paper, but weight decay does. Without weight decay, C
# and U overfit, because there is no weight tying.
_BEST: presets.Preset = {
    'model.n': 13,
    'model.m': 80,
    'model.h': 200,
    'model.dropout': 0.05,
    'output.kind': 'sampled',
    'optimizer.name': 'rowwise_adam',
    'optimizer.learning_rate': 0.003,
    'optimizer.table_rate': 1.0,
    'optimizer.decay': 0.34,
    'optimizer.row_adaptivity': 0.5,
    'train.batch_size': 512,
    'train.epochs': 5,
    'train.affixes': True,
    'train.calibrate': True,
    'train.valid_words': presets.VALID_WORDS,
    'train.checkpoint_every': 2000,
    'train.log_every': 100,
}
# A small network with the paper's architecture. Its validation perplexity is below 300; the trigram's is 344.
_QUICK: presets.Preset = {
    'model.n': 5,
    'model.m': 50,
    'model.h': 50,
    'model.dropout': 0.1,
    'output.samples': 500,
    'train.batch_size': 256,
    'train.epochs': 3,
    'train.evaluate_every': 5000,  # training takes 9,375 updates; a validation takes a fifth of an epoch's time
    'train.log_every': 100,
    'train.checkpoint_every': 5000,
    **presets.NCE,
}
# The empty preset is the default; `large` is the network of configs/default.py.
_ALL = {**TABLE1, **RECURRENT, '': _BEST, 'quick': _QUICK, 'large': {}, 'residual': presets.RESIDUAL, **MINUTES}
_MODIFIERS: dict[str, presets.Preset] = {
    'cased': {
        'corpus.lowercase': False,
        'corpus.split_possessive': False,
        'corpus.boundary_tokens': False,
        'corpus.max_vocabulary': 0,
    },
    'paper': {**presets.PAPER_RECIPE, 'train.epochs': 20},
}


def get_config(preset: str = '') -> ConfigDict:
    """Returns the config of a preset; the default is the paper's network, tuned for a few minutes of training.

    `,cased` keeps upper and lower case, and `,paper` uses the paper's recipe.
    """
    name = preset.partition(',')[0]
    if mixed := MIXTURES.get(name):
        raise BadInput(
            f'configs/brown.py:{preset}',
            f"{name.upper()} is the paper's {mixed.upper()} mixed with the trigram, with equal "
            f'weights; run {mixed}, whose table lists it as "mixed with the trigram, fixed"',
        )
    return presets.get_config('brown', preset, _CORPUS, _ALL, _MODIFIERS)


def sweep() -> Iterator[dict[str, Any]]:
    """Yields 16 points around the paper's networks, with different values of m, h, n and direct connections."""
    for n in (3, 5):
        for m in (30, 60):
            for h in (50, 100):
                for direct in (False, True):
                    yield {'model.n': n, 'model.m': m, 'model.h': h, 'model.direct': direct}


def search(trial: Any) -> dict[str, Any]:
    """Suggests the sizes, dropout rate, learning rate and weight decay of a window network for an Optuna trial."""
    return {
        'train.evaluate_every': 0,  # once per epoch; trials may be pruned at each validation
        'model.m': trial.suggest_int('model.m', 20, 100, log=True),
        'model.h': trial.suggest_int('model.h', 20, 200, log=True),
        'model.direct': trial.suggest_categorical('model.direct', [False, True]),
        'model.dropout': trial.suggest_float('model.dropout', 0.0, 0.5),
        'optimizer.learning_rate': trial.suggest_float('optimizer.learning_rate', 0.1, 10.0, log=True),
        'optimizer.decay': trial.suggest_float('optimizer.decay', 1e-6, 1e-3, log=True),
    }
