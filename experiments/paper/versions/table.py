"""Compares the perplexities of runs with the perplexities of the same runs on an older Python and JAX.

    python -m experiments.paper.versions.table

With the older Python, `python -m experiments.runs versions` trains the second set of runs.
"""

from __future__ import annotations

import pathlib
from typing import Any

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
RUNS = {'default': 'table1', 'mlp9': 'table1', 'modified_kneser_ney_5': 'table1', 'one_minute': 'frontier'}
HEADER = ['run', 'Python', 'jaxlib', 'valid', 'test', 'test, difference, %', 'minutes']


def make() -> str:
    """Returns the table. A run that was not trained with the older versions has only one row."""
    rows: list[list[str]] = []
    for name, table in RUNS.items():
        newer = results.read(results.folder(table), name)
        rows.append(_cells(name, newer, '-'))
        if (RESULTS / f'{name}.json').exists():
            older = results.read(RESULTS, name)
            percent = 100 * (older['perplexity']['test'] / newer['perplexity']['test'] - 1)
            rows.append(_cells(name, older, f'{percent:+.2f}'))
    return markdown_table(HEADER, rows)


def _cells(name: str, measured: dict[str, Any], difference: str) -> list[str]:
    perplexities = [f'{measured["perplexity"][split]:.2f}' for split in ('valid', 'test')]
    minutes = f'{measured["seconds"] / 60:.1f}' if 'seconds' in measured else '-'
    versions = measured['versions']
    return [name, versions['python'], versions['jaxlib'], *perplexities, difference, minutes]


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: make())
