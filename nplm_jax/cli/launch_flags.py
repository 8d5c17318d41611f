"""Flags of `launch.py`, `nplm train` and `nplm sweep`, and the checks of their combinations. Imports no JAX."""

import functools
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
    'Config file or its name, with a preset after a colon, such as configs/brown.py:mlp9 or brown:mlp9.',
    sys_argv=_argv,
)
flags.FLAGS['config'].parser = ConfigParser()
PRINT_CONFIG = flags.DEFINE_boolean('print_config', False, 'Print every config key and exit.')
MINUTES = flags.DEFINE_float(
    'minutes', None, 'Time budget in minutes, which selects a network that suits the text and this machine.'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Output directory; default: runs/NAME, followed by the overridden keys.')
DISTRIBUTED = flags.DEFINE_boolean('distributed', False, 'Train with other processes on one mesh.')
COORDINATOR = flags.DEFINE_string('coordinator', None, 'HOST:PORT of the first process; default: from SLURM.')
PROCESSES = flags.DEFINE_integer('processes', None, 'Number of processes; default: from SLURM.', 1)
PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Index of this process, from 0; default: from SLURM.', 0)
SCHEDULER = flags.DEFINE_string(
    'scheduler', None, 'Dask scheduler (tcp://HOST:8786) that prepares and counts large texts; default: this machine.'
)
HEARTBEAT = flags.DEFINE_integer('heartbeat', 10, 'Seconds without a response after which a process counts as lost.', 5)


class Extension(Protocol):
    """An extension of `launch.py` by an app: flags, their checks, and a replacement for the single run.

    Attributes:
        flags: The module that defines the flags.
        needs_no_distributed: The multi-process flags that the extension accepts without --distributed.
        suffix: The suffix that the flags add to the default name of the folder; may be empty.
        is_asked: Whether the flags request anything other than a single run in this process.
        all_cores: Whether this process should use all cores.
    """

    flags: types.ModuleType

    @property
    def needs_no_distributed(self) -> tuple[str, ...]:
        """See the class."""
        ...

    @property
    def suffix(self) -> str:
        """See the class."""
        ...

    @property
    def is_asked(self) -> bool:
        """See the class."""
        ...

    @property
    def all_cores(self) -> bool:
        """See the class."""
        ...

    def name_config(self, argv: list[str]) -> list[str]:
        """Adds --config to a command line in which another flag replaces it."""
        ...

    def take_words(self, words: list[str]) -> bool:
        """Assigns positional words to a flag of the extension. Returns whether they belong to one."""
        ...

    def check(self) -> None:
        """Raises BadInput for flags that need or exclude one another."""
        ...

    def run(self, launch: object) -> None:
        """Runs the work that the flags request; `launch` is a `launched.Launch`."""
        ...


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Returns the extensions that apps declare as LAUNCH = 'MODULE:NAME'."""
    return tuple(pkgutil.resolve_name(f'{app}.{path}') for app, path in commands.declared('LAUNCH').items())


def parse(argv: list[str]) -> list[str]:
    """Parses the flags of a command line and returns the command line.

    Raises:
        BadInput: A flag or a config key is invalid.
        flags.Error: A flag is invalid.
    """
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow words
    argv = named = [argv[0], *flags.FLAGS.read_flags_from_files(argv[1:])]
    for extension in extensions():
        named = extension.name_config(named)
    check_flags(named)
    _argv[:] = parsed = find_configs(named)
    words = flags.FLAGS(parsed)[1:]
    if CONFIG.value is None:
        raise BadInput('--config', 'missing; for example --config=sentences')
    if not isinstance(CONFIG.value.name, str):
        raise BadInput('--config', 'name must be a string')
    if words and not any(extension.take_words(words) for extension in extensions()):
        raise BadInput(words[0], 'not a flag; set a config key with --config.KEY=VALUE')
    _check_combinations()
    return find_configs(argv)


def _check_combinations() -> None:
    """Raises BadInput for flags that need or exclude one another."""
    alone = [name for extension in extensions() for name in extension.needs_no_distributed]
    for flag in (COORDINATOR, PROCESSES, PROCESS_ID):
        if flag.value is not None and not (DISTRIBUTED.value or flag.name in alone):
            raise BadInput(f'--{flag.name}', 'needs --distributed', value=flag.value)
    for extension in extensions():
        extension.check()
    for excluded in (DISTRIBUTED, PRINT_CONFIG) if MINUTES.value is not None else ():
        if excluded.value:
            raise BadInput('--minutes', f'cannot be used with --{excluded.name}', value=MINUTES.value)
