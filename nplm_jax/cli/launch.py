"""The entry point of `launch.py`, `nplm train` and `nplm sweep`. Reports expected failures in one line.

This module does not import JAX, so that help texts and errors in flags are printed quickly.
"""

import os
import sys
import traceback
from collections.abc import Sequence

from absl import app, flags

from nplm_jax.cli import exits, launch_flags, scheduler
from nplm_jax.cli.exits import exit_with, exit_with_loss
from nplm_jax.cli.launch_flags import DISTRIBUTED, SCHEDULER
from nplm_jax.reporting.shell import command_line, find_modules_here, hide_passwords, prepare_streams, python_command
from nplm_jax.runs.command_line import explain
from nplm_jax.runs.signals import Terminated
from nplm_jax.utils.errors import BadInput, first_line

for _module in (launch_flags, *(extension.flags for extension in launch_flags.extensions())):
    flags.adopt_module_key_flags(_module)  # --help lists them

_MODULE = ('-m', 'nplm_jax.cli.launch')


def main(argv: list[str], command: str = '', program: Sequence[str] = _MODULE) -> None:
    """Runs the command, and exits with a one-line message if an expected failure occurs.

    Args:
        argv: The program name and the arguments of the command line.
        command: The command line that resumes the run. The default is the name of Python, followed by `argv`.
        program: The Python arguments that start the processes of a job.
    """
    prepare_streams()
    command = hide_passwords(command or command_line([python_command(), *argv]))
    try:
        from nplm_jax.cli import launched

        with scheduler.use(SCHEDULER.value if flags.FLAGS.is_parsed() else None):
            launched.run(command, program)
        if DISTRIBUTED.value and launched.is_primary():
            exits.decide(0)  # the results are written, so the loss of another process during exit is no failure
    except BadInput as error:
        exit_with(2, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(1, f'the output pipe was closed; resume with: {command}')
    except (KeyboardInterrupt, Terminated) as stop:
        code = 143 if isinstance(stop, Terminated) else 130
        exit_with(code, f'stopped; resume with: {command}')
    except Exception as error:
        if not DISTRIBUTED.value:
            raise
        if launched.is_lost_process(error):
            exit_with_loss(first_line(error)[:200], command)
        exit_with(1, traceback.format_exc().rstrip())  # not collective, because the other processes detect it


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags for absl.app. If a flag is invalid, prints a one-line message and exits with code 2."""
    find_modules_here()
    try:
        return launch_flags.parse(argv)
    except (BadInput, flags.Error) as error:
        exit_with(2, str(explain(error)), collective=True)  # every process fails here, before JAX has started


if __name__ == '__main__':
    app.run(main, flags_parser=parse_flags)
