"""Ends processes with a one-line message and an exit code. This module does not import JAX."""

import contextlib
import os
import sys
import threading
from typing import NoReturn

from absl import flags

from nplm_jax.cli.launch_flags import DISTRIBUTED

_decided: list[int] = []  # the exit code, which is set once a process only waits for the others to exit


def decide(code: int) -> None:
    """Sets the final exit code of this process. Later failures do not change the code."""
    _decided.append(code)


def exit_with(code: int, message: str, collective: bool = False) -> NoReturn:
    """Prints the message on stderr and ends the process.

    Args:
        code: The exit code.
        message: The message, without line breaks.
        collective: Whether all processes of a --distributed run exit at this point. If False, this process skips JAX's
            exit handlers, because they would wait for the other processes.
    """
    if _decided:
        os._exit(_decided[0])
    print(message, file=sys.stderr, flush=True)
    if not collective and flags.FLAGS.is_parsed() and DISTRIBUTED.value:
        flush = threading.Thread(target=_flush_stdout, daemon=True)
        flush.start()
        flush.join(5)  # with a time limit, because flushing may block if nothing reads stdout
        os._exit(code)
    decide(code)
    sys.exit(code)


def _flush_stdout() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()


def exit_with_loss(reason: str, command: str) -> NoReturn:
    """Ends this process of a --distributed run because another process was lost."""
    exit_with(1, f'another process was lost ({reason}); resume all processes with: {command}')
