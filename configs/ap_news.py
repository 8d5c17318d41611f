"""AP News 1995 and 1996, the paper's larger corpus (section 4), read from a folder of licensed text files.

    nplm train ap_news:mlp10 --config.corpus.path=DIR          the network of the paper's Table 2
    nplm train ap_news:kneser_ney_5 --config.corpus.path=DIR   a count-based model: interpolated, kneser_ney_3 to _5,
                                                               modified_kneser_ney_3 to _5
    nplm train ap_news:mlp10,paper --config.corpus.path=DIR    the paper's recipe, with a batch size of 1

Files are read in alphabetical order, and blank lines separate paragraphs. By default, the folder must contain more than
the 14,957,666 words of the training and validation splits. If you have less text, set corpus.train and corpus.valid.

This config has never been run, because the authors have no licence for the text. The expected results are the
perplexities in the paper's Table 2; see PAPER below. The text is prepared as in section 4 of the paper, which does not
specify all rules.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import presets

# Table 2 of the paper: training (not printed), validation and test perplexities.
PAPER = {
    'mlp10': (0.0, 104.0, 109.0),
    'interpolated': (0.0, 126.0, 132.0),
    'kneser_ney_3': (0.0, 121.0, 127.0),
    'kneser_ney_4': (0.0, 113.0, 119.0),
    'kneser_ney_5': (0.0, 112.0, 117.0),
}
_CORPUS: presets.Preset = {
    'corpus.name': 'ap_news',
    'corpus.numbers': True,
    'corpus.proper_nouns': True,
    'corpus.max_vocabulary': 17_964,
    'corpus.train': 13_994_528.0,
    'corpus.valid': 963_138.0,
}
_NAMES = {'mlp10': 'MLP10, mixed with the trigram'}
_PRESETS = presets.with_paper({'mlp10': presets.TABLE2_NETWORK, **presets.NGRAMS}, _NAMES, PAPER)
_MODIFIERS = {'paper': {**presets.PAPER_RECIPE, 'optimizer.decay': 1e-5}}


def get_config(preset: str = 'mlp10') -> ConfigDict:
    """Returns the config of a Table 2 preset; `mlp10,paper` uses the paper's recipe.

    The paper reports mlp10 only as part of a mixture with the interpolated trigram. In results.json, the entry for this
    mixture is `mixture.fixed`.
    """
    return presets.get_config('ap_news', preset, _CORPUS, _PRESETS, _MODIFIERS, default='mlp10')
