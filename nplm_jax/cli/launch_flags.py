"""Defines the flags of `launch.py`, `nplm train` and `nplm sweep`, and checks their combinations.

This module does not import JAX.
"""

import functools
import pathlib
import pkgutil
import types
from typing import Protocol

from absl import flags
from ml_collections import config_flags

from nplm_jax.cli import commands
from nplm_jax.runs.command_line import ConfigParser, check_flags, find_configs
from nplm_jax.utils.errors import BadInput

_argv: list[str] = []  # the words of the command line, where ml_collections looks for overridden keys
CONFIG = config_flags.DEFINE_config_file(
    'config',
    None,
    'Path or name of a config, optionally followed by a colon and a preset, such as brown:mlp9 or my_config.py:large.',
    sys_argv=_argv,
)
flags.FLAGS['config'].parser = ConfigParser()
PRINT_CONFIG = flags.DEFINE_boolean('print_config', False, 'Print every config key, then exit.')
MINUTES = flags.DEFINE_float(
    'minutes', None, 'Choose a network that can be trained on the text in this many minutes on this machine.'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run; default: runs/NAME, followed by the changed keys.')
DISTRIBUTED = flags.DEFINE_boolean('distributed', False, 'Train with several processes that share one device mesh.')
COORDINATOR = flags.DEFINE_string(
    'coordinator', None, 'Address of the first process, as HOST:PORT; default: the address given by SLURM.'
)
PROCESSES = flags.DEFINE_integer('processes', None, 'Number of processes; default: the number given by SLURM.', 1)
PROCESS_ID = flags.DEFINE_integer(
    'process_id', None, 'Index of this process, starting at 0; default: the index given by SLURM.', 0
)
SCHEDULER = flags.DEFINE_string(
    'scheduler',
    None,
    'Address of a Dask scheduler whose workers process large texts, such as tcp://HOST:8786; default: this machine.',
)
HEARTBEAT = flags.DEFINE_integer(
    'heartbeat', 10, 'Seconds without a response after which a process is considered lost.', 5
)


class Extension(Protocol):
    """An extension of `launch.py` that an app provides. It adds flags, and may do other work than a single run.

    Attributes:
        flags: The module that defines the flags.
    """

    flags: types.ModuleType

    @property
    def needs_no_distributed(self) -> tuple[str, ...]:
        """The flags of multi-process runs that the extension also accepts without --distributed."""
        ...

    @property
    def suffix(self) -> str:
        """The suffix that the flags add to the default name of the run folder, or ''."""
        ...

    @property
    def is_asked(self) -> bool:
        """Whether the flags request anything other than a single run in this process."""
        ...

    @property
    def all_cores(self) -> bool:
        """Whether this process should make each CPU core a JAX device. See `process.set_up_process`."""
        ...

    def name_config(self, argv: list[str]) -> list[str]:
        """Returns the command line. If a flag of the extension names the config, adds the corresponding --config."""
        ...

    def take_words(self, words: list[str]) -> bool:
        """Assigns positional arguments to a flag of the extension. Returns whether the extension accepts them."""
        ...

    def check(self) -> None:
        """Raises BadInput if flags are missing or cannot be combined."""
        ...

    def run(self, launch: object) -> None:
        """Does the work that the flags request. `launch` is a `launched.Launch`."""
        ...


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Returns the extensions that apps declare as `LAUNCH = 'MODULE:NAME'` in their `__init__.py`."""
    return tuple(pkgutil.resolve_name(f'{app}.{path}') for app, path in commands.declared('LAUNCH').items())


def parse(argv: list[str]) -> list[str]:
    """Parses the flags of a command line. Returns the command line with the path of the config in --config.

    Raises:
        BadInput: A flag or a config key is invalid.
        flags.Error: A flag is invalid.
    """
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow positional arguments
    try:
        argv = named = [argv[0], *flags.FLAGS.read_flags_from_files(argv[1:])]
    except UnicodeDecodeError as error:
        raise BadInput('--flagfile', f'is not text ({error.reason})') from None
    for extension in extensions():
        named = extension.name_config(named)
    check_flags(named)
    _argv[:] = parsed = find_configs(named)
    words = flags.FLAGS(parsed)[1:]
    if CONFIG.value is None:
        raise BadInput('--config', 'is required; give a config, such as --config=sentences')
    if not isinstance(CONFIG.value.name, str):
        raise BadInput('--config', 'the config key `name` must be a string')
    if words and not any(extension.take_words(words) for extension in extensions()):
        hint = 'to choose a preset, append it to the name of the config, such as brown:mlp9'
        if pathlib.Path(words[0]).exists():
            hint = f'to train on a text, use --config.corpus.path={words[0]}'
        raise BadInput(words[0], f'is not a flag; to set a config key, use --config.KEY=VALUE; {hint}')
    _check_combinations()
    return find_configs(argv)


def _check_combinations() -> None:
    """Raises BadInput if flags are missing or cannot be combined."""
    alone = [name for extension in extensions() for name in extension.needs_no_distributed]
    for flag in (COORDINATOR, PROCESSES, PROCESS_ID, HEARTBEAT):
        if flags.FLAGS[flag.name].present and not (DISTRIBUTED.value or flag.name in alone):
            raise BadInput(f'--{flag.name}', 'requires --distributed', value=flag.value)
    for extension in extensions():
        extension.check()
    for excluded in (DISTRIBUTED, PRINT_CONFIG) if MINUTES.value is not None else ():
        if excluded.value:
            raise BadInput('--minutes', f'cannot be used with --{excluded.name}', value=MINUTES.value)
