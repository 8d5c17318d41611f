"""Executes a parsed `launch.py` command line, either as a single run or with the extension of an app."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from nplm_jax.cli.exits import exit_with, exit_with_loss
from nplm_jax.cli.launch_flags import (
    COORDINATOR,
    DISTRIBUTED,
    HEARTBEAT,
    MINUTES,
    PRINT_CONFIG,
    PROCESS_ID,
    PROCESSES,
    SCHEDULER,
    WORKDIR,
    extensions,
)
from nplm_jax.config import settings as config_lib
from nplm_jax.distributed import multihost
from nplm_jax.distributed.multihost import is_lost_process, is_primary
from nplm_jax.reporting import run_reporter
from nplm_jax.runs import experiment, process, run_names, time_budget, workdir
from nplm_jax.runs.command_line import describe_config, load_config
from nplm_jax.runs.signals import raise_on_sigterm
from nplm_jax.training.train import Interrupted
from nplm_jax.utils.errors import NonFiniteError
from nplm_jax.utils.io import expand

__all__ = ['Launch', 'is_lost_process', 'is_primary', 'run']


@dataclasses.dataclass(frozen=True)
class Launch:
    """The flag values of a command line.

    Attributes:
        folder: The folder of the run, the sweep or the search.
        config: The config.
        file: The value of --config.
        overrides: The values set by --config.KEY=VALUE flags, by flattened key.
        command: The command line to record in the results and to show in the message on how to resume.
        program: The Python arguments that start the processes of a job.
    """

    folder: pathlib.Path
    config: ConfigDict
    file: str
    overrides: Mapping[str, Any]
    command: str
    program: Sequence[str]

    def words(self, file: str, overrides: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the command-line arguments that run a config with some keys changed."""
        return (*self.program, f'--config={file}', *(f'--config.{key}={value}' for key, value in overrides.items()))

    @property
    def scheduler_flags(self) -> list[str]:
        """The flag that connects the processes of a job to the cluster of this process, or () without a cluster."""
        return [f'--scheduler={SCHEDULER.value}'] if SCHEDULER.value else []


def set_up(command: str, program: Sequence[str]) -> Launch:
    """Sets up this process as its flags require, and returns the values of the flags.

    Args:
        command: The command line to show in the message on how to resume.
        program: The Python arguments that start the processes of a job.
    """
    raise_on_sigterm()  # after the imports, in which an exception may be converted to an ImportError
    process.set_up_process(all_cores=any(extension.all_cores for extension in extensions()))
    if DISTRIBUTED.value:
        on_loss = functools.partial(exit_with_loss, 'it ended or stopped responding', command)
        multihost.start(COORDINATOR.value, PROCESSES.value, PROCESS_ID.value, HEARTBEAT.value, on_loss)
    file = config_flags.get_config_filename(flags.FLAGS['config'])
    overrides = dict(sorted(config_flags.get_override_values(flags.FLAGS['config']).items()))
    config = config_lib.override(load_config(file), overrides)  # another corpus has other options and no paper.*
    suffix = ''.join(extension.suffix for extension in extensions())
    name = run_names.default_name(config, overrides, MINUTES.value)
    folder = expand('--workdir', WORKDIR.value or f'runs/{name}{suffix}')
    return Launch(folder, config, file, overrides, command, program)


def run(command: str, program: Sequence[str]) -> None:
    """Executes a single run, or the extension that the flags request.

    Args:
        command: The command line to record in the results and to show in the message on how to resume.
        program: The Python arguments that start the processes of a job.
    """
    launch = set_up(command, program)
    asked = next((extension.run for extension in extensions() if extension.is_asked), run_one)
    with resumable(launch):
        try:
            asked(launch)
        except Interrupted as stop:
            exit_with(128 + stop.signal_number, f'{stop}; resume with: {command}', collective=True)
        except NonFiniteError as error:
            exit_with(1, str(error))


def run_one(launch: Launch) -> None:
    """Runs a config, or prints it for --print_config. With --minutes, first chooses the network."""
    config, corpus = launch.config, None
    if MINUTES.value is not None:
        config, corpus = time_budget.config_for_budget(
            config, launch.file, launch.overrides, MINUTES.value, launch.folder
        )
    settings = experiment.load_settings(config)
    if PRINT_CONFIG.value:
        print(describe_config(config))
    elif experiment.run(settings, launch.folder, launch.command, corpus):  # only the first process returns results
        modules = config_lib.plugin_modules(settings, config_lib.LOADED_PLUGINS)
        print(run_reporter.next_steps(launch.folder, modules))


@contextlib.contextmanager
def resumable(launch: Launch) -> Iterator[None]:
    """Ends the process with a message on how to resume if the run's folder cannot be written or read in the block."""
    try:
        yield
    except OSError as error:
        if not (failure := workdir.describe_failure(error, launch.folder)):
            raise
        exit_with(1, f'{failure}; resume with: {launch.command}')
