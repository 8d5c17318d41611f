"""Trains the points of a sweep and writes a table of their perplexities."""

import csv
import io
import math
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nplm_jax.apps.sweeps import together
from nplm_jax.apps.sweeps.sweep_points import Point
from nplm_jax.apps.sweeps.together import run_many
from nplm_jax.config import settings as config_lib
from nplm_jax.config.sections import CorpusSettings
from nplm_jax.reporting import catalog, figures
from nplm_jax.reporting.text import markdown_table, null_to_inf
from nplm_jax.runs import run_inputs, session, workdir
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.utils.errors import NonFiniteError
from nplm_jax.utils.io import write_atomically

_PARTS = 'train', 'valid', 'test'
_NUMBERS = *_PARTS, 'seconds'  # columns of the tables
_FINISHED = 'finished'


def check_begun(points: Iterable[Point], folder: pathlib.Path) -> None:
    """Checks the points that an earlier command started. Call this function before running any point.

    Args:
        points: The points of the sweep.
        folder: The folder of the sweep.

    Raises:
        BadInput: The folder of a point belongs to another config, or the text or a model file of a point has changed.
    """
    shared: dict[CorpusSettings, SharedCorpus] = {}
    for point in points:
        settings, path = point.settings, folder / point.name
        if (path / catalog.CONFIG).exists():
            workdir.ensure_folder(path, settings)
            corpus = shared.setdefault(settings.corpus, SharedCorpus(settings))
            if difference := session.difference(path, settings, corpus):
                run_inputs.refuse_changes(folder, f'{point.name}: {difference}')


def run(
    points: Sequence[Point],
    folder: pathlib.Path,
    command: str,
    vectorize: bool = False,
    failures: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Runs the points one after another, each in its own folder. Skips finished points.

    If a point diverges or has too little text, it is marked in the table and the sweep continues.

    Args:
        points: The points of the sweep.
        folder: The folder of the sweep.
        command: The command line, which is recorded in the results.
        vectorize: Whether to train compatible points together. The results are the same. See
            `together.group_compatible`.
        failures: The state of each additional point that cannot run, by name. See `write_table`.

    Returns:
        The table of all points. See `write_table`.

    Raises:
        Exception: Any other error from `experiment.run`.
    """
    check_begun(points, folder)
    failures, notes = dict(failures), set[str]()
    group_numbers = [[i] for i in range(len(points))]
    if vectorize:
        group_numbers = together.group_compatible([point.settings for point in points])
    for group in ([points[i] for i in group] for group in group_numbers):
        folders = [folder / point.name for point in group]
        outcomes = run_many([point.settings for point in group], folders, command, notes)
        for point, outcome in zip(group, outcomes):
            if isinstance(outcome, Exception):
                print(f'{point.name}: {outcome}', file=sys.stderr)
                if not isinstance(outcome, workdir.FolderInUse):  # if it is, another process trains the point
                    failures[point.name] = 'diverged' if isinstance(outcome, NonFiniteError) else 'refused'
    return write_table(points, folder, failures)


def write_table(points: Sequence[Point], folder: pathlib.Path, failures: Mapping[str, str]) -> str:
    """Writes the perplexities of all points to `table.md` and `table.csv`, and draws them if a key varies.

    The CSV has one row per point: `point`, a column for each varying key, the perplexities `train`, `valid` and `test`,
    `seconds`, and `state`, which is `finished` or the state in `failures`. Missing values are empty.

    Args:
        points: The points of the sweep.
        folder: The folder of the sweep.
        failures: The state of each point without a result, such as `diverged`, by name. Points that cannot run and are
            not among `points` are included, with states such as `impossible`.

    Returns:
        The table and the path of the figure. If all points predict the same words, the table marks the point with the
        lowest validation perplexity and names its folder.

    Raises:
        BadInput: Finished points with the same `corpus.*` settings used different texts.
    """
    texts: dict[CorpusSettings, tuple[str, str]] = {}  # name and text digest of the first point
    evaluated: set[str] = set()  # `Run.text` of all points
    precisions: set[str] = set()  # the precisions with which the networks were trained
    records: list[dict[str, Any]] = []
    varied = list(dict.fromkeys(key for point in points for key in point.overrides if key != 'name'))
    for point in points:
        values = config_lib.to_flat(point.settings)
        record = {key: values.get(key) for key in varied}
        record |= {'point': point.name, 'state': failures.get(point.name, 'missing')}
        if point.name not in failures and (results := catalog.finished(folder / point.name)):
            text = str(run_inputs.read_record(folder / point.name).get('sha256'))
            first, expected = texts.setdefault(point.settings.corpus, (point.name, text))
            if text != expected:
                run_inputs.refuse_changes(folder, f'{point.name} was started on a different text than {first}')
            evaluated.add(catalog.read_run(folder / point.name).text)
            if used := sorted({*results.get('precision', {}).values()}):  # empty for a count-based model
                precisions.add(', '.join(used))
            record |= {part: null_to_inf(results['perplexity'][part]) for part in _PARTS}
            record |= {'seconds': float(results['seconds']), 'state': _FINISHED}
        records.append(record)
    names = {point.name for point in points}
    records += [{'point': name, 'state': word} for name, word in failures.items() if name not in names]
    finished = [record for record in records if record['state'] == _FINISHED]
    comparable = len(evaluated) <= 1
    is_ranked = comparable and len(records) > 1
    candidates = [record for record in finished if is_ranked and record['valid'] < math.inf]
    best = min(candidates, key=lambda record: record['valid'], default=None)
    rows = []
    for record in records:
        cells = [record.get(name, '-') for name in _NUMBERS]
        if record['state'] != _FINISHED:
            cells[0] = record['state']
        rows.append([record['point'], *cells, 'best on validation' if record is best else ''])
    table = markdown_table(['point', *_NUMBERS, ''], rows)
    write_atomically(folder / 'table.md', table + '\n')
    writer = csv.DictWriter(text_file := io.StringIO(), ['point', *varied, *_NUMBERS, 'state'], lineterminator='\n')
    writer.writeheader()
    for record in records:  # base R would read True as text
        writer.writerow({key: str(x).upper() if isinstance(x, bool) else x for key, x in record.items()})
    write_atomically(folder / 'table.csv', text_file.getvalue())
    lines = [f'Best on validation: {folder / best["point"]}'] if best else []
    if not comparable:
        lines.append('The points differ in their words or vocabulary, so their perplexities are not comparable')
    if len(precisions) > 1:  # with `auto`, each job chooses by measuring its machine
        found = ' or '.join(sorted(precisions))
        lines.append(
            f'The points were trained in {found}, so small differences between perplexities are not meaningful'
        )
    drawn = [({key: record[key] for key in varied}, record['valid']) for record in finished]
    if figure := figures.draw_sweep(drawn, folder / 'table.png', comparable):
        lines.append(f'Figure: {figure}')
    return '\n'.join([table, *lines])
