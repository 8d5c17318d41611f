"""Runs launch.py in a process that reports each phase it enters or leaves, and waits for permission to continue.

    python -m tools.faults.child FD FLAG ...

The functions of the program are wrapped without changing its code. A reply may contain the number of seconds by which
to move the clock.
"""

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

PHASES = ('start', 'files', 'compile', 'step', 'evaluation', 'checkpoint', 'figure', 'mixture', 'result')


class Teller:
    """Reports the phase of the process. Does nothing once the other end is closed."""

    def __init__(self, connection: Connection):
        self._connection, self._lock = connection, threading.Lock()
        self._now: list[str] = []

    def say(self, what: str, phase: str) -> None:
        with self._lock:
            if not self._connection.closed:
                try:
                    self._connection.send((what, phase))
                    if seconds := self._connection.recv():
                        jump(seconds)
                except (EOFError, OSError):
                    self._connection.close()

    @contextlib.contextmanager
    def phase(self, name: str):
        self.say('enter', name)
        self._now.append(name)
        yield  # if a phase fails, its end is not reported
        self.say('leave', name)
        self._now.pop()

    def wrap(self, owner, name: str, choose) -> None:
        """Wraps a function to report the phase that `choose` returns for each call."""
        function = getattr(owner, name)

        def wrapped(*args, **kwargs):
            with self.phase(choose()):
                return function(*args, **kwargs)

        setattr(owner, name, wrapped)

    def wrap_operation(self, name: str) -> None:
        """Wraps a system call so that it is reported before it is made, in any phase, as it may be the last call."""
        function = getattr(os, name)

        def wrapped(*args, **kwargs):
            if self._now:
                self.say('operation', self._now[-1])
            return function(*args, **kwargs)

        setattr(os, name, wrapped)


def jump(seconds: float) -> None:
    """Moves this process's wall clock."""
    seconds_now, nanoseconds_now = time.time, time.time_ns
    time.time = lambda: seconds_now() + seconds
    time.time_ns = lambda: nanoseconds_now() + int(seconds * 1e9)


def main(connection: Connection, flags: list[str]) -> None:
    """Runs the command line with `flags`, and reports phases over `connection`."""
    teller = Teller(connection)
    sys.argv = ['launch.py', *flags]
    with teller.phase('start'):
        from nplm_jax.cli import launch, launched  # noqa: PLC0415 (a separate phase)

    run = launched.run

    def watched(*arguments):
        with teller.phase('start'):
            _wrap_all(teller)
        run(*arguments)

    launched.run = watched
    launch.app.run(launch.main, flags_parser=launch.parse_flags)


def _wrap_all(teller: Teller) -> None:
    from nplm_jax.reporting import figures  # noqa: PLC0415
    from nplm_jax.reporting import run_reporter as reporting  # noqa: PLC0415
    from nplm_jax.runs import evaluation, run_inputs, session  # noqa: PLC0415
    from nplm_jax.training import checkpoints, step, train, vmapped  # noqa: PLC0415

    first = ['compile']
    teller.wrap(run_inputs, 'record_inputs', lambda: 'files')
    teller.wrap(reporting.Reporter, 'start', lambda: 'files')
    for owner, name in ((step, 'execute_steps'), (vmapped, 'run_chunks')):
        teller.wrap(owner, name, lambda: first.pop() if first else 'step')
    teller.wrap(train, 'validate', lambda: 'evaluation')
    teller.wrap(checkpoints.CheckpointStore, 'save', lambda: 'checkpoint')
    teller.wrap(figures, 'draw_learning_curve', lambda: 'figure')
    teller.wrap(evaluation, 'mix_with_trigram', lambda: 'mixture')
    teller.wrap(session, 'write_atomically', lambda: 'result')
    for operation in ('fsync', 'replace', 'rename'):
        teller.wrap_operation(operation)


def forked(
    connection: Connection,
    flags: list[str],
    environment: dict[str, str],
    stderr: str,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Runs `prepare` and `main` in a process that multiprocessing has forked after the imports.

    Also runs the exit handlers, which multiprocessing skips: JAX's handler waits for the other processes of the run.
    """
    for number, path in ((1, os.devnull), (2, stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.update(environment)
    _keep_all_programs()
    if prepare:
        prepare()
    try:
        main(connection, flags)
    finally:
        atexit._run_exitfuncs()


def _keep_all_programs() -> None:
    """Makes every process cache its compiled programs. By default, only the first process of a run does so."""
    from jax._src import compiler, distributed  # noqa: PLC0415

    write, state = compiler._cache_write, distributed.global_state

    def write_always(*args):
        number, state.process_id = state.process_id, 0
        try:
            write(*args)
        finally:
            state.process_id = number

    compiler._cache_write = write_always


if __name__ == '__main__':
    main(Connection(int(sys.argv[1])), sys.argv[2:])
