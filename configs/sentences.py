"""Three sentences: "i like dog", "i love coffee", "i hate milk". The first experiment to run.

    python launch.py --config=configs/sentences.py

It takes seconds. The network learns to predict the last word of each sentence from the two words before it. Training,
validation and test words are the same, so that the perplexities say only how well the network remembers them.
"""

from ml_collections import ConfigDict

from configs import default


def get_config() -> ConfigDict:
    """Returns the config of a network with m=2, whose word features can be drawn in the plane."""
    c = default.get_config()
    c.name = 'sentences'
    c.corpus.name = 'sentences'
    c.model.n, c.model.m, c.model.h, c.model.dropout = 3, 2, 5, 0.0
    c.optimizer.learning_rate = 0.5
    c.train.batch_size = 4
    c.train.epochs = 300
    c.train.evaluate_every = 300
    return c
