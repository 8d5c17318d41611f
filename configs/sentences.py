"""Three sentences: "i like dog", "i love coffee", "i hate milk". The first experiment to run.

    python launch.py --config=configs/sentences.py
    python launch.py --config=configs/sentences.py:interpolated   a count-based model: interpolated, kneser_ney_3 to _5,
                                                                  modified_kneser_ney_3 to _5

It takes seconds. The network learns to predict the last word of each sentence from the two words before it. Training,
validation and test words are the same, so that the perplexities say only how well the network remembers them.
"""

from ml_collections import ConfigDict

from configs import default, rows


def get_config(row: str = '') -> ConfigDict:
    """Returns the config of a network with m=2, whose word features can be drawn in the plane, or of a row."""
    c = default.get_config()
    c.name = 'sentences'
    c.corpus.name = 'sentences'
    if not row:
        c.model.n, c.model.m, c.model.h, c.model.dropout = 3, 2, 5, 0.0
        c.optimizer.learning_rate = 0.5
        c.train.batch_size = 4
        c.train.epochs = 300
        c.train.evaluate_every = 300
    return rows.get_row(c, 'configs/sentences.py', row)
