"""Entry of `launch.py`, `nplm train` and `nplm sweep`: flags, and one line for every failure that can be expected.

Imports no JAX, so that --help and bad flags answer at once.
"""

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

from absl import app, flags

from nplm_jax.cli import launch_flags, scheduler
from nplm_jax.cli.launch_flags import DISTRIBUTED, SCHEDULER
from nplm_jax.reporting.shell import command_line, find_modules_here, hide_passwords, prepare_streams, python_command
from nplm_jax.runs.command_line import explain
from nplm_jax.runs.signals import Terminated
from nplm_jax.utils.errors import BadInput, first_line

for _module in (launch_flags, *(extension.flags for extension in launch_flags.extensions())):
    flags.adopt_module_key_flags(_module)  # --help lists them

_exit_code: list[int] = []  # decided, once a process waits for nothing but the exit of the others
_MODULE = ('-m', 'nplm_jax.cli.launch')


def main(argv: list[str], command: str = '', program: Sequence[str] = _MODULE) -> None:
    """Runs the command; every expected failure ends in one line and its exit code.

    Args:
        argv: The words of the command line.
        command: The command line to resume with; by default `argv` after Python's name.
        program: What Python runs as the process of a job.
    """
    prepare_streams()
    command = hide_passwords(command or command_line([python_command(), *argv]))
    try:
        from nplm_jax.cli import launched

        try:
            with scheduler.use(SCHEDULER.value if flags.FLAGS.is_parsed() else None):
                launched.run(command, program, exit_with)
            if DISTRIBUTED.value and launched.is_primary():
                _exit_code.append(0)  # the results are written: a process that is lost during its exit is no failure
        except Exception as error:
            if isinstance(error, (BadInput, BrokenPipeError)) or not DISTRIBUTED.value:
                raise
            if launched.is_lost_process(error):
                launched.exit_with_loss(exit_with, first_line(error)[:200], command)
            exit_with(1, traceback.format_exc().rstrip())  # alone: the other processes hear of it
    except BadInput as error:
        exit_with(2, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(1, f'the reader of the output has closed; saved progress is intact; resume with: {command}')
    except (KeyboardInterrupt, Terminated) as stop:
        code = 143 if isinstance(stop, Terminated) else 130
        exit_with(code, f'stopped; saved progress is intact; resume with: {command}')


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags for absl.app; a mistake ends the process with one line and exit code 2."""
    find_modules_here()
    try:
        return launch_flags.parse(argv)
    except (BadInput, flags.Error) as error:
        exit_with(2, str(explain(error)), collective=True)  # before JAX has started, in every process


def exit_with(code: int, message: str, collective: bool = False) -> NoReturn:
    """Prints the message on stderr and ends the process.

    Args:
        code: the exit code.
        message: one line.
        collective: all processes of a --distributed run exit here. A process that exits alone skips JAX's exit
            handlers, which would wait for the others.
    """
    if _exit_code:
        os._exit(_exit_code[0])
    print(message, file=sys.stderr, flush=True)
    if not collective and flags.FLAGS.is_parsed() and DISTRIBUTED.value:
        flush = threading.Thread(target=_flush_stdout, daemon=True)
        flush.start()
        flush.join(5)  # nobody may read stdout
        os._exit(code)
    _exit_code.append(code)
    sys.exit(code)


def _flush_stdout() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()


if __name__ == '__main__':
    app.run(main, flags_parser=parse_flags)
