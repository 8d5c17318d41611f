"""Runs the tests on each mutant in a sample. An interrupted run can be resumed."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import pathlib
import tempfile
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from nplm_jax.utils.io import write_atomically
from tools.mutants import covering, processes, sites, table

HERE = pathlib.Path(__file__).parent
ROOMS = ('outputs', 'training', 'distributed', 'inference', 'data', 'models', 'ngram', 'executors')
ALSO = ('utils', 'cli', 'runs', 'golden_test.py')  # used, if measured, for lines that no test in their own room runs
BUDGET = 4.0  # CPU time for the tests of a mutant, in seconds
KILLED, TIMEOUT, SURVIVED, UNCOVERED = 'killed', 'timeout', 'survived', 'no test runs it'
UNDECIDED = 'undecided'  # the machine was too busy to decide


def run(seed: int, size: int, rooms: list[str], again: bool, budget: float) -> None:
    """Runs the tests on those mutants in a sample that have no outcome yet.

    Args:
        seed: The random seed of the sample.
        size: The number of mutants in the sample.
        rooms: The rooms whose mutants are run.
        again: Whether to run survivors again, except equivalent mutants.
        budget: The CPU time for the tests of a mutant, in seconds.
    """
    processes.import_heavy()
    with tempfile.TemporaryDirectory() as name:
        root = processes.copy_repository(pathlib.Path(name))
        sample, _ = draw(root, size, seed)
        file = _file(root, seed)
        before = {key(record): record for record in records(file)}
        todo = [mutant for mutant in _side_by_side(sample) if mutant.room in rooms]
        todo = [mutant for mutant in todo if _is_due(before.get(key(mutant)), again)]
        todo.sort(key=lambda mutant: key(mutant) not in before)  # survivors first
        tests = covering.Tests(root, covering.measure(root, test_files(root, ROOMS + ALSO), kept_only=True))
        for number, mutant in enumerate(todo, 1):
            record = try_mutant(root, mutant, tests, budget)
            with file.open('a') as output:
                output.write(json.dumps(record) + '\n')
            said = f'{record["path"]}:{record["line"]}: {record["before"]}  ->  {record["after"]}'
            print(f'{number}/{len(todo)} {record["outcome"]} {record["seconds"]} s {said}', flush=True)


def draw(root: pathlib.Path, size: int, seed: int) -> tuple[list[sites.Mutant], dict[str, int]]:
    """See `sites.draw`. Caches the sample, because drawing a sample takes minutes."""
    file = covering.CACHE / f'sample-{covering.digest(root)}-{size}-{seed}.json'
    if not file.exists():
        sample, places = sites.draw(sites.find(root), root, size, seed)
        write_atomically(file, json.dumps([[dataclasses.asdict(mutant) for mutant in sample], places]))
    rows, places = json.loads(file.read_text())
    sample = [sites.Mutant(**{**row, 'start': tuple(row['start']), 'end': tuple(row['end'])}) for row in rows]
    return sample, places


def try_mutant(root: pathlib.Path, mutant: sites.Mutant, tests: covering.Tests, budget: float) -> dict[str, Any]:
    """Changes a copy of the repository, runs the tests and reverts the change. Returns the record."""
    path, (files, nodeids) = root / mutant.path, tests.of(mutant)
    source = path.read_text()
    changed = mutant.apply(source)
    failed, code, seconds = root.parent / 'failed', 0, 0.0
    failed.unlink(missing_ok=True)
    if files:
        chosen = processes.Chosen(nodeids, budget, failed)
        try:
            path.write_text(changed)
            log = root.parent / 'mutant.log'
            limit = budget + 2 * tests.slowest(nodeids)  # a slow test that starts late is not an endless loop
            code, seconds = processes.run_pytest(root, ['-x', *files], chosen, log, limit + 10)
        finally:
            path.write_text(source)
    if code == 5:
        raise RuntimeError(f'{files}: no tests were collected')
    if not files:
        outcome = UNCOVERED
    elif failed.exists():
        outcome = KILLED
    elif code is None:  # an endless loop, or a busy machine
        outcome = TIMEOUT if seconds >= limit else UNDECIDED
    elif code in (0, 2):  # 2: time limit before all tests had run
        outcome = SURVIVED
    elif code < 0 or code == 4:  # 4: the tests' environment cannot import a module
        outcome = KILLED
    else:
        raise RuntimeError(f'pytest ended with {code}: {log.read_text()[-2000:]}')
    by = failed.read_text() if failed.exists() else ''
    record = {**dataclasses.asdict(mutant), **_difference(source, changed), 'outcome': outcome}
    return {**record, 'by': by, 'seconds': round(seconds, 1), 'whole_files': not nodeids, 'time_over': code == 2}


def report(seed: int, size: int, rooms: list[str]) -> None:
    """Writes results/seed_SEED.json: each mutant with its first and its current outcome.

    The mutants of a room are in random order; those from the first undecided one on are omitted.
    """
    with tempfile.TemporaryDirectory() as name:
        root = processes.copy_repository(pathlib.Path(name))
        sample, places = draw(root, size, seed)
        found = records(_file(root, seed))
    sample = [mutant for mutant in sample if mutant.room in rooms]
    rows = {key(record): record for record in found}  # the last one of each
    for record in reversed([record for record in found if record['outcome'] != UNDECIDED]):
        rows[key(record)]['first'] = record['outcome']
    decided = [
        list(itertools.takewhile(lambda m: rows.get(key(m), {}).get('outcome', UNDECIDED) != UNDECIDED, in_room))
        for in_room in ([m for m in sample if m.room == room] for room in rooms)
    ]
    sample = [mutant for mutants in decided for mutant in mutants]
    fields = ('path', 'line', 'operator', 'before', 'after', 'first', 'outcome', 'by', 'seconds')
    lines = ',\n'.join(json.dumps({field: rows[key(mutant)][field] for field in fields}) for mutant in sample)
    head = {
        'command': f'python -m tools.mutants --measure --seed={seed} --size={size}',
        'seed': seed,
        'places': {room: number for room, number in places.items() if room in rooms},
        'cosmic-ray': metadata.version('cosmic-ray'),
        # This imports JAX, which only `processes.import_heavy` may do first, after its settings.
        **importlib.import_module('nplm_jax.reporting.provenance').provenance(),
    }
    path = HERE / 'results' / f'seed_{seed}.json'
    write_atomically(path, f'{json.dumps(head)[:-1]}, "records": [\n{lines}\n]}}\n')


def records(file: pathlib.Path) -> list[dict[str, Any]]:
    """Returns all records so far, in order."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def key(mutant: sites.Mutant | dict[str, Any]) -> tuple[str, str, int]:
    """Names a mutant."""
    fields = mutant if isinstance(mutant, dict) else dataclasses.asdict(mutant)
    return fields['path'], fields['operator'], fields['occurrence']


