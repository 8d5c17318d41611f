"""Faults that are caused by a full disk or a read-only folder."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
from collections.abc import Iterator

from tools.faults import runs
from tools.faults.child import PHASES


def mounts() -> str:
    """Returns the reason why no file system can be mounted, or an empty string if one can be mounted."""
    return '' if os.geteuid() == 0 and not _run('unshare', '--mount', 'true') else 'mounts a file system: needs root'


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size: str = '8m') -> Iterator[pathlib.Path]:
    """Mounts a separate file system at `folder` within the `with` block."""
    folder.mkdir(parents=True)
    assert not (error := _run('mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs', folder)), error
    try:
        yield folder
    finally:
        _run('umount', '--lazy', folder)


@contextlib.contextmanager
def read_only(folder: pathlib.Path) -> Iterator[None]:
    """Makes `folder` read-only within the `with` block, even for root."""
    assert not (error := _run('mount', '--bind', folder, folder)), error
    try:
        assert not (error := _run('mount', '-o', 'remount,ro,bind', folder)), error
        yield
    finally:
        _run('umount', '--lazy', folder)


def fill(folder: pathlib.Path, pages: int = 0) -> pathlib.Path:
    """Fills the disk except for the given number of pages of 4,096 bytes. Returns the file that fills the disk."""
    with (filler := folder / 'filler').open('wb', buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(file.tell() - 4096 * pages)
    return filler


def full(
    folder: pathlib.Path, base: runs.Base, phase: str, visit: int = 1, imported: bool = False, pages: int = 0
) -> dict:
    """Fills the disk, except for some pages, at the start of a phase, and then frees it and restarts the run."""
    with small_disk(folder):
        run = runs.Held(folder / 'run', base.flags, base.cache, imported)
        assert run.reaches(phase, visit)
        filler = fill(folder, pages)
        before = runs.checkpoints(folder / 'run')
        code, stderr = run.end()
        kept = not runs.lost(before, runs.checkpoints(folder / 'run'))
        filler.unlink()
        same, *_ = runs.finish(folder / 'run', base, imported)
    said = runs.said(stderr, folder)
    name = 'disk filled by it' if pages else 'disk full'
    return dict(fault=name, phase=phase, visit=visit, pages=pages, exit=code, kept=kept, same=same, said=said)


def unwritable(folder: pathlib.Path, base: runs.Base, phase: str = '', imported: bool = False) -> dict:
    """Starts in a read-only folder, either empty or of a run killed in `phase`, and then finishes the run."""
    folder.mkdir()
    if phase:
        run = runs.Held(folder, base.flags, base.cache, imported)
        assert run.reaches(phase)
        run.hurt(signal.SIGKILL)
    before = runs.checkpoints(folder)
    with read_only(folder):
        code, stderr = runs.Held(folder, base.flags, base.cache, imported).end()
    kept = before == runs.checkpoints(folder)
    same, *_ = runs.finish(folder, base, imported)
    said = runs.said(stderr, folder)
    return dict(fault='folder read-only', phase=phase or 'files', exit=code, kept=kept, same=same, said=said)


def measure(folder: pathlib.Path, base: runs.Base, rng: random.Random) -> Iterator[dict]:
    """Fills the disk in each phase, twice in phases that recur, and leaves eight amounts of space for a checkpoint.

    Finally, tries three folders that cannot be written.
    """
    for number, phase in enumerate([*PHASES, 'step', 'evaluation', 'checkpoint', 'checkpoint']):
        visit = rng.randint(1, 8 if phase in PHASES[3:6] else 1)
        yield full(folder / f'disk{number}', base, phase, visit, imported=phase != 'start')
    for pages in range(2, 18, 2):
        yield full(folder / f'pages{pages}', base, 'checkpoint', rng.randint(1, 4), imported=True, pages=pages)
    for phase in ('', 'step', 'figure'):
        yield unwritable(folder / f'unwritable{phase}', base, phase, imported=True)


def _run(*command) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ''
