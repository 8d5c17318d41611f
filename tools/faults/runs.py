"""A small training run in a child process that pauses at chosen phases for faults, and the run's invariant results."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from nplm_jax.data import vocabulary_files
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.runs import workdir
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import CheckpointStore
from tools.faults import child

ROOT = pathlib.Path(__file__).parents[2]
KEPT = 3  # checkpoints


def text(folder: pathlib.Path) -> tuple[str, ...]:
    """Writes a text to `folder`. Returns flags that train a small network on the text beyond its best validation."""
    rng = random.Random(0)
    words = (f'w{int(rng.paretovariate(0.7)) % 300}' for _ in range(4_000))
    (folder / 'text').write_text(' '.join(words))
    return (
        '--config=configs/text.py', f'--config.corpus.path={folder / "text"}', '--config.model.n=3',
        '--config.model.m=8', '--config.model.h=16', '--config.train.batch_size=32',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Base:
    """The reference for runs with faults: the flags, a cache of compiled programs, and the outcome without faults."""

    flags: tuple[str, ...]
    cache: pathlib.Path
    unbroken: dict


def unbroken(folder: pathlib.Path) -> Base:
    """Trains without a fault: 600 updates in 120 chunks, with 15 evaluations and 12 checkpoints."""
    flags = (
        *text(folder), '--config.train.epochs=6', '--config.train.patience=99', '--config.train.evaluate_every=40',
        '--config.train.checkpoint_every=50', '--config.train.log_every=5', '--config.train.steps_per_execution=5',
    )  # fmt: skip
    base = Base(flags, folder / 'cache', {})
    base.cache.mkdir()
    _, _, stderr = finish(folder / 'unbroken', base)
    assert not stderr, stderr
    return dataclasses.replace(base, unbroken=outcome(folder / 'unbroken'))


def environment(cache: pathlib.Path) -> dict[str, str]:
    """Returns an environment in which all compiled programs are cached in `cache`, to speed up the next start."""
    kept = dict(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0', JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES='-1')
    return {**os.environ, **kept, 'NPLM_JAX_CACHE': str(cache), 'JAX_PLATFORMS': 'cpu'}


def start(folder: pathlib.Path, flags: tuple[str, ...], **options) -> subprocess.Popen:
    """Starts the command in the same way as a user does."""
    return subprocess.Popen(
        [sys.executable, 'launch.py', *flags, f'--workdir={folder}'],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


class Held:
    """A process of the command that waits at the beginning and end of each phase. See `child`.

    If `imported` is True, the process starts after the imports, which multiprocessing's forkserver performs only once.
    Such a process first calls `prepare`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        flags: tuple[str, ...],
        cache: pathlib.Path,
        imported: bool = False,
        prepare: Callable[[], None] | None = None,
    ):
        self._connection, child_end = multiprocessing.Pipe()
        self._waits = False  # whether the process waits for an answer
        number, name = tempfile.mkstemp()  # not in the run's folder, because its disk may be full
        os.close(number)
        self._stderr = pathlib.Path(name)
        flags, env = [*flags, f'--workdir={folder}'], environment(cache)
        if imported:
            arguments = child_end, flags, env, str(self._stderr), prepare
            process = _forkserver().Process(target=child.forked, args=arguments)
            process.start()
            self._wait = lambda seconds: process.join(seconds) or process.exitcode
            self.alive = process.is_alive
        else:
            with self._stderr.open('w') as stderr:
                process = subprocess.Popen(
                    [sys.executable, '-m', 'tools.faults.child', str(child_end.fileno()), *flags],
                    cwd=ROOT, env=env, pass_fds=[child_end.fileno()], stdout=subprocess.DEVNULL, stderr=stderr,
                )  # fmt: skip
            self._wait, self.alive = process.wait, lambda: process.poll() is None
        child_end.close()
        self.pid = process.pid

    def messages(self) -> Iterator[tuple[str, str]]:
        """Yields the messages of the process until it ends. Answers each message when the next message is requested."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._answer()
                assert self._connection.poll(300), 'no message from the process for five minutes'
                message = self._connection.recv()
                self._waits = True
                yield message

    def _answer(self, seconds: float = 0) -> None:
        if self._waits:
            self._connection.send(seconds)
            self._waits = False

    def reaches(self, phase: str, visit: int = 1) -> bool:
        """Lets the process continue until the start of the phase. Returns False if the process ended earlier."""
        for message in self.messages():
            visit -= message == ('enter', phase)
            if not visit:
                return True
        return False

    def linger(self, phase: str, seconds: float) -> None:
        """Lets the process continue for `seconds`, or to the end of the phase. It may stop in any file operation."""
        until = time.monotonic() + seconds
        self._answer()
        while self._connection.poll(max(0, until - time.monotonic())):
            message = self._connection.recv()
            self._waits = True
            if message == ('leave', phase) or time.monotonic() >= until:
                return
            self._answer()

    def jump(self, seconds: float) -> None:
        """Moves the wall clock of the held process, and lets it continue until its next message."""
        self._answer(seconds)

    def let_go(self) -> None:
        """Lets the process continue without further holds."""
        self._connection.close()

    def hurt(self, number: int) -> tuple[int, str]:
        """Sends a signal. Returns the exit code and the last message."""
        os.kill(self.pid, number)
        return self.end()

    def end(self, seconds: float = 900) -> tuple[int | None, str]:
        """Lets the process finish. Returns its exit code, or None if it had to be killed, and its stderr."""
        self._connection.close()
        if (code := self._wait(seconds)) is None:
            os.kill(self.pid, signal.SIGKILL)
            self._wait(60)
        stderr = self._stderr.read_text()
        self._stderr.unlink()
        return code, stderr


@functools.cache
def _forkserver():
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(
        ['nplm_jax.cli.launch', 'nplm_jax.runs.experiment', 'configs.text', 'matplotlib.figure']
    )
    return context


def finish(folder: pathlib.Path, base: Base, imported: bool = False) -> tuple[bool, int, str]:
    """Runs the command again. Returns whether it ends as the run without faults did, its exit code and its stderr."""
    if imported:
        code, stderr = Held(folder, base.flags, base.cache, imported).end()
    else:
        process = start(folder, base.flags, env=environment(base.cache))
        _, stderr = process.communicate(timeout=900)
        code = process.returncode
    return code == 0 and outcome(folder) == base.unbroken, code, stderr


def outcome(folder: pathlib.Path) -> dict:
    """Returns the results that must not depend on faults: the last state and best parameters in bits, and numbers."""
    settings, words = workdir.read_settings(folder), vocabulary_files.load(folder / workdir.VOCABULARY)
    program = make_program(settings, network_from_settings(settings, len(words)), steps_per_epoch=1)
    example = jax.eval_shape(lambda: step_lib.init_state(program, settings.seed, settings.optimizer.hyperparams))
    with contextlib.closing(CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        state, best, progress = store.restore(example, example.params)
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves((state, best)):
        digest.update(np.asarray(leaf).tobytes())
    results = json.loads((folder / 'results.json').read_text())
    rows = reporting.read_metrics(folder / 'metrics.jsonl')
    return {
        'parameters': digest.hexdigest(),
        'progress': {k: v for k, v in progress.items() if 'seconds' not in k},
        **{k: results[k] for k in ('perplexity', 'mixture', 'updates', 'best_update', 'words')},
        'metrics': [(row['step'], sorted(row), row.get('valid_perplexity')) for row in rows],
        'checkpoints': saved_steps(folder),
        'folder': sorted(p.name for p in folder.iterdir()),
    }


def saved_steps(folder: pathlib.Path) -> list[int]:
    """Returns the update numbers of all checkpoints, complete or not."""
    return sorted(int(p.name) for p in (folder / 'checkpoints').glob('[0-9]*') if p.name.isdigit())


def checkpoints(folder: pathlib.Path) -> dict[int, str]:
    """Returns a digest of the files of each checkpoint."""
    digests = {}
    for step in saved_steps(folder):
        digest = hashlib.sha256()
        for file in sorted(p for p in (folder / 'checkpoints' / str(step)).rglob('*') if p.is_file()):
            digest.update(str(file).encode() + file.read_bytes())
        digests[step] = digest.hexdigest()
    return digests


def lost(before: dict[int, str], after: dict[int, str]) -> list[int]:
    """Returns the checkpoints that changed or disappeared although fewer than `KEPT` newer ones exist."""
    return [s for s, d in before.items() if after.get(s) != d and sum(n > s for n in after) < KEPT]


def reported(folder: pathlib.Path) -> int:
    """Returns the last update in metrics.jsonl."""
    return max((row['step'] for row in reporting.read_metrics(folder / 'metrics.jsonl')), default=0)


def said(stderr: str, folder: pathlib.Path) -> str:
    """Returns the last line of stderr, or all of stderr if it contains a traceback. `folder` is replaced by DIR."""
    stderr = stderr.replace(str(folder), 'DIR')
    if 'Traceback' in stderr or 'Exception ignored' in stderr:
        return stderr
    lines = [line for line in stderr.splitlines() if line.strip()]
    return re.split('; resume (all processes )?with', lines[-1])[0] if lines else ''