def test_files(root: pathlib.Path, rooms: Iterable[str]) -> list[str]:
    """Returns the test files of rooms. The name of a test file stands for the file itself."""
    folders = [root / 'tests' / kind / room for room in rooms for kind in covering.KINDS]
    found = [path for f in folders for path in ([f] if f.is_file() else sorted(f.rglob('*_test.py')))]
    return [path.relative_to(root).as_posix() for path in found]


def _file(root: pathlib.Path, seed: int) -> pathlib.Path:
    """Returns the file with the records of a sample. An occurrence identifies a change only in unchanged code."""
    return covering.CACHE / f'seed_{seed}-{covering.digest(root)}.jsonl'


def _side_by_side(sample: list[sites.Mutant]) -> list[sites.Mutant]:
    """Interleaves the rooms in a sample, so that a run that is stopped has tried the same share of each room."""
    by_room = [[m for m in sample if m.room == room] for room in sorted({m.room for m in sample})]
    ranked = [(i / len(mutants), m.room, m) for mutants in by_room for i, m in enumerate(mutants)]
    return [mutant for _, _, mutant in sorted(ranked, key=lambda r: r[:2])]


def _is_due(record: dict[str, Any] | None, again: bool) -> bool:
    if record is None or record['outcome'] == UNDECIDED:
        return True
    return again and record['outcome'] in (SURVIVED, UNCOVERED) and table.key(record) not in table.equivalents()


def _difference(source: str, changed: str) -> dict[str, Any]:
    """Returns the number of the first changed line, and its text before and after the change ('' if removed)."""
    before, after = ([(n, line) for n, line in enumerate(s.splitlines(), 1) if line.strip()] for s in (source, changed))
    line, old, new = next((number, old, new) for (number, old), (_, new) in zip(before, after) if old != new)
    return {'line': line, 'before': old.strip(), 'after': '' if len(after) < len(before) else new.strip()}
