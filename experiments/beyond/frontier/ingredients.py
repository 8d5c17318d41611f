"""What each part of `configs/brown.py:one_minute,sgd`, a regularised LSTM, buys: one left out or exchanged at a time.

    python launch.py --config=experiments/beyond/frontier/ingredients.py:one_minute,sgd --sweep
    python -m experiments.beyond.frontier.ingredients             the table of the committed results

All points make the two passes of `one_minute`, by gradient descent. The results.json of each is committed as
results/ingredients/NAME.json, with `processor_seconds` where the machine did nothing else.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from configs.brown import get_config
from experiments import results, study
from nplm_jax.reporting.text import markdown_table

__all__ = ['get_config', 'sweep', 'POINTS']
RESULTS = pathlib.Path(__file__).parent / 'results' / 'ingredients'
POINTS = {
    'one_minute': {},
    'unsmoothed': {'train.suffix_smoothing': 0.0},
    'uncalibrated': {'train.suffix_smoothing': 0.0, 'train.calibrate': False},
    'untied': {'model.tied': False},
    'sampled': {'output.kind': 'sampled'},
    'adam': {
        'optimizer.name': 'adam',
        'optimizer.learning_rate': 0.003,
        'optimizer.clip_norm': 1.0,
        'optimizer.decay': 3e-6,
    },
    'mogrifier': {'model.family': 'mogrifier'},
}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields the points."""
    for name, keys in POINTS.items():
        yield {'name': name, **keys}


HEADER = ['point', 'changed', 'valid', 'test', 'processor s', 'ratio']


def rows() -> list[list[Any]]:
    """Returns a row a point: what is changed, the perplexities, the processor seconds relative to the first's."""
    table = []
    reference = results.read(RESULTS, 'one_minute')['processor_seconds']
    for name, keys in POINTS.items():
        recorded = results.read(RESULTS, name)
        if recorded['name'] != name:
            raise ValueError(f'{name}.json is of {recorded["name"]}')
        changed = ', '.join(f'{key}={value}' for key, value in keys.items())
        perplexities = [recorded['perplexity'][split] for split in ('valid', 'test')]
        seconds = recorded.get('processor_seconds')
        times = (f'{seconds:,}', f'{seconds / reference:.2f}') if seconds else ('-', '-')
        table.append([name, changed, *perplexities, *times])
    return table


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: markdown_table(HEADER, rows()))
