"""Flags of `launch.py`, `nplm train` and `nplm sweep`, and the checks of their combinations. Imports no JAX."""

import re
from typing import Any

from absl import flags
from ml_collections import config_flags

from nplm_jax.cli import search_flags
from nplm_jax.runs.command_line import ConfigParser, check_flags, find_configs
from nplm_jax.sweeps import launchers
from nplm_jax.utils.errors import BadInput

_argv: list[str] = []  # the words of the command line, in which ml_collections looks for overridden keys
CONFIG = config_flags.DEFINE_config_file(
    'config',
    None,
    'Config file or the name of one, and a row after a colon: configs/brown.py:mlp9, brown:mlp9.',
    sys_argv=_argv,
)
flags.FLAGS['config'].parser = ConfigParser()
CONFIGS = flags.DEFINE_string('configs', None, 'Configs to compare, each as --config names one: brown:mlp9;brown:lstm.')
PRINT_CONFIG = flags.DEFINE_boolean('print_config', False, 'Print every config key and exit.')
SWEEP = flags.DEFINE_boolean('sweep', False, "Run every point that the config file's sweep() yields.")
GRID = flags.DEFINE_multi_string('grid', [], 'KEY=VALUE,VALUE,...: run every combination of values; repeatable.')
MINUTES = flags.DEFINE_float(
    'minutes', None, 'Minutes of training: chooses the network that suits this text and machine, and trains it.'
)
VECTORIZE = flags.DEFINE_boolean('vectorize', False, 'Train sweep points of equal shapes together, by jax.vmap.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Output directory; default: runs/NAME and the overridden keys.')
DISTRIBUTED = flags.DEFINE_boolean('distributed', False, 'Train with other processes on one mesh.')
COORDINATOR = flags.DEFINE_string('coordinator', None, 'HOST:PORT of the first process; default: from SLURM.')
PROCESSES = flags.DEFINE_integer('processes', None, 'Number of processes; default: from SLURM.', 1)
PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Index of this process, from 0; default: from SLURM.', 0)
LAUNCHER = flags.DEFINE_enum('launcher', None, ['local', 'slurm'], 'Run as jobs; default: in this process.')
SLURM = flags.DEFINE_list('slurm', [], 'SLURM options: KEY=VALUE,..., such as partition=gpu,time=60.')
JOBS = flags.DEFINE_integer(
    'jobs', None, 'Most points or workers of a search at once; default: all points on SLURM, else 1.', 1
)
SCHEDULER = flags.DEFINE_string(
    'scheduler', None, 'tcp://HOST:8786 of Dask, whose workers prepare and count a large text; default: this machine.'
)
HEARTBEAT = flags.DEFINE_integer('heartbeat', 10, 'Seconds of silence after which a process counts as lost.', 5)

flags.adopt_module_key_flags(search_flags)


def is_sweep() -> bool:
    """Returns whether the flags ask for several runs."""
    return SWEEP.value or bool(GRID.value) or CONFIGS.value is not None


def parse(argv: list[str]) -> list[str]:
    """Parses the flags of a command line, and returns the command line.

    Raises:
        BadInput: A flag or a config key is wrong.
        flags.Error: As BadInput.
    """
    flags.FLAGS.set_gnu_getopt(True)  # flags may follow words
    argv = [argv[0], *flags.FLAGS.read_flags_from_files(argv[1:])]
    named = _with_first_config(argv)
    check_flags(named)
    _argv[:] = parsed = find_configs(named)
    words = flags.FLAGS(parsed)[1:]
    if CONFIG.value is None:
        raise BadInput('--config', 'missing; for example --config=sentences')
    if not isinstance(CONFIG.value.name, str):
        raise BadInput('--config', 'name must be a string')
    if words and not GRID.value:
        raise BadInput(words[0], 'not a flag; set a config key with --config.KEY=VALUE')
    GRID.value.extend(words)  # --grid model.m=10,30 model.h=20,60
    _check_combinations()
    return find_configs(argv)


def _with_first_config(argv: list[str]) -> list[str]:
    """Returns the words of a command line in which --config names the first of --configs."""
    values = [word.partition('=')[2] for word in argv if re.fullmatch('--?configs=.*', word, re.DOTALL)]
    if not values:
        return argv
    if any(re.match('--?config(=|$)', word) for word in argv):
        raise BadInput('--configs', 'cannot be used with --config', value=values[-1])
    return [argv[0], f'--config={values[-1].partition(";")[0]}', *argv[1:]]


def _check_combinations() -> None:
    """Raises BadInput for flags that need or exclude one another."""
    for flag in (COORDINATOR, PROCESSES, PROCESS_ID):
        is_alone = flag is PROCESSES and LAUNCHER.value or flag is PROCESS_ID and search_flags.is_search()
        if flag.value is not None and not (DISTRIBUTED.value or is_alone):
            raise BadInput(f'--{flag.name}', 'needs --distributed', value=flag.value)
    search_flags.check((SWEEP, GRID, CONFIGS, VECTORIZE, DISTRIBUTED, PROCESSES, MINUTES))
    alone: tuple[flags.FlagHolder[Any], ...] = SWEEP, GRID, CONFIGS, DISTRIBUTED, LAUNCHER, PRINT_CONFIG
    for flag in alone if MINUTES.value is not None else ():
        if flag.value:
            raise BadInput('--minutes', f'cannot be used with --{flag.name}', value=MINUTES.value)
    if SWEEP.value and GRID.value:
        raise BadInput('--sweep', 'cannot be used with --grid or KEY=VALUE; its points come from the config file')
    if CONFIGS.value is not None and (SWEEP.value or GRID.value):
        raise BadInput('--configs', 'cannot be used with --sweep, --grid or KEY=VALUE', value=CONFIGS.value)
    if VECTORIZE.value and (LAUNCHER.value or not is_sweep()):
        raise BadInput(
            '--vectorize',
            'needs --sweep, --grid or --configs, and no --launcher, which starts a process for each point',
        )
    if is_sweep() and DISTRIBUTED.value:
        raise BadInput(
            f'--{next(flag.name for flag in (GRID, SWEEP, CONFIGS) if flag.value)}',
            'cannot be used with --distributed; start its points one by one',
        )
    if LAUNCHER.value and DISTRIBUTED.value:
        raise BadInput(
            '--launcher', 'cannot be used with --distributed; --processes=N starts all processes', value=LAUNCHER.value
        )
    if SLURM.value and LAUNCHER.value != 'slurm':
        raise BadInput('--slurm', 'needs --launcher=slurm', value=','.join(SLURM.value))
    launchers.parse_slurm_options(SLURM.value)
    if JOBS.value is not None and not ((is_sweep() or search_flags.is_search()) and LAUNCHER.value):
        raise BadInput('--jobs', 'needs --sweep, --grid or --search, and --launcher', value=JOBS.value)
