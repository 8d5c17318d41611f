"""A network of the paper's kind on Brown, small enough for many trials, and the space of the study."""

from typing import Any

from ml_collections import ConfigDict

from configs import brown
from nplm_jax.config import settings as config_lib

GRID = {  # 30 points
    'optimizer.learning_rate': [0.5, 1.0, 2.0, 4.0, 8.0],
    'model.dropout': [0.0, 0.2, 0.4],
    'model.m': [30, 60],
    'model.h': [50],
}


def get_config() -> ConfigDict:
    """Returns `brown:quick` with a quarter of its updates, and a validation of fewer words after each third of them."""
    changes = {'name': 'search', 'train.max_steps': 2400, 'train.evaluate_every': 800, 'eval.words': 50_000}
    return config_lib.override(brown.get_config('quick'), {**changes, 'eval.train_words': 2000})


def search(trial: Any) -> dict[str, Any]:
    """Returns a point; the grid lies within its ranges."""
    return {
        'optimizer.learning_rate': trial.suggest_float('optimizer.learning_rate', 0.2, 20.0, log=True),
        'model.dropout': trial.suggest_float('model.dropout', 0.0, 0.5),
        'model.m': trial.suggest_int('model.m', 20, 100, log=True),
        'model.h': trial.suggest_int('model.h', 20, 200, log=True),
    }
