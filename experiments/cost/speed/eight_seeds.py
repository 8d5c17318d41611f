"""Eight seeds of one small network, for vectorize.py.

python launch.py --config=experiments/cost/speed/eight_seeds.py:small --config.corpus.path=TEXT --sweep --vectorize
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from configs import text

SEEDS = 8
SIZES = {  # |V|; n, m and h of the network; its batch; words of the text; epochs
    'tiny': (200, (3, 5, 10), 8, 100_000, 60),
    'small': (500, (4, 10, 20), 32, 160_000, 8),
    'large': (16_384, (5, 30, 100), 128, 33_000, 1),
}


def get_config(size: str) -> ConfigDict:
    """Returns one of SIZES, without early stopping; no word is merged."""
    c = text.get_config()
    _, (c.model.n, c.model.m, c.model.h), c.train.batch_size, words, c.train.epochs = SIZES[size]
    c.train.evaluate_every = int(c.corpus.train * words) // c.train.batch_size * c.train.epochs // 4
    c.name, c.model.dropout, c.corpus.min_count, c.corpus.tokens = size, 0.1, 1, 'whitespace'
    c.corpus.count_over = 'all'
    c.train.patience, c.train.checkpoint_every, c.train.steps_per_execution = c.train.epochs, 100_000, 2000
    c.optimizer.learning_rate = 0.5
    return c


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the seeds."""
    for seed in range(1, SEEDS + 1):
        yield {'seed': seed}
