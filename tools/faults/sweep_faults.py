"""Faults in a sweep whose points train together in one process (--vectorize)."""

import contextlib
import dataclasses
import os
import pathlib
import random
import signal
import time
from collections.abc import Iterator

from tools.faults import disks, groups, kills, runs

POINTS = tuple(f'seed_{seed}' for seed in range(1, 4))
VISITS = {'files': 3, 'step': 3, 'evaluation': 4, 'checkpoint': 4, 'figure': 3, 'mixture': 3, 'result': 3}
PLACES = ('files', 'compile', 'step', 'evaluation', 'checkpoint', 'step', 'checkpoint', 'figure', 'mixture', 'result')
CLOCKS = {'clock +1 h': 3600, 'clock -1 h': -3600}
FROZEN = 'SIGSTOP, goes on'
IN_USE = 'is in use by another process; wait or choose another folder'

DISK = "one point's disk full"
PLANS: dict[str, list[tuple[str, str]]] = {
    'sweep.0': [*(('kill -9', phase) for phase in PLACES), ('clock +1 h', 'result')],
    'sweep.1': [('SIGTERM', phase) for phase in PLACES[:5] + PLACES[7:]],
    'sweep.2': [(DISK, phase) for phase in ('compile', 'step', 'evaluation', 'checkpoint', 'figure', 'mixture')],
    'sweep.3': [],  # two sweeps at once
    'sweep.4': [(FROZEN, 'step')],
    'sweep.5': [*(('kill -9', phase) for phase in PLACES), ('clock -1 h', 'result')],
    'sweep.6': [('SIGTERM', 'step'), ('SIGTERM', 'checkpoint'), (FROZEN, 'checkpoint')],
}


def unbroken(folder: pathlib.Path) -> runs.Base:
    """Trains three points without a fault."""
    folder.mkdir()
    flags = (*groups.flags(folder), '--vectorize', '--grid=seed=1,2,3')
    base = runs.Base(flags, folder / 'cache', {})
    base.cache.mkdir()
    code, stderr = _start(folder / 'unbroken', base).end()
    assert code == 0 and not stderr, stderr
    return dataclasses.replace(base, unbroken=outcome(folder / 'unbroken'))


def outcome(folder: pathlib.Path) -> dict:
    """Returns those results of each point that must not depend on faults."""
    return {point: groups.outcome(folder / point) for point in POINTS}


def _start(folder: pathlib.Path, base: runs.Base) -> runs.Held:
    return runs.Held(folder, base.flags, base.cache, imported=True)


def _checkpoints(folder: pathlib.Path) -> dict[str, dict[int, str]]:
    return {point: runs.checkpoints(folder / point) for point in POINTS}


def _kept(before: dict[str, dict[int, str]], folder: pathlib.Path) -> bool:
    after = _checkpoints(folder)
    return not any(runs.lost(before[point], after[point]) for point in POINTS)


def _record(fault: str, phase: str, code: int | None, stderr: str, folder: pathlib.Path, kept: bool = True) -> dict:
    lines = [line for line in stderr.splitlines() if line and 'then stopping' not in line]
    said = runs.said(stderr, folder)
    return {'fault': fault, 'processes': 1, 'who': 'sweep', 'phase': phase, 'exit': [code], 'others': [],
            'said': said, 'others_said': '', 'lines': len(lines), 'kept': kept}  # fmt: skip


def hurt(folder: pathlib.Path, base: runs.Base, fault: str, phase: str, rng: random.Random) -> dict | None:
    """Injects a fault in a phase: a jump of the clock, SIGSTOP followed by SIGCONT, or another signal."""
    before, run = _checkpoints(folder), _start(folder, base)
    if not run.reaches(phase, rng.randint(1, VISITS.get(phase, 1))):
        run.end()
        return None
    if fault in CLOCKS:
        run.jump(CLOCKS[fault])
        code, stderr = run.end()
    elif fault == FROZEN:
        os.kill(run.pid, signal.SIGSTOP)
        time.sleep(1.5)
        code, stderr = run.hurt(signal.SIGCONT)
    else:
        run.linger(phase, rng.uniform(0, kills.LONGEST[phase]))
        code, stderr = run.hurt(kills.SIGNALS[fault])
    return _record(fault, phase, code, stderr, folder, _kept(before, folder))


def full_disk(folder: pathlib.Path, base: runs.Base, phase: str, rng: random.Random) -> dict | None:
    """Fills the disk of only one point, which contains `folder / POINTS[1]`."""
    run = _start(folder, base)
    if not run.reaches(phase, rng.randint(1, VISITS.get(phase, 1))):
        run.end()
        return None
    before, filler = _checkpoints(folder), disks.fill(folder / POINTS[1])
    code, stderr = run.end()
    filler.unlink()
    return _record(DISK, phase, code, stderr, folder, _kept(before, folder))


def two_sweeps(folder: pathlib.Path, base: runs.Base) -> list[dict]:
    """Starts a sweep twice concurrently. Each process trains the points it can lock, and reports the others."""
    first = _start(folder, base)
    assert first.reaches('step')
    code, stderr = _start(folder, base).end()
    record = _record('two sweeps', 'step', code, stderr, folder)
    said = stderr.splitlines()
    record['lines'] = 1 if len(said) == len(POINTS) and all(line.endswith(IN_USE) for line in said) else len(said)
    return [{**record, 'others': [first.end()[0]]}]


def finished(folder: pathlib.Path, base: runs.Base) -> bool:
    """Starts the sweep again. Returns whether every point ends in the same way as in the sweep without faults."""
    code, _ = _start(folder, base).end()
    return code == 0 and outcome(folder) == base.unbroken


def _chain(folder: pathlib.Path, base: runs.Base, faults: list[tuple[str, str]], rng: random.Random) -> list[dict]:
    """Yields the records of one sweep, with each fault in turn."""
    records = []
    for fault, phase in faults:
        if fault == DISK:
            records.append(full_disk(folder, base, phase, rng))
        else:
            records.append(hurt(folder, base, fault, phase, rng))
    return [record for record in records if record]


def measure(folder: pathlib.Path, done: set[str]) -> Iterator[dict]:
    """Yields the records of the chains that are not in `done`."""
    base = unbroken(folder / 'base')
    for name, faults in PLANS.items():
        if name in done:
            continue
        place = folder / name
        place.mkdir()
        with disks.small_disk(place / POINTS[1]) if faults[:1] == [(DISK, 'compile')] else contextlib.nullcontext():
            records = _chain(place, base, faults, random.Random(name)) if faults else two_sweeps(place, base)
            same = finished(place, base)
        for record in records:
            yield {'chain': name, **record, 'same': same}
