"""A small training as a child process, and what must not depend on what was done to it."""

import os
import pathlib
import random
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def text(folder: pathlib.Path) -> tuple[str, ...]:
    """Makes up a text in `folder`. Returns: flags that train a small network on it, the best long before the last."""
    rng = random.Random(0)
    words = (f'w{int(rng.paretovariate(0.7)) % 300}' for _ in range(4_000))
    (folder / 'text').write_text(' '.join(words))
    return (
        '--config=configs/text.py', f'--config.corpus.path={folder / "text"}', '--config.model.n=3',
        '--config.model.m=8', '--config.model.h=16', '--config.train.batch_size=32',
    )  # fmt: skip


def start(folder: pathlib.Path, flags: tuple[str, ...]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, 'launch.py', *flags, f'--workdir={folder}'],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def saved_steps(folder: pathlib.Path) -> list[int]:
    return sorted(int(p.name) for p in (folder / 'checkpoints').glob('[0-9]*') if p.name.isdigit())
