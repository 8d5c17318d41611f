"""The entry point of every study, which handles flags, `--show`, and one-line messages for expected failures."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from experiments import origins, results
from nplm_jax.cli.parser import Parser, finite_number, integer
from nplm_jax.runs.signals import Terminated
from nplm_jax.utils.errors import BadInput, NonFiniteError, require
from nplm_jax.utils.io import expand

Flags = argparse.Namespace
PACKAGES = {'lm_eval': 'lm-eval', 'sklearn': 'scikit-learn'}  # module -> package for pip, if the names differ


class StudyParser(Parser):
    """The parser of a study. As in `nplm`, errors are reported in one line, with exit code 2."""

    def __init__(self, doc: str) -> None:
        super().__init__('', doc)
        module = sys.modules['__main__'].__spec__
        self.prog = f'python -m {module.name}' if module else os.path.basename(sys.argv[0])
        self._output_suffix = ''
        self._quick: dict[str, Any] = {}

    def add_names(self, flag: str, allowed: Iterable[str], help: str, default: str = 'all') -> None:
        """Adds a flag for a comma-separated subset of `allowed`.

        Args:
            flag: The flag.
            allowed: The names.
            help: The description of the names.
            default: The description of the default in --help. If it is not 'all', the value is None when the flag is
                omitted.
        """
        allowed = list(allowed)

        def names(text: str) -> list[str]:
            if not set(text.split(',')) <= set(allowed):
                raise argparse.ArgumentTypeError(f'must be one or more of {", ".join(allowed)}')
            return text.split(',')

        words = f'{help}: one or more of {", ".join(allowed)}; default: {default}'
        value = allowed if default == 'all' else None
        self.add_argument(flag, type=names, default=value, metavar='NAME,...', help=words)

    def add_count(self, flag: str, default: int, help: str, least: int = 1) -> None:
        """Adds a flag for an integer of at least `least`."""

        def count(text: str) -> int:
            if (number := integer(text)) < least:
                raise argparse.ArgumentTypeError(f'must be between {least} and 2**31 - 1')
            return number

        self.add_argument(flag, type=count, default=default, metavar='N', help=help)

    def add_output_path(self, default: str | os.PathLike[str] = '', help: str = '', folder: bool = False) -> None:
        """Adds --output, the file or folder of the results. `parse_args` returns a path, or '' if there is none.

        Args:
            default: The path if the flag is omitted, or '' for none.
            help: The help text.
            folder: Whether the path is a folder instead of a .json file.
        """
        self._output_suffix = '' if folder else '.json'
        metavar, kind = ('FOLDER', 'folder') if folder else ('FILE.json', 'file')
        help = help or f'{kind} to write the results to'
        self.add_argument('--output', default=os.fspath(default), metavar=metavar, help=help)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Flags | None = None) -> Flags:  # type: ignore[override]
        """Parses the command-line arguments after the module's name. Raises BadInput if a flag is invalid."""
        if '--quick' in (sys.argv[1:] if args is None else args):
            self.set_defaults(**self._quick)
        flags = super().parse_args(args, namespace)
        if output := getattr(flags, 'output', ''):
            flags.output = expand('--output', output)
            suffix = self._output_suffix
            require(flags.output.suffix == suffix or not suffix, '--output', output, f'must end in {suffix}')
        return flags

    def check_output(self, flags: Flags) -> None:
        """Raises BadInput if the results cannot be written."""
        output: pathlib.Path | None = getattr(flags, 'output', None)
        if not output:
            return
        folder = output.parent if self._output_suffix else output
        require(output == folder or not output.is_dir(), '--output', str(output), 'must be a file, not a folder')
        nearest = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        require(nearest.is_dir(), '--output', str(output), f'cannot be written: {nearest} is not a folder')
        require(os.access(nearest, os.W_OK), '--output', str(output), f'cannot be written: {nearest} is read-only')

    def add_quick(self, **defaults: Any) -> None:
        """Adds --quick, a half-minute check that a benchmark works. With --quick, other flags have these defaults."""
        self.add_switch(
            '--quick', 'check at a small size, within half a minute, that everything runs; the numbers are meaningless'
        )
        self._quick = defaults

    def add_until(self, help: str = 'time of day after which nothing is started; default: never') -> None:
        """Adds --until, a time of day. The value is in seconds since the epoch, or 0 if the flag is omitted."""
        self.add_argument('--until', type=time_of_day, default=0.0, metavar='HH:MM', help=help)

    def add_training(self, runs: str) -> None:
        """Adds the flags of a study that trains missing runs: --until, and --runs with the given default."""
        self.add_until('time of day at which to stop; run the same command again to resume; default: never')
        self.add_argument('--runs', default=runs, metavar='DIR', help=f'folder that contains the runs; default: {runs}')


def positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    """Returns the type of a flag whose value is a positive number."""

    def parse(text: str) -> float:
        if not 0 < (number := integer(text) if kind is int else finite_number(text)):
            raise argparse.ArgumentTypeError('must be greater than 0')
        return number

    parse.__name__ = kind.__name__
    return parse


def time_of_day(text: str) -> float:
    """Returns the next occurrence of a time of day such as 17:30, in seconds since the epoch."""
    try:
        clock = datetime.datetime.strptime(text, '%H:%M').time()
    except ValueError:
        raise argparse.ArgumentTypeError('must be a time of day, such as 17:30') from None
    now = datetime.datetime.now()
    then = datetime.datetime.combine(now.date(), clock)
    return (then if then > now else then + datetime.timedelta(days=1)).timestamp()


def run(
    doc: str | None,
    *,
    define: Callable[[StudyParser], None] = lambda parser: None,
    measure: Callable[[Flags], None] | None = None,
    show: Callable[[Flags], str] | None = None,
    measure_if: str = '',
    argv: Sequence[str] | None = None,
) -> None:
    """Runs a study, which either measures or prints the table of the committed results.

    With `measure` and `show`, `--show` prints the table and measures nothing. The table is also printed without
    `--show` if there is no `measure`, or if neither the flag `measure_if` nor `--quick` is given.

    Args:
        doc: The module's docstring, which `--help` prints.
        define: Adds the flags.
        measure: Measures, writes and prints the results.
        show: Returns the table of the committed results.
        measure_if: The flag or argument that selects the measurement, or '' if `measure` needs none.
        argv: The words after the module's name; by default, those of the current process.

    Failures are reported in one line. The exit code is 2 if the input is invalid, 1 if a package or a file is missing
    or a number is not finite, and 130 after Ctrl-C.
    """
    parser = make_parser(doc, define, has_table=show is not None)
    try:
        flags = parser.parse_args(argv)
        is_asked = not measure_if or getattr(flags, measure_if) or getattr(flags, 'quick', False)
        if show and (flags.show or not measure or not is_asked):
            print(shown(show, flags))
        elif measure:
            parser.check_output(flags)
            measure(flags)
    except BadInput as error:
        _end(2, str(error))
    except ModuleNotFoundError as error:
        name = (error.name or '').partition('.')[0]
        if name in ('', 'nplm_jax', 'experiments', 'configs'):
            raise
        _end(1, f'{parser.prog}: needs the package {PACKAGES.get(name, name)}: pip install {PACKAGES.get(name, name)}')
    except subprocess.CalledProcessError as error:
        if error.stderr is None and error.returncode > 0:  # the child has reported the reason
            sys.exit(1)
        _end(1, f'{parser.prog}: {[error, *str(error.stderr or "").splitlines()][-1]}')
    except (NonFiniteError, OSError) as error:
        _end(1, f'{parser.prog}: {error}')
    except (KeyboardInterrupt, Terminated):
        _end(130, 'interrupted')


def make_parser(doc: str | None, define: Callable[[StudyParser], None], has_table: bool) -> StudyParser:
    """Returns the parser of a study's flags."""
    parser = StudyParser(doc or '')
    define(parser)
    if has_table:
        parser.add_switch('--show', 'print the table of the committed results without measuring anything')
    return parser


def shown(show: Callable[[Flags], str], flags: Flags) -> str:
    """Returns the table, with a note if some of its results should not be trusted.

    Raises:
        BadInput: The results lack values that the table shows.
    """
    try:
        with results.loaded() as files:
            table = show(flags)
    except BadInput:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput('results', f'do not match this table ({error!r})') from error
    note = origins.note(files)
    return f'{table}\n\n{note}' if note else table


def _end(code: int, message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)
