"""Prints the table of how word features perform on similarity and analogy tasks, from results/*.json.

python -m experiments.use.similarity.table
"""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import results, study
from experiments.use.similarity.tasks import RATED
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import BadInput

HERE = pathlib.Path(__file__).parent
TASKS = {'simlex999': 'SimLex-999', 'wordsim353': 'WordSim-353', 'analogies': 'analogies, %'}
LETTERS = {'C_VxM': 'C', 'U_VxK': 'U', 'W_VxP': 'W', '': ''}


def rows(folder: pathlib.Path = HERE / 'results') -> list[list[str]]:
    """Returns one row per kind of vectors, by dimension. Each number is the mean over seeds.

    Raises:
        BadInput: There are no results.
    """
    runs = [results.load(path) for path in sorted(folder.glob('*.json'))]
    if not runs:
        raise BadInput(folder, 'contains no results; run experiments.use.similarity.measure')
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for run in runs:
        for name, vectors in run['vectors'].items():
            groups.setdefault((run['model'], name, vectors['dimension']), []).append(vectors)
    return [
        [model, LETTERS[name], str(dimension), str(len(seeds)), *(cell(seeds, task) for task in TASKS)]
        for (model, name, dimension), seeds in sorted(groups.items(), key=lambda group: (group[0][2], group[0]))
    ]


def cell(seeds: Sequence[Mapping[str, Any]], task: str) -> str:
    """Returns the mean over seeds, with the mean ends of the intervals in brackets, or `-` without numbers."""
    key, scale, digits = ('spearman', 1, 2) if task in RATED else ('accuracy', 100, 1)
    if any(seed[task][key] is None for seed in seeds):
        return '-'
    value = statistics.mean(seed[task][key] for seed in seeds)
    low, high = (statistics.mean(seed[task]['interval'][end] for seed in seeds) for end in (0, 1))
    return f'{scale * value:.{digits}f} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]'


def make(folder: pathlib.Path = HERE / 'results') -> str:
    """Returns the table. Its header contains the number of pairs and questions that the vectors cover."""
    all_vectors = [
        vectors for path in sorted(folder.glob('*.json')) for vectors in results.load(path)['vectors'].values()
    ]
    body, sizes = rows(folder), {}
    for task in TASKS:
        counted = [vectors[task]['counted'] for vectors in all_vectors]
        sizes[task] = f'{min(counted):,}' + (f' to {max(counted):,}' if min(counted) < max(counted) else '')
    titles = [f'{title} ({sizes[task]} of {all_vectors[0][task]["of"]:,})' for task, title in TASKS.items()]
    return markdown_table(['vectors', 'rows of', 'dimension', 'seeds', *titles], body)


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: make())
