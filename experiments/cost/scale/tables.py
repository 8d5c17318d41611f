"""Prints the table of 5-grams beside lmplz, from the committed results.

python -m experiments.cost.scale.tables
"""

from __future__ import annotations

import pathlib

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
HEADER = [
    'words',
    'n-grams',
    'program',
    'seconds',
    'processor s',
    'peak MB',
    'MB on disk meanwhile',
    'MB of the model',
    'test perplexity',
]


def table() -> str:
    """Returns two rows for each size of text."""
    rows = []
    for size in results.read(RESULTS, 'ngrams')['sizes']:
        for name, key in (('nplm-jax', 'nplm_jax'), ('lmplz', 'lmplz')):
            r = size[key]
            first = [f'{size["words"]:,}', f'{sum(size["nplm_jax"]["ngrams"]):,}'] if key == 'nplm_jax' else ['', '']
            megabytes = [f'{r[k] / 1e6:,.0f}' for k in ('peak_bytes', 'peak_disk_bytes', 'model_bytes')]
            perplexity = f'{r["perplexity"]:.2f}' if 'perplexity' in r else '-'
            rows.append([*first, name, f'{r["seconds"]:,.1f}', f'{r["cpu_seconds"]:,.1f}', *megabytes, perplexity])
    return markdown_table(HEADER, rows)


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: table())
