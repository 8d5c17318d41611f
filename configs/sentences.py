"""Three sentences ("i like dog", "i love coffee" and "i hate milk"), for a first experiment.

    nplm train sentences               a small version of the paper's network
    nplm train sentences:interpolated  a count-based model: interpolated, kneser_ney_3 to _5, modified_kneser_ney_3 to
                                       _5

Training takes seconds. The network learns to predict the last word of each sentence from the two words before it. The
training, validation and test sets are identical, so the perplexities measure only memorization.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import presets

_NETWORK: presets.Preset = {
    'model.n': 3,
    'model.m': 2,
    'model.h': 5,
    'model.dropout': 0.0,
    'optimizer.learning_rate': 0.5,
    'train.batch_size': 4,
    'train.epochs': 300,
    'train.evaluate_every': 300,
}


def get_config(preset: str = '') -> ConfigDict:
    """Returns the config of a preset; the default is a network with two features per word, for plots."""
    return presets.get_config('sentences', preset, {'corpus.name': 'sentences'}, {'': _NETWORK, **presets.NGRAMS})
