"""Damages the files of a run between two starts: checkpoints, a line of metrics, and compiled programs."""

import os
import pathlib
import random
import shutil
import signal
from collections.abc import Iterator

from tools.faults import runs


def begun(folder: pathlib.Path, base: runs.Base, imported: bool) -> None:
    """Creates a run that is killed while it writes its fifth checkpoint."""
    run = runs.Held(folder, base.flags, base.cache, imported)
    assert run.reaches('checkpoint', 5)
    run.hurt(signal.SIGKILL)


def cut(file: pathlib.Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def flip(file: pathlib.Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def checkpoint(folder: pathlib.Path, base: runs.Base, how, rng: random.Random, imported: bool = False) -> dict:
    """Truncates a file of the newest checkpoint (`cut`) or flips one of its bits (`flip`)."""
    begun(folder, base, imported)
    *_, newest = runs.saved_steps(folder)
    files = sorted(p for p in (folder / 'checkpoints' / str(newest)).rglob('*') if p.is_file() and p.stat().st_size)
    how(file := rng.choice(files), rng)
    same, code, stderr = runs.finish(folder, base, imported)
    name = 'checkpoint cut short' if how is cut else 'checkpoint with another bit'
    return dict(fault=name, phase='between', file=file.name, exit=code, same=same, said=runs.said(stderr, folder))


def every_checkpoint(folder: pathlib.Path, base: runs.Base, rng: random.Random, imported: bool = False) -> dict:
    """Truncates all checkpoints. Training must not overwrite them."""
    begun(folder, base, imported)
    for step in runs.saved_steps(folder):
        for file in (folder / 'checkpoints' / str(step) / 'state' / 'd').iterdir():
            cut(file, rng)
    before = runs.checkpoints(folder)
    code, stderr = runs.Held(folder, base.flags, base.cache, imported).end()
    kept = before == runs.checkpoints(folder)
    refused = code == 2 and not (folder / 'results.json').exists()
    said = runs.said(stderr, folder)
    return dict(fault='every checkpoint cut short', phase='between', exit=code, kept=kept, same=refused, said=said)


def metrics(folder: pathlib.Path, base: runs.Base, rng: random.Random, imported: bool = False) -> dict:
    """Truncates the last line of metrics.jsonl."""
    run = runs.Held(folder, base.flags, base.cache, imported)
    assert run.reaches('step', rng.choice([n for n in range(10, 60) if n % 5]))
    run.hurt(signal.SIGKILL)
    text = (path := folder / 'metrics.jsonl').read_bytes()
    start = text.rindex(b'\n', 0, len(text) - 1) + 1
    path.write_bytes(text[: rng.randrange(start, len(text) - 1)])
    same, code, stderr = runs.finish(folder, base, imported)
    return dict(fault='metrics line cut short', phase='between', exit=code, same=same, said=runs.said(stderr, folder))


def compiled(folder: pathlib.Path, base: runs.Base, rng: random.Random, imported: bool = False) -> dict:
    """Truncates every cached compiled program."""
    cache = folder.with_name(f'{folder.name}.cache')
    shutil.copytree(base.cache, cache)
    for file in (cache / 'compiled').iterdir():
        cut(file, rng)
    code, stderr = runs.Held(folder, base.flags, cache, imported).end()
    same = code == 0 and runs.outcome(folder) == base.unbroken
    return dict(
        fault='compiled programs cut short', phase='between', exit=code, same=same, said=runs.said(stderr, folder)
    )


def measure(folder: pathlib.Path, base: runs.Base, rng: random.Random) -> Iterator[dict]:
    """Injects each fault at different random positions."""
    for number in range(8):
        for how in (cut, flip):
            yield checkpoint(folder / f'{how.__name__}{number}', base, how, rng, imported=True)
    for number in range(3):
        yield every_checkpoint(folder / f'every{number}', base, rng, imported=True)
        yield metrics(folder / f'metrics{number}', base, rng, imported=True)
        yield compiled(folder / f'compiled{number}', base, rng, imported=True)
