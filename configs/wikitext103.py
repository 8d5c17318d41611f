"""WikiText-103: 103 million training words from Wikipedia, read from the official archive, wikitext-103-v1.zip.

    nplm train wikitext103:mlp10 --config.corpus.path=ZIP          the network of the paper's Table 2
    nplm train wikitext103:kneser_ney_5 --config.corpus.path=ZIP   a count-based model: interpolated, kneser_ney_3 to
                                                                   _5, modified_kneser_ney_3 to _5
    nplm train wikitext103:residual --config.corpus.path=ZIP       a window network with residual layers

ZIP is the archive, or a folder with the files from the archive; their digests are checked. Nothing is downloaded. Words
are prepared as for WikiText-2 (configs/wikitext2.py) and as in the literature, except that <p> replaces <eos>.

This config has never been run on the archive. The networks are trained with sampled losses, because the vocabulary has
267,735 words.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import presets, wikitext2

_NETWORK: presets.Preset = {**presets.TABLE2_NETWORK, **presets.NCE, 'output.samples': 1000}


def get_config(preset: str = 'mlp10') -> ConfigDict:
    """Returns the config of a preset, such as a model from Table 2. The paper has no results for this corpus."""
    corpus = {'corpus.name': 'wikitext103', **wikitext2.WORDS}
    known = {'mlp10': _NETWORK, **presets.NGRAMS, 'residual': presets.RESIDUAL}
    return presets.get_config('wikitext103', preset, corpus, known, default='mlp10')
