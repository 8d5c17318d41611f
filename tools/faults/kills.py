"""Faults: kill -9 or SIGTERM at random moments in every phase, two starts at once, and a clock that jumps back."""

import os
import pathlib
import random
import signal
import time
from collections.abc import Iterator

from tools.faults import runs

SIGNALS = {'kill -9': signal.SIGKILL, 'SIGTERM': signal.SIGTERM}
# The maximum delay before the fault in each phase [s], which is about the length of the phase on a slow machine.
LONGEST = {
    'start': 3.0, 'files': 0.03, 'compile': 2.5, 'step': 0.01, 'evaluation': 0.05, 'checkpoint': 0.3, 'figure': 0.8,
    'mixture': 0.05, 'result': 0.01,
}  # fmt: skip
VISITS = {'start': 2, 'files': 2, 'step': 25, 'evaluation': 3, 'checkpoint': 3}  # number of visits to a phase, if not 1
DAY = 24 * 3600


def chain(folder: pathlib.Path, base: runs.Base, fault: str, rng: random.Random, imported: bool) -> list[dict]:
    """Injects a fault in each phase of one run, restarts it each time, and compares its final result."""
    rng.shuffle(middle := ['start', 'step', 'evaluation', 'checkpoint'])
    records = []
    for phase in ('files', 'compile', *middle, 'figure', 'mixture', 'result'):
        cold = phase == 'compile' and rng.random() < 1 / 3  # otherwise, the programs are read from the cache
        cache = folder.with_name(f'{folder.name}.cache') if cold else base.cache
        records.append(once(folder, base, fault, phase, rng, imported and phase != 'start', cache))
    same, *_ = runs.finish(folder, base, imported)
    return [{**record, 'same': same} for record in records if record]


def once(folder, base, fault, phase, rng, imported=False, cache=None) -> dict | None:
    """Starts the run and injects a fault at a random moment in the phase. Returns None if the run ended earlier."""
    before = runs.checkpoints(folder)
    run = runs.Held(folder, base.flags, cache or base.cache, imported)
    visit, delay = rng.randint(1, VISITS.get(phase, 1)), rng.uniform(0, LONGEST[phase])
    if not run.reaches(phase, visit):
        run.end()
        return None
    run.linger(phase, delay)
    told = 0 if phase in ('start', 'files', 'compile') else runs.reported(folder)  # last update reported by this start
    hurt = time.monotonic()
    code, stderr = run.hurt(SIGNALS[fault])
    after = runs.checkpoints(folder)
    return {
        'fault': fault,
        'phase': phase,
        'visit': visit,
        'delay': round(delay, 4),
        'exit': code,
        'seconds': round(time.monotonic() - hurt, 2),
        'redone': max(0, told - max(after, default=0)),
        'kept': not runs.lost(before, after),
        'said': runs.said(stderr, folder),
    }


def measure(folder: pathlib.Path, base: runs.Base, rng: random.Random) -> Iterator[dict]:
    """Kills each of 18 runs once in every one of nine phases."""
    for number in range(18):
        yield from chain(folder / f'chain{number}', base, 'kill -9', rng, imported=True)


def measure_stops(folder: pathlib.Path, base: runs.Base, rng: random.Random) -> Iterator[dict]:
    """Stops each of 6 runs in every phase, starts a run twice concurrently, and sets the clock back in four phases."""
    for number in range(6):
        yield from chain(folder / f'chain{number}', base, 'SIGTERM', rng, imported=True)
    yield two(folder / 'two', base, imported=True)
    for number, phase in enumerate(('start', 'step', 'evaluation', 'checkpoint')):
        yield clock(folder / f'clock{number}', base, phase, imported=True)


def clock(folder: pathlib.Path, base: runs.Base, phase: str, imported: bool = False) -> dict:
    """Sets the clock back by a day in the phase, and then kills the run and restarts it.

    At the restart, the modification times of all files are in the future.
    """
    run = runs.Held(folder, base.flags, base.cache, imported)
    assert run.reaches(phase)
    run.jump(-DAY)
    assert run.reaches('checkpoint', 4)
    code, _ = run.hurt(signal.SIGKILL)
    for file in [folder, *folder.rglob('*')]:
        os.utime(file, times=(time.time() + DAY,) * 2)
    same, _, stderr = runs.finish(folder, base, imported)
    return dict(fault='clock back by a day', phase=phase, exit=code, same=same, said=runs.said(stderr, folder))


def two(folder: pathlib.Path, base: runs.Base, imported: bool = False) -> dict:
    """Starts the same command twice concurrently. One process trains, and the other exits with a one-line message."""
    starts = [runs.Held(folder, base.flags, base.cache, imported) for _ in range(2)]
    for run in starts:
        run.let_go()
    (won, _), (code, stderr) = sorted(run.end() for run in starts)
    same = won == 0 and code == 2 and runs.outcome(folder) == base.unbroken
    said = runs.said(stderr, folder)
    return dict(fault='two starts at once', phase='start', exit=code, same=same, said=said)
