"""Brown's MLP9 with cheaper gradients: the cost and the perplexity of each output.kind.

    python launch.py --config=experiments/beyond/cheaper/points.py:mlp9 --sweep

`full` is the unchanged row, `configs/brown.py:mlp9`. The results.json of each point is committed as results/NAME.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from configs.brown import get_config

__all__ = ['get_config', 'sweep', 'POINTS']
POINTS = {
    'sampled_1000': {'output.kind': 'sampled', 'output.samples': 1000},
    'classes_1000_500': {'output.kind': 'two_level', 'output.num_shortlist': 1000, 'output.classes': 500},
    'sampled_1000_short': {'output.kind': 'sampled', 'output.samples': 1000, 'train.epochs': 3},
    'nce_1000': {'output.kind': 'nce', 'output.samples': 1000},
    'classes_0_500': {'output.kind': 'two_level', 'output.num_shortlist': 0, 'output.classes': 500},
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the points."""
    for name, keys in POINTS.items():
        yield {'name': name, **keys}
