"""Three sentences: "i like dog", "i love coffee", "i hate milk". What a newcomer runs first.

    python launch.py --config=configs/sentences.py

Takes seconds. The network learns to predict each sentence's last word from the two before it; training,
validation and test words are the same, so the perplexities only say how well it remembers.
"""

from ml_collections import ConfigDict

from configs import default


def get_config() -> ConfigDict:
    """n=3, m=2: features that can be drawn on paper."""
    c = default.get_config()
    c.name = 'sentences'
    c.corpus.name = 'sentences'
    c.model.n, c.model.m, c.model.h, c.model.dropout = 3, 2, 5, 0.0
    c.optimizer.learning_rate = 0.5
    c.train.batch_size = 4
    c.train.epochs = 300
    c.train.evaluate_every = 300
    return c
