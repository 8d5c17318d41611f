r"""Your own UTF-8 text: a file, or a folder of files. Each file is one text. Blank lines separate paragraphs.

    nplm train text --minutes=5 --config.corpus.path=my_novel.txt
        a network that can be trained on this text in five minutes on this machine
    nplm train text --config.corpus.path=my_novel.txt   the paper's network
    nplm train text --config.corpus.path=train.txt --config.corpus.valid_path=valid.txt \
        --config.corpus.test_path=test.txt
    nplm train text:interpolated --config.corpus.path=my_novel.txt
        a count-based model: interpolated, kneser_ney_3 to _5, modified_kneser_ney_3 to _5
    nplm train text:one_minute --config.corpus.path=my_novel.txt
        a Mogrifier LSTM with attention, in increasing size: one_minute, five_minutes, twenty_minutes, one_hour
    nplm train text:residual --config.corpus.path=my_novel.txt
        a window network with residual layers
    nplm train text:lstm,nce,adam --config.corpus.path=my_novel.txt
        any combination of components: a body or a count-based model, an output layer, an optimizer, a schedule, a
        tokenizer, or import paths of plug-ins
    nplm train text:lmplz --config.corpus.path=train.txt --config.corpus.valid_path=valid.txt \
        --config.corpus.test_path=test.txt
        the same 5-gram model as `lmplz -o 5` and the same test perplexity as `query`, for text with one sentence per
        line; --config.model.n sets the order

Without --config.corpus.valid_path and test_path, the first 80% of the text is used for training, the next 10% for
validation and the last 10% for testing. Use text:whitespace for tokenized text. Words that occur fewer than three times
in the training text become <rare>. Text with one sentence per line is usually detected automatically; if it is not, use
--config.corpus.paragraphs=lines.
"""

from ml_collections import ConfigDict

from nplm_jax.configs import presets
from nplm_jax.configs.presets import network

__all__ = ['get_config', 'network']

_CORPUS: presets.Preset = {'corpus.name': 'text', 'corpus.min_count': 3, 'corpus.count_over': 'train'}
_PRESETS = {
    '': {'model.n': 5, 'model.m': 60, 'model.h': 100},
    **presets.MINUTES,
    **presets.NGRAMS,
    'lmplz': {
        'model.family': 'modified_kneser_ney',
        'model.n': 5,
        'corpus.tokens': 'lmplz',
        'corpus.paragraphs': 'lines',
        'corpus.context': 'line',
        'corpus.lowercase': False,
        'corpus.split_possessive': False,
        'corpus.min_count': 1,
    },
    'residual': presets.RESIDUAL,
}


def get_config(preset: str = '') -> ConfigDict:
    """Returns the config of a preset; the default is a network for texts of 100,000 to a few million words."""
    return presets.get_config('text', preset, _CORPUS, _PRESETS)
