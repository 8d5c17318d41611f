"""The command-line parser of every command. Imports no JAX, so that --help answers at once."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Reports every mistake in one line, with exit code 2."""

    def __init__(self, command: str, description: str | None) -> None:
        prog, layout = f'python -m nplm_jax.cli {command}', argparse.RawDescriptionHelpFormatter
        super().__init__(prog, description=description, formatter_class=layout, allow_abbrev=False)

    def add_model_flags(self) -> None:
        """Adds the flags of the commands that load finished runs."""
        self.add_argument('--workdir', action='append', required=True, help='the folder of a finished run')
        kinds = ('words', 'whitespace')
        self.add_argument('--tokens', choices=kinds, default='', help="how text is split; default: as the run's corpus")

    def error(self, message: str) -> NoReturn:
        """Ends the process."""
        print(message, file=sys.stderr)
        sys.exit(2)
