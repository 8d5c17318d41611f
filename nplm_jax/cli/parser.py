"""Defines the argument parser of the commands without importing JAX, so that help texts are printed quickly."""

import argparse
import math
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from nplm_jax.cli.outputs import require_new, require_writable
from nplm_jax.config import plugins
from nplm_jax.reporting.shell import find_modules_here
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.names import did_you_mean, require_one_of

CONTEXT = """Each line, prompt or item is read after a context that is not scored: a <p> if the run's corpus has
paragraph marks, a newline if newlines are tokens (corpus.tokens=pieces, characters or bytes), and otherwise nothing."""
TEXT_START = f"""{CONTEXT}
Boundary tokens in the text itself (<s>, </s>, <p>, <text>) are skipped, unless newlines are tokens."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps the line breaks of descriptions and adds defaults to help texts that lack them."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ''
        is_help = isinstance(action, argparse._HelpAction)
        if not action.option_strings or action.required or is_help or 'default' in text:
            return text
        return f'{text}; default: {"no" if action.default is False else "%(default)s"}'


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line with exit code 2.

    Attributes:
        passes_on: Whether other code parses the arguments after the first. If True, `parse_args` returns only `typed`.
    """

    def __init__(self, command: str, description: str | None) -> None:
        super().__init__(f'nplm {command}', description=description, formatter_class=_Formatter, allow_abbrev=False)
        self._command = command
        self.passes_on = False
        self._max_runs: int | None = 0
        self._has_prompt = False
        self._output: argparse.Action | None = None
        self._may_be_folder = False
        self._owned: list[tuple[argparse.Action, list[str]]] = []
        self._writers: list[str] = []  # the flags with which --overwrite can be used
        self.register('type', float, finite_number)
        self.register('type', int, integer)

    def add_runs(self, at_most: int | None = None, loads: bool = True) -> None:
        """Adds positional run folders, which `parse_args` stores in `runs`.

        Args:
            at_most: The maximum number of runs, or None for any number.
            loads: Whether the command loads the models, which may need plug-ins.
        """
        self._max_runs = at_most
        nargs = '?' if at_most == 1 else '*'
        self.add_argument(
            'runs',
            nargs=nargs,
            metavar='RUN',
            help='folder of a run, such as runs/brown-mlp9, or file written by `nplm pack`',
        )
        if loads:
            self.add_plugins()

    def add_plugins(self) -> None:
        """Adds --plugins. `parse_args` then allows plug-ins from the modules that the flag names."""
        what = 'modules that may be imported for the plug-ins of the runs, such as my_models,my_tokens'
        self.add_argument('--plugins', metavar='MODULE[,MODULE]', default='', help=f'{what}; default: none')

    def add_model_flags(self, mixed: bool = True) -> None:
        """Adds the flags of commands that load finished runs.

        Args:
            mixed: Whether the command mixes several runs, and thus needs flags for the mixture.
        """
        self.add_runs(None if mixed else 1)
        if mixed:
            weights = (
                'weights of the runs in the mixture: numbers that sum to one, such as 0.7,0.3, or a file written by '
                '`nplm mix --output=FILE`; default: equal weights'
            )
            self.add_argument('--weights', default='', help=weights)
        self.add_tokens()

    def add_tokens(self) -> None:
        """Adds --tokens."""
        kinds = (
            'how to split text into words: words (also splits off punctuation) | whitespace (for tokenized text); '
            'default: as for the corpus of the first run, with punctuation split off if the vocabulary requires it'
        )
        self.add_argument('--tokens', choices=('words', 'whitespace'), default='', help=kinds)

    def add_switch(self, name: str, help: str) -> None:
        """Adds a flag without a value."""
        self.add_argument(name, action='store_true', help=help)

    def add_owned(self, owner: str, *names: str, **options: Any) -> None:
        """Adds a flag that requires the flag `owner`. `options` are passed to `add_argument`."""
        self._owned.append((self.add_argument(*names, **options), [owner]))

    def add_overwrite(self, *writers: str) -> None:
        """Adds --overwrite unless it was added before. The flag can be used only with a flag in `writers`."""
        if not self._writers:
            action = self.add_argument('--overwrite', action='store_true', help='replace existing output files')
            self._owned.append((action, self._writers))
        self._writers += writers

    def add_prompt(self) -> None:
        """Adds --prompt. If a run does not exist, `parse_args` suggests to give the text with this flag."""
        self._has_prompt = True
        self.add_argument(
            '--prompt', default='', help='text to continue; default: an empty text at the start of a paragraph'
        )

    def add_context(self, unit: str = 'item') -> None:
        """Adds --context, which gives the words before each item. The help text calls an item `unit`."""
        context = (
            f'text that precedes each {unit} and is not scored; may be empty; default: <p> if the corpus of the runs '
            'has paragraph marks, as in `nplm score`'
        )
        self.add_argument('--context', metavar='TEXT', help=context)

    def add_columns(self) -> None:
        """Adds --item, --zone and --word, which name the columns of a table (--table) with one row per word."""
        items = (
            'column that identifies the items, or several columns that together identify them, such as item,condition'
        )
        self.add_owned('table', '--item', default='item', metavar='COLUMN[,COLUMN]', help=items)
        for column in ('zone', 'word'):
            self.add_owned(
                'table', f'--{column}', default=column, metavar='COLUMN', help=f'column that contains the {column}s'
            )

    def add_figure(self, help: str) -> None:
        """Adds --figure, which `parse_args` checks like --output, and --overwrite."""
        self.add_argument('--figure', default='', metavar='FILE.png', help=help)
        self.add_overwrite('figure')

    def add_scheduler(self) -> None:
        """Adds --scheduler. See `scheduler.use`."""
        what = 'address of a Dask scheduler whose workers score texts of more than 65,536 words; default: this machine'
        self.add_argument('--scheduler', default='', metavar='tcp://HOST:PORT', help=what)

    def add_json(self) -> None:
        """Adds --json."""
        self.add_switch('--json', 'print the results as a JSON object')

    def add_output(
        self, help: str, metavar: str | None = None, required: bool = False, may_be_folder: bool = False
    ) -> None:
        """Adds --output, a file to write, and --overwrite.

        `parse_args` raises BadInput if the file is not writable, or if it exists and --overwrite is not given.

        Args:
            help: The help text.
            metavar: The name of the value in --help.
            required: Whether the flag is required.
            may_be_folder: Whether the output may be a folder. If True, `parse_args` does not check it, and the command
                calls `require_writable`.
        """
        options: dict[str, Any] = {'metavar': metavar, 'required': required, 'default': ''}
        self._output = self.add_argument('-o', '--output', help=help, **options)
        self._may_be_folder = may_be_folder
        self.add_overwrite('output')

    def add_results(self, help: str = 'JSON file to write the results to; default: none') -> None:
        """Adds --output, with the given help text, and --json. See `print_results`."""
        self.add_output(help)
        self.add_json()

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Parses flags and positional arguments in any order. `typed` contains the command and all of its arguments.

        Raises:
            BadInput: No run is given, or a flag is given without the flag that it requires.
        """
        words = list(sys.argv[1:] if args is None else args)
        if self.passes_on and not {'-h', '--help'}.isdisjoint(words):
            words = ['--help']
        elif self.passes_on and words and not words[0].startswith('-'):
            return argparse.Namespace(typed=[self._command, *words])
        flags, unknown = self.parse_known_intermixed_args(words, namespace)
        flags.typed = [self._command, *words]
        if unknown:
            self._refuse(unknown)
        if modules := getattr(flags, 'plugins', ''):
            plugins.trust_in_process(name for name in map(str.strip, modules.split(',')) if name)
        if plugins.allowed():  # plug-ins may be in the working folder; nothing else is imported from it
            find_modules_here()
        if self._max_runs != 0:
            positional = flags.runs if isinstance(flags.runs, list) else [flags.runs] if flags.runs else []
            if mistyped := [word for word in positional if word.startswith('--')]:  # argparse allows no space in a flag
                self._refuse(mistyped)
            flags.runs = positional
            require(bool(flags.runs), 'RUN', '', f'must be the folder of a run, as in: {self.prog} RUN')
            for word in flags.runs[1:] if self._has_prompt else ():
                _suggest_prompt(word)
        if isinstance(figure := getattr(flags, 'figure', ''), str):  # in experiments, --figure is a switch
            require(not figure or figure.endswith('.png'), '--figure', figure, 'must end in .png')
            if figure:
                require_new('--figure', flags, figure)
                require_writable('--figure', figure)
        if self._output and (flags.output or self._output.required):
            require(bool(flags.output), '--output', '', 'must name a file')
            require_new('--output', flags)
            if not self._may_be_folder:
                require_writable('--output', flags.output)
        for action, owners in self._owned:
            value = getattr(flags, action.dest)
            belongs = value == action.default or any(getattr(flags, owner) for owner in owners)
            require(belongs, f'--{action.dest}', value, f'requires --{" or --".join(owners)}')
        return flags

    def _refuse(self, words: Sequence[str]) -> NoReturn:
        """Ends the process because of unrecognized arguments. The message suggests the nearest flag and --help."""
        name = re.split(r'[=\s]', words[0].lstrip('-'))[0]
        known = [flag.removeprefix('--') for flag in self._option_string_actions if flag.startswith('--')]
        advice = f'{self.prog} --help lists the flags{did_you_mean(name, known, prefix="--")}'
        self.error(f'unrecognized arguments: {" ".join(words)}; {advice}')

    def error(self, message: str) -> NoReturn:
        """Prints a message on stderr and ends the process with exit code 2."""
        print(message, file=sys.stderr)
        sys.exit(2)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Converts the value of a flag. Raises BadInput if its type rejects the text. Called by argparse."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            raise BadInput(_key(action), error.message, value=arg_string) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raises BadInput if a value is not among the choices of a flag. Called by argparse."""
        if action.choices is not None:
            require_one_of(_key(action), value, action.choices)


def _suggest_prompt(word: str) -> None:
    """Raises BadInput if a run does not exist. The message suggests --prompt, because the word may be a prompt."""
    from nplm_jax.reporting import catalog  # slow to import

    advice = f'is not a run; if it is the prompt, use --prompt={shlex.quote(word)}'
    require(catalog.exists(word), 'RUN', word, f'{advice}; {catalog.suggest(catalog.find_run(word))}')


def _key(action: argparse.Action) -> str:
    """Returns the name that messages use for a flag or a positional argument."""
    return '/'.join(action.option_strings) or action.dest


def finite_number(text: str) -> float:
    """Parses a finite number. Raises ArgumentTypeError for any other text."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError('must be a finite number')
    return number


def integer(text: str) -> int:
    """Parses a 32-bit integer. Raises ArgumentTypeError for any other text."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError('must be an integer') from None
    if not -(2**31) <= number < 2**31:
        raise argparse.ArgumentTypeError('must be an integer between -2**31 and 2**31 - 1')
    return number
