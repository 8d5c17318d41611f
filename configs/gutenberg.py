"""NLTK's selection of Project Gutenberg: 18 books and plays in the public domain, two million words.

    python launch.py --config=configs/gutenberg.py            a window network with residual layers
    python launch.py --config=configs/gutenberg.py:mlp9       a network of the paper's Table 1: mlp1, mlp3, 5, 7, 9
    python launch.py --config=configs/gutenberg.py:kneser_ney_5   a count-based model: interpolated, kneser_ney_3 to
                                 _5, modified_kneser_ney_3 to _5
    python launch.py --config=configs/gutenberg.py:tied_lstm  a regularised lstm with C as its output matrix

Use it where Brown's licence, which is for non-commercial use, is in the way. The texts come from NLTK's folders, from
NLTK's downloader or from a wheel of 45 MB. Their words are in lower case, and punctuation is split off. The first 80%
are for training, the next 10% for validation, the last 10% for test: the texts follow each other by the names of their
authors, so that the test text is by authors whom the training text lacks, Shakespeare and Whitman.

Validation and test perplexity: interpolated 378.8 and 407.4, kneser_ney_5 392.6 and 537.1, modified_kneser_ney_5 392.0
and 511.0. The networks have not been measured.
"""

from ml_collections import ConfigDict

from configs import brown, default, rows
from nplm_jax.utils.errors import BadInput

ROWS = ('', *brown.NETWORKS, *rows.NGRAMS)


def get_config(row: str = '') -> ConfigDict:
    """Returns the config of a row of the paper's Table 1 on this corpus, or of a better network."""
    c = default.get_config()
    c.name = f'gutenberg-{row}' if row else 'gutenberg'
    c.corpus.name = 'gutenberg'
    c.corpus.min_count = 4
    c.corpus.max_vocabulary = brown.VOCABULARY
    if row in rows.NGRAMS:
        rows.set_ngram(c, row, {})
    elif row in rows.NETWORKS:
        rows.NETWORKS[row](c)
    elif row in brown.NETWORKS:
        (c.model.n, c.model.h, c.model.m, c.model.direct), _ = brown.NETWORKS[row]
        c.model.dropout, c.optimizer.learning_rate = (0.25, 1.5) if c.model.direct else (0.1, 2.0)
        c.train.epochs = 6
    elif not row:
        rows.set_residual(c)
    else:
        known = ', '.join(filter(None, (*ROWS, *rows.NETWORKS)))
        raise BadInput(f'configs/gutenberg.py:{row}: no such row; rows are {known}')
    return c
