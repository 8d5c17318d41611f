r"""BabyLM: 10 or 100 million words of the kind children hear and read, from your copy (https://babylm.github.io).

    nplm train babylm:10m --config.corpus.path=DIR/train_10M \
        --config.corpus.valid_path=DIR/dev --config.corpus.test_path=DIR/test
    nplm train babylm:100m --config.corpus.path=DIR/train_100M \
        --config.corpus.valid_path=DIR/dev --config.corpus.test_path=DIR/test
    nplm train babylm:10m,kneser_ney_5 ...   a count-based model: interpolated, kneser_ney_3 to _5,
                                             modified_kneser_ney_3 to _5
    nplm train babylm:100m,residual ...      a window network with residual layers

The folders have one file per source (childes.train, simple_wiki.train and so on). Each file is one text, and the files
are read in alphabetical order. Most files have one utterance per line and no blank lines. Each of these files is
therefore read as one paragraph. If corpus.paragraphs=lines, each line is a paragraph. Words that occur fewer than 3
times (10m) or 10 times (100m) become <rare>.

This config has never been run, so no results are known.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import presets

_CORPUS: presets.Preset = {'corpus.name': 'text', 'corpus.paragraphs': 'blank_lines'}
_NETWORK: presets.Preset = {**presets.NCE, 'output.samples': 500}
_MIN_COUNTS = {'10m': 3, '100m': 10}  # untested; chosen to keep the vocabulary near 100,000 words
_SIZES = {size: {'corpus.min_count': min_count, **_NETWORK} for size, min_count in _MIN_COUNTS.items()}
_MODELS = {**presets.NGRAMS, 'residual': presets.RESIDUAL}


def get_config(preset: str = '10m') -> ConfigDict:
    """Returns the config for a size, `10m` or `100m`, optionally followed by a comma and a shared preset."""
    return presets.get_config('babylm', preset, _CORPUS, _SIZES, _MODELS, '10m')
