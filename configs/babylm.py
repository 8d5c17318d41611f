r"""BabyLM: what a child hears and reads, 10 or 100 million words, from your copy (https://babylm.github.io).

    python launch.py --config=configs/babylm.py:10m --config.corpus.path=DIR/train_10M \
        --config.corpus.valid_path=DIR/dev --config.corpus.test_path=DIR/test
    python launch.py --config=configs/babylm.py:100m --config.corpus.path=DIR/train_100M \
        --config.corpus.valid_path=DIR/dev --config.corpus.test_path=DIR/test
    python launch.py --config=configs/babylm.py:10m,kneser_ney_5 ...   a count-based model: interpolated, kneser_ney_3
                                 to _5, modified_kneser_ney_3 to _5
    python launch.py --config=configs/babylm.py:100m,tied_lstm ...     a better network: residual, tied_lstm, mogrifier

The folders hold a file a source (childes.train, simple_wiki.train and so on); each file is a text, read by name. Most
have an utterance a line and no blank lines: such a file is one paragraph; corpus.paragraphs=lines makes each line one.
Words that occur fewer than 3 times (10m) or 10 times (100m) become <rare>.

Nobody has run this config: no figures are known.
"""

from ml_collections import ConfigDict

from configs import default, rows
from nplm_jax.utils.errors import BadInput

MIN_COUNTS = {'10m': 3, '100m': 10}  # a guess that keeps the vocabulary near 100,000 words; it was not measured


def get_config(row: str = '10m') -> ConfigDict:
    """Returns the config of a size, `10m` or `100m`, and of a shared row after a comma."""
    size, _, model = row.partition(',')
    if size not in MIN_COUNTS:
        raise BadInput(f'configs/babylm.py:{row}: must begin with {" or ".join(MIN_COUNTS)}')
    c = default.get_config()
    c.name = f'babylm-{size}'
    c.corpus.name = 'text'
    c.corpus.min_count = MIN_COUNTS[size]
    c.corpus.paragraphs = 'blank_lines'
    if model not in rows.NGRAMS:
        c.output.kind, c.output.samples = 'nce', 500
        c.optimizer.learning_rate = 6.0  # of the paper's network; others have their own
    return rows.get_row(c, 'configs/babylm.py', model)
