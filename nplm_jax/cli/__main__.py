"""Entry point of the command `nplm COMMAND ... [--flags]`."""

import os
import sys
from collections.abc import Sequence

from nplm_jax.cli import commands
from nplm_jax.config import plugins
from nplm_jax.reporting.shell import prepare_streams
from nplm_jax.utils.errors import BadInput, NonFiniteError
from nplm_jax.utils.names import did_you_mean

_TRAINING = 'train', 'sweep'  # commands that report expected failures themselves
USAGE = """usage: nplm COMMAND ... [--flags]

Train and use language models. RUN is the folder of a run created by `nplm train` or `nplm import`.
Run `nplm COMMAND --help` for examples of a command and its flags, defaults and output.

"""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command named by the first argument.

    If the input is invalid, prints a one-line message and exits with code 2. If a number is not finite, prints a
    message and exits with code 1. If the output pipe is closed, exits with code 1 and prints nothing. After Ctrl-C,
    exits with code 130.
    """
    prepare_streams()
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ['--help']
    try:
        if name in ('-h', '--help'):
            print(USAGE + '\n'.join(f'  {key:15}{c.summary}' for key, c in commands.all_commands().items()))
        elif command := commands.all_commands().get(name):
            command.run(name, arguments)
        else:
            names = commands.all_commands()
            raise BadInput(name, f'is not a command; the commands are {", ".join(names)}{did_you_mean(name, names)}')
        sys.stdout.flush()
    except (BadInput, NonFiniteError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, BadInput) else 1)
    except KeyboardInterrupt:
        print('interrupted', file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if plugins.raised(error) or name in _TRAINING:  # show the traceback of an unexpected exception
            raise
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == '__main__':
    main()
