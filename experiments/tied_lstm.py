"""LSTMs trained by gradient descent, used by results that newer recipes have not yet replaced.

    python launch.py --config=experiments/tied_lstm.py:five_minutes

The study of tokens uses these networks. The presets with the same names in configs/brown.py reach lower perplexities in
the same time.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from configs import brown, presets
from nplm_jax.config import settings as config_lib
from nplm_jax.utils.errors import require


def _lstm(m: int, dropout: float, output_dropout: float, samples: int, epochs: int) -> presets.Preset:
    """Returns an LSTM with h = m, weight tying and variational dropout."""
    return {
        'model.family': 'lstm',
        'model.m': m,
        'model.h': m,
        'model.tied': True,
        'model.variational': True,
        'model.dropout': dropout,
        'model.output_dropout': output_dropout,
        'output.kind': 'nce',
        'output.samples': samples,
        'optimizer.name': 'sgd',
        'optimizer.learning_rate': 20.0,
        'optimizer.table_rate': 1.0,
        'optimizer.clip_norm': 0.25,
        'optimizer.decay': 3e-6,
        'train.epochs': epochs,
        'train.patience': 4,
        'train.valid_words': presets.VALID_WORDS,
        'train.suffix_smoothing': 3.0,
        'train.calibrate': True,
        **presets.RECURRENT,
    }


PRESETS: dict[str, presets.Preset] = {
    'one_minute': _lstm(200, 0.0, 0.0, 500, 2),
    'five_minutes': _lstm(320, 0.3, 0.45, 1000, 4),
}


def get_config(preset: str = 'five_minutes') -> ConfigDict:
    """Returns the config of a preset on Brown. Raises BadInput if the preset does not exist."""
    require(preset in PRESETS, 'experiments/tied_lstm.py', preset, f'must be one of {", ".join(PRESETS)}')
    return config_lib.override(brown.get_config('large'), {**PRESETS[preset], 'name': f'brown-{preset}-sgd'})
