"""Runs as rows of a table: what `nplm runs` and `nplm compare` show."""

import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from nplm_jax.runs.catalog import CORPUS, SPLITS, Run, expand_run, is_finished, read_run, suggest
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_json
from nplm_jax.utils.text import markdown_table

HEADER = ['run', 'corpus', 'model', 'vocabulary', *SPLITS, 'seconds', 'date']
BEST = '*'


def check_finished(folders: Sequence[str]) -> None:
    """Raises BadInput, which names the finished runs that there are, unless all of these are finished."""
    for folder in folders:
        path = expand_run(folder)
        if not is_finished(path):
            raise BadInput(f'RUN={folder!r}: no finished run there; {suggest(path)}')


def run_names(folders: Sequence[str]) -> list[str]:
    """Returns the names of the folders; of two with one name, and of one named `mixture`, the whole paths."""
    names = [os.path.basename(os.path.abspath(folder)) for folder in folders]
    taken = [*names, 'mixture']
    return [str(folder) if taken.count(name) > 1 else name for name, folder in zip(names, folders)]


def read_all(folders: Sequence[pathlib.Path]) -> tuple[list[Run], list[str]]:
    """Reads runs. Returns those that can be read, and a line for each that cannot."""
    runs, damaged = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except BadInput as error:
            damaged.append(str(error))
    return runs, damaged


def text_of(run: Run) -> str:
    """Returns what must agree for perplexities to be comparable: the recorded checksum of words, vocabulary and splits.

    A run without one, which was imported without --vocabulary or is damaged, agrees with no other.
    """
    try:
        return str(read_json(run.folder / CORPUS)['sha256'])
    except (BadInput, KeyError):
        return hashlib.sha256(str(run.folder.resolve()).encode()).hexdigest()


def describe(run: Run) -> dict[str, Any]:
    """Returns the row of a run, for JSON."""
    results = run.results or {}
    return {
        'folder': str(run.folder),
        'name': run.settings.name,
        'state': run.state,
        'corpus': run.settings.corpus.name,
        'model': model_of(run),
        'vocabulary': results.get('vocabulary'),
        'perplexity': {split: run.perplexity(split) for split in SPLITS},
        'seconds': None if run.imported else results.get('seconds'),
        'date': run.date,
    }


def model_of(run: Run) -> str:
    """Returns the family and the order, and the sizes of a network."""
    model, results = run.settings.model, run.results or {}
    network = 'parameters' in results or (run.folder / 'checkpoints').is_dir()
    sizes = f' m={model.m} h={model.h}' if network else ''
    return f'{model.family} n={model.n}{sizes}'


def best_rows(columns: Sequence[float | None], groups: Sequence[str]) -> set[int]:
    """Returns the row of the lowest number of each group of two rows or more.

    Args:
        columns: The number of each row.
        groups: The group of each row.
    """
    best = set()
    for group in set(groups):
        rows = [i for i, number in enumerate(columns) if groups[i] == group and number is not None]
        if len(rows) > 1:
            best.add(min(rows, key=lambda i: float(columns[i] or 0)))
    return best


def make(
    runs: Sequence[Run],
    names: Sequence[str],
    columns: Mapping[str, Sequence[float | None]] | None = None,
    marked: bool = True,
) -> str:
    """Returns a Markdown table of runs; BEST marks the best of the runs on the same words.

    Args:
        runs: The runs.
        names: What each is called.
        columns: Further perplexities by header, one a run.
        marked: Whether the best of each of these columns is marked.
    """
    groups = [text_of(run) for run in runs]
    perplexities: dict[str, Sequence[float | None]] = {s: [run.perplexity(s) for run in runs] for s in SPLITS}
    best = {split: best_rows(numbers, groups) for split, numbers in perplexities.items()}
    if marked:
        best |= {header: best_rows(numbers, [''] * len(runs)) for header, numbers in (columns or {}).items()}
    best['train'] = set()  # the lowest training perplexity is no merit
    rows = []
    for i, run in enumerate(runs):
        row = describe(run)
        cells = {**perplexities, **(columns or {})}
        numbers = [_cell(numbers[i], i in best.get(header, ())) for header, numbers in cells.items()]
        seconds = '-' if row['seconds'] is None else f'{row["seconds"]:,.0f}'
        if run.state != 'finished':
            seconds = run.state
        rows.append([names[i], row['corpus'], row['model'], row['vocabulary'] or '-', *numbers, seconds, row['date']])
    header = [*HEADER[:7], *(columns or {}), *HEADER[7:]]
    return markdown_table(header, rows)


def _cell(number: float | None, is_best: bool) -> str:
    return '-' if number is None else f'{number:.1f}{" " + BEST if is_best else ""}'
