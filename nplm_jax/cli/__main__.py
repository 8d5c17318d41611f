"""Commands for trained models: python -m nplm_jax.cli COMMAND --workdir=runs/NAME ..."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from nplm_jax.utils.errors import BadInput, NonFiniteError

COMMANDS = {
    'generate': 'text from a trained model',
    'score': 'how likely a text is, word by word; re-ranking; the likeliest next words',
    'mix': 'the mixture of trained models and its perplexity',
    'features': 'the learned word features: neighbours, maps, files for other tools',
    'explore': 'trained models in a browser',
    'replay': 'one update of a training run, made again',
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command that the first argument names.

    Exits with 2 after bad input and with 1 after numbers that are not finite, both in one line, and with 1 in silence
    when the reader of its output has closed.
    """
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ['--help']
    try:
        if name in ('-h', '--help'):
            lines = '\n'.join(f'  {command:10}{summary}' for command, summary in COMMANDS.items())
            print(f'usage: python -m nplm_jax.cli COMMAND [--help | flags]\n\n{lines}')
        elif name in COMMANDS:
            importlib.import_module(f'nplm_jax.cli.{name}').main(arguments)
        else:
            raise BadInput(f'{name}: no such command; there are {", ".join(COMMANDS)}')
        sys.stdout.flush()
    except (BadInput, NonFiniteError) as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, BadInput) else 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == '__main__':
    main()
