"""Variants of a recipe, each trained for one minute and evaluated only on validation words.

    python -m experiments.runs tuning                                                 trains the missing points
    python launch.py --config=experiments/beyond/frontier/tuning.py:brown,batch_256   one point

Each point has one seed and predicts 20,000 validation words, some of which are also used to fit its calibration.
"""

from __future__ import annotations

import pathlib

from ml_collections import ConfigDict

from configs import brown, presets, wikitext2
from nplm_jax.config import settings as config_lib
from nplm_jax.utils.errors import BadInput

RESULTS = pathlib.Path(__file__).parent / 'results' / 'tuning'
# An earlier version of `one_minute`, evaluated on a sample.
_BASE: presets.Preset = {
    **presets.ROWWISE_ADAM,
    'model.m': 200,
    'model.h': 200,
    'model.dropout': 0.0,
    'model.output_dropout': 0.0,
    'output.samples': 500,
    'train.epochs': 2,
    'train.evaluate_every': 0,
    'train.valid_words': presets.VALID_WORDS,
    'eval.words': presets.VALID_WORDS,
    'eval.train_words': 1000,
}
_MOGRIFIER: presets.Preset = {'model.family': 'mogrifier', 'model.rounds': 2}
_BEST: presets.Preset = {**_MOGRIFIER, 'optimizer.decay': 0.15}
# `one_minute` before its learning rate became 0.008.
_THREE_PASSES: presets.Preset = {
    **_MOGRIFIER,
    'model.m': 160,
    'model.h': 160,
    'train.epochs': 3,
    'optimizer.decay': 0.2,
    'optimizer.row_adaptivity': 0.5,
}
# Corpus -> the keys that each point changes.
POINTS: dict[str, dict[str, presets.Preset]] = {
    'brown': {
        'base': {},
        'batch_256': {'train.batch_size': 256},
        'rate_0.005': {'optimizer.learning_rate': 0.005},
        'decay_0.1': {'optimizer.decay': 0.1},
        'dropout_0.15': {'model.dropout': 0.15, 'model.output_dropout': 0.15},
        'linear': {'optimizer.schedule': 'linear'},
        'samples_250': {'output.samples': 250},
        'narrow': {'model.m': 128, 'model.h': 256},
        'mogrifier': _MOGRIFIER,
        'qrnn': {'model.family': 'qrnn'},
        'decay_0.3': {'optimizer.decay': 0.3},
        'samples_1000': {'output.samples': 1000, 'optimizer.decay': 0.2},
        'mogrifier_decay_0.2': {**_MOGRIFIER, 'optimizer.decay': 0.2},
        'mogrifier_samples_1000': {**_MOGRIFIER, 'optimizer.decay': 0.2, 'output.samples': 1000},
        'table_rate_4': {**_BEST, 'optimizer.table_rate': 4.0},
        'table_rate_1': {**_BEST, 'optimizer.table_rate': 1.0},
        'row_adaptivity_0.5': {**_BEST, 'optimizer.row_adaptivity': 0.5},
        'row_adaptivity_0.25': {**_BEST, 'optimizer.decay': 0.2, 'optimizer.row_adaptivity': 0.25},
        'average': {'optimizer.decay': 0.1, 'train.average': 1.0, 'train.average_start': 0.9},
        'three_passes': _THREE_PASSES,
        'bptt_32': {**_THREE_PASSES, 'model.bptt_length': 32},
        'bptt_8': {**_THREE_PASSES, 'model.bptt_length': 8},
        'log_uniform': {**_THREE_PASSES, 'output.proposal': 'log_uniform'},
        'rate_0.004': {**_THREE_PASSES, 'optimizer.learning_rate': 0.004},
        'rate_0.006': {**_THREE_PASSES, 'optimizer.learning_rate': 0.006},
        'rate_0.008': {**_THREE_PASSES, 'optimizer.learning_rate': 0.008},
        'rate_0.012': {**_THREE_PASSES, 'optimizer.learning_rate': 0.012},
        'rate_0.008_decay_0.1': {**_THREE_PASSES, 'optimizer.learning_rate': 0.008, 'optimizer.decay': 0.1},
        'rate_0.008_table_rate_1': {**_THREE_PASSES, 'optimizer.learning_rate': 0.008, 'optimizer.table_rate': 1.0},
        'rate_0.006_warmup_100': {**_THREE_PASSES, 'optimizer.learning_rate': 0.006, 'optimizer.warmup': 100},
    },
    'wikitext2': {
        'base': {'train.epochs': 1},
        'decay_0.1': {'train.epochs': 1, 'optimizer.decay': 0.1},
        'mogrifier': {'train.epochs': 1, **_MOGRIFIER},
    },
}


def get_config(row: str = 'brown,base') -> ConfigDict:
    """Returns the config of a point, CORPUS,NAME. Raises BadInput if it does not exist."""
    corpus, _, name = row.partition(',')
    if name not in POINTS.get(corpus, {}):
        known = ', '.join(f'{corpus},{name}' for corpus, points in POINTS.items() for name in points)
        raise BadInput(f'experiments/beyond/frontier/tuning.py:{row}', f'must be one of {known}')
    made = (brown if corpus == 'brown' else wikitext2).get_config('tied_lstm')
    return config_lib.override(made, {**_BASE, **POINTS[corpus][name], 'name': f'{corpus}-{name}'})
