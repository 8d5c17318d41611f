"""Sweeps a row of Table 1 over other seeds, to measure the random variation between runs.

    python launch.py --config=experiments/paper/table1/seeds.py:mlp9 --sweep

Seed 1 is the unchanged row, `configs/brown.py:mlp9`. The results.json of the other seeds are committed as
results/mlp9_seed2.json and results/mlp9_seed3.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from configs.brown import get_config

__all__ = ['get_config', 'sweep']
SEEDS = (2, 3)
SEEDED = ('mlp1', 'mlp9')  # the rows that are trained with these seeds


def sweep() -> Iterator[dict[str, Any]]:
    """Yields all seeds except 1."""
    for seed in SEEDS:
        yield {'seed': seed}
