"""Prints the table of the sweep over n, m, h and direct connections, from the committed results of its points.

    python launch.py --config=configs/brown.py --sweep --config.train.epochs=1
    python -m experiments.paper.table1.sweep

results/sweep/POINT.json is the results.json of a point. Other work on the machine increased the times, so the times
only show which points take long.
"""

import pathlib
import re

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

POINTS = pathlib.Path(__file__).parent / 'results' / 'sweep'
HEADER = ['point', 'parameters', 'train', 'valid', 'test', 'seconds', '']


def table() -> str:
    """Returns one row per point, ordered by n, m, h and direct. The point that is best on validation is marked."""
    names = sorted(
        (path.stem for path in POINTS.glob('*.json')), key=lambda name: (*map(int, re.findall(r'\d+', name)), name)
    )
    points = [results.read(POINTS, name) for name in names]
    best = min(points, key=lambda point: point['perplexity']['valid'])
    rows = []
    for point in points:
        perplexities = [point['perplexity'][split] for split in ('train', 'valid', 'test')]
        remark = 'best on validation' if point is best else ''
        rows.append([point['name'], f'{point["parameters"]:,}', *perplexities, f'{point["seconds"]:.0f}', remark])
    return markdown_table(HEADER, rows)


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: table())
