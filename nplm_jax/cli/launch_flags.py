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

_argv: list[str] = []  # the words of the command line, in which ml_collections looks for overridden keys
CONFIG = config_flags.DEFINE_config_file(
    'config',
    None,
    'Config file or the name of one, and a preset after a colon: configs/brown.py:mlp9, brown:mlp9.',
    sys_argv=_argv,
)
flags.FLAGS['config'].parser = ConfigParser()
PRINT_CONFIG = flags.DEFINE_boolean('print_config', False, 'Print every config key and exit.')
MINUTES = flags.DEFINE_float(
    'minutes', None, 'Minutes of training: chooses the network that suits this text and machine, and trains it.'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Output directory; default: runs/NAME and the overridden keys.')
DISTRIBUTED = flags.DEFINE_boolean('distributed', False, 'Train with other processes on one mesh.')
COORDINATOR = flags.DEFINE_string('coordinator', None, 'HOST:PORT of the first process; default: from SLURM.')
PROCESSES = flags.DEFINE_integer('processes', None, 'Number of processes; default: from SLURM.', 1)
PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Index of this process, from 0; default: from SLURM.', 0)
SCHEDULER = flags.DEFINE_string(
    'scheduler', None, 'tcp://HOST:8786 of Dask, whose workers prepare and count a large text; default: this machine.'
)
HEARTBEAT = flags.DEFINE_integer('heartbeat', 10, 'Seconds of silence after which a process counts as lost.', 5)


class Extension(Protocol):
    """An app's part of `launch.py`: flags, their checks, and what runs instead of a single run.

    Attributes:
        flags: The module that defines the flags.
        needs_no_distributed: The flags of several processes that the extension takes without --distributed.
        suffix: What the flags add to the default name of the folder; empty for none.
        is_asked: Whether the flags ask for something else than a single run in this process.
        all_cores: Whether this process should compute on all cores.
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
        """Returns the words of a command line with a --config, which another flag may stand for."""
        ...

    def take_words(self, words: list[str]) -> bool:
        """Returns whether words that are no flags belong to a flag of the extension, which then has them."""
        ...

    def check(self) -> None:
        """Raises BadInput for flags that need or exclude one another."""
        ...

    def run(self, launch: object) -> None:
        """Does what the flags ask for; `launch` is a `launched.Launch`."""
        ...


@functools.cache
def extensions() -> tuple[Extension, ...]:
    """Returns the extensions that apps declare as LAUNCH = 'MODULE:NAME'."""
    return tuple(pkgutil.resolve_name(f'{app}.{path}') for app, path in commands.declared('LAUNCH').items())


def parse(argv: list[str]) -> list[str]:
    """Parses the flags of a command line, and returns the command line.

    Raises:
        BadInput: A flag or a config key is wrong.
        flags.Error: As BadInput.
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
