"""A row of Table 1 again with other seeds: how much of a difference between two rows is chance.

    python launch.py --config=experiments/table1/seeds.py:mlp9 --sweep

Seed 1 is the row itself, `configs/brown.py:mlp9`; results.json of the others is committed as results/mlp9_seed2.json
and results/mlp9_seed3.json.
"""

from collections.abc import Iterator
from typing import Any

from configs.brown import get_config

__all__ = ['get_config', 'sweep']
SEEDS = (2, 3)


def sweep() -> Iterator[dict[str, Any]]:
    """The other seeds."""
    for seed in SEEDS:
        yield {'seed': seed}
