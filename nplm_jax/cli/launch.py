"""Runs of `launch.py`, `nplm train` and `nplm sweep`: one experiment, or the points of a sweep.

Imports no JAX, so that --help and bad flags answer at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from absl import app, flags
from ml_collections import ConfigDict, config_flags

from nplm_jax.cli import launch_flags, scheduler, search_flags
from nplm_jax.cli.launch_flags import (
    CONFIG,
    CONFIGS,
    COORDINATOR,
    DISTRIBUTED,
    GRID,
    HEARTBEAT,
    JOBS,
    LAUNCHER,
    MINUTES,
    PRINT_CONFIG,
    PROCESS_ID,
    PROCESSES,
    SCHEDULER,
    SLURM,
    SWEEP,
    VECTORIZE,
    WORKDIR,
    is_sweep,
)
from nplm_jax.reporting import catalog
from nplm_jax.reporting.shell import command_line, find_modules_here, hide_passwords, prepare_streams, python_command
from nplm_jax.runs.command_line import describe_config, explain
from nplm_jax.runs.signals import Terminated, raise_on_sigterm
from nplm_jax.sweeps import launchers
from nplm_jax.utils.errors import BadInput, NonFiniteError, first_line

if TYPE_CHECKING:
    from nplm_jax.sweeps.sweep_points import Point

flags.adopt_module_key_flags(launch_flags)  # --help lists them

_exit_code: list[int] = []  # decided, once a process waits for nothing but the exit of the others
_MODULE = ('-m', 'nplm_jax.cli.launch')


def main(argv: list[str], command: str = '', program: Sequence[str] = _MODULE) -> None:
    """Runs the command; every expected failure ends in one line and its exit code.

    Args:
        argv: the words of the command line.
        command: the command line to resume with; by default `argv` after Python's name.
        program: what Python runs as the process of a job.
    """
    prepare_streams()
    command = hide_passwords(command or command_line([python_command(), *argv]))
    try:
        from nplm_jax.distributed import multihost

        with use_scheduler():
            run(command, program)
        if DISTRIBUTED.value and multihost.is_primary():
            _exit_code.append(0)  # the results are written: a process that is lost during its exit is no failure
    except BadInput as error:
        exit_with(2, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_with(1, f'the reader of the output has closed; saved progress is intact; resume with: {command}')
    except (KeyboardInterrupt, Terminated) as stop:
        code = 143 if isinstance(stop, Terminated) else 130
        exit_with(code, f'stopped; saved progress is intact; resume with: {command}')
    except Exception as error:
        if DISTRIBUTED.value and multihost.is_lost_process(error):
            exit_with_loss(first_line(error)[:200], command)
        if not DISTRIBUTED.value:
            raise
        exit_with(1, traceback.format_exc().rstrip())  # alone: the other processes hear of it


@contextlib.contextmanager
def resumable(folder: pathlib.Path, command: str) -> Iterator[None]:
    """Ends the process in one line where the folder of the run cannot be written or read; says how to resume."""
    try:
        yield
    except OSError as error:
        from nplm_jax.runs import workdir

        if not (failure := workdir.describe_failure(error, folder)):
            raise
        exit_with(1, f'{failure}; saved progress is intact; resume with: {command}')


def use_scheduler() -> contextlib.AbstractContextManager[None]:
    """Lets the workers of --scheduler do what is large enough to be cut into tasks."""
    return scheduler.use(SCHEDULER.value if flags.FLAGS.is_parsed() else None)


def config_words(program: Sequence[str], file: str, overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the words of the command line that runs a config with some keys changed."""
    return (*program, f'--config={file}', *(f'--config.{key}={value}' for key, value in overrides.items()))


def scheduler_flags() -> list[str]:
    """Returns the flag that gives a job the Dask cluster of this process."""
    return [f'--scheduler={SCHEDULER.value}'] if SCHEDULER.value else []


def set_up(command: str) -> tuple[pathlib.Path, ConfigDict, str, dict[str, Any]]:
    """Prepares the process for the run that the flags describe.

    Args:
        command: the command line, for the line that says how to resume.

    Returns:
        The folder of the run, its config, the value of --config, and the keys that --config.KEY=VALUE flags set.
    """
    from nplm_jax.distributed import multihost
    from nplm_jax.runs import process, run_names
    from nplm_jax.utils.io import expand

    raise_on_sigterm()  # after the imports: an exception inside an extension module's import becomes an ImportError
    process.set_up_process(all_cores=VECTORIZE.value)
    if DISTRIBUTED.value:
        on_loss = functools.partial(exit_with_loss, 'it ended or stopped responding', command)
        multihost.start(COORDINATOR.value, PROCESSES.value, PROCESS_ID.value, HEARTBEAT.value, on_loss)
    config = CONFIG.value
    file = config_flags.get_config_filename(flags.FLAGS['config'])
    overrides = dict(sorted(config_flags.get_override_values(flags.FLAGS['config']).items()))
    kinds = {'search': search_flags.is_search(), 'grid': GRID.value, 'sweep': SWEEP.value, 'configs': CONFIGS.value}
    suffix = next((f'-{kind}' for kind, is_asked in kinds.items() if is_asked), '')
    folder = expand(
        '--workdir', WORKDIR.value or f'runs/{run_names.default_name(config, overrides, MINUTES.value)}{suffix}'
    )
    return folder, config, file, overrides


def run(command: str, program: Sequence[str] = _MODULE) -> None:
    """Runs the config or the points of its sweep, in this process or as jobs.

    Args:
        command: the command line, for the results and for the line that says how to resume.
        program: what Python runs as the process of a job.
    """
    folder, config, file, overrides = set_up(command)
    from nplm_jax.config import settings as config_lib
    from nplm_jax.reporting import run_reporter as reporting
    from nplm_jax.runs import experiment, workdir
    from nplm_jax.sweeps import sweep_points, sweeps, time_budget
    from nplm_jax.training.train import Interrupted

    with resumable(folder, command):
        corpus, impossible = None, dict[str, str]()
        if MINUTES.value is not None:
            config, corpus = time_budget.resolve(config, file, overrides, MINUTES.value, folder)
        if CONFIGS.value:
            points = sweep_points.config_points(CONFIGS.value.split(';'), overrides)
        elif SWEEP.value:
            points, impossible = sweep_points.load_points(file.partition(':')[0], config)
        elif GRID.value:
            points, impossible = sweep_points.grid_points(GRID.value, config)
        else:
            points = [sweep_points.Point(config.name, experiment.load_settings(config), {})]
        for point in points if is_sweep() else []:
            workdir.check_path(folder / point.name)  # before the first point trains
        for name, reason in impossible.items():
            print(f'{name}: skipped, since it is impossible ({reason})', file=sys.stderr, flush=True)
        if PRINT_CONFIG.value:
            print(describe_config(config, [point.overrides for point in points if is_sweep()]))
            return
        try:
            if search_flags.is_search():
                words = config_words(program, file, overrides)
                worker, jobs, options = PROCESS_ID.value, JOBS.value or 1, launchers.parse_slurm_options(SLURM.value)
                searching = search_flags.make_search(folder, file, config, words, worker)
                on_slurm = LAUNCHER.value == 'slurm'
                if LAUNCHER.value:
                    search_flags.pass_storage()
                shown = (
                    searching.run_jobs(jobs, on_slurm, options, scheduler_flags())
                    if LAUNCHER.value
                    else searching.run()
                )
                print(shown)
                return
            failed = run_jobs(points, folder, file, overrides, program) if LAUNCHER.value else []
            failures = dict.fromkeys(failed, 'failed') | dict.fromkeys(impossible, 'impossible')
            if is_sweep() and LAUNCHER.value:
                print(sweeps.write_table(points, folder, failures))
            elif is_sweep():
                print(sweeps.run(points, folder, command, VECTORIZE.value, failures))
            elif failed:
                exit_with(1, f'the job ended without a result; resume with: {command}')
            elif experiment.run(settings := points[0].settings, folder, command, corpus):  # the first process's results
                modules = config_lib.plugin_modules(settings, config_lib.LOADED_PLUGINS)
                print(reporting.next_steps(folder, settings.model, modules))
        except Interrupted as stop:
            exit_with(128 + stop.signal_number, f'{stop}; resume with: {command}', collective=True)
        except NonFiniteError as error:
            exit_with(1, str(error))


def run_jobs(
    points: Sequence[Point], folder: pathlib.Path, file: str, overrides: dict[str, Any], program: Sequence[str]
) -> list[str]:
    """Runs each point that has no result yet as a job with its own command line.

    Args:
        points: the points of a sweep, or one point for a single run.
        folder: the folder of the sweep, in which each point has its own, or of the single run.
        file: the value of --config.
        overrides: the flattened keys that --config.KEY=VALUE flags set.
        program: what Python runs as the process of a job.

    Returns:
        The names of the points whose jobs ended without a result.
    """
    from nplm_jax.runs import workdir
    from nplm_jax.sweeps import sweep_points, sweeps

    jobs = []
    if is_sweep():
        sweeps.check_begun(points, folder)
    for point in points:
        point_folder = folder / point.name if is_sweep() else folder
        workdir.check(point_folder, point.settings)
        if not catalog.finished(point_folder):
            words = config_words(program, *sweep_points.job_config(point.file or file, overrides, CONFIG.value, point))
            heartbeat = [f'--heartbeat={HEARTBEAT.value}'] if PROCESSES.value else []
            arguments = (*words, f'--workdir={point_folder}', *heartbeat, *scheduler_flags())
            jobs.append(launchers.Job(point.name, point_folder, arguments))
    if not jobs:
        return []
    options, processes = launchers.parse_slurm_options(SLURM.value), PROCESSES.value or 1
    on_slurm, logs = LAUNCHER.value == 'slurm', folder / '.jobs'
    return launchers.run(jobs, on_slurm, logs, catalog.finished, options, processes, JOBS.value)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags for absl.app; a mistake ends the process with one line and exit code 2."""
    find_modules_here()
    try:
        return launch_flags.parse(argv)
    except (BadInput, flags.Error) as error:
        exit_with(2, str(explain(error)))


def exit_with_loss(reason: str, command: str) -> NoReturn:
    """Ends this process of a --distributed run because another one is lost."""
    exit_with(1, f'another process was lost ({reason}); resume all processes with: {command}')


def exit_with(code: int, message: str, collective: bool = False) -> NoReturn:
    """Prints the message on stderr and ends the process.

    Args:
        code: the exit code.
        message: one line.
        collective: all processes of a --distributed run exit here. A process that exits alone skips JAX's exit
            handlers, which would wait for the others.
    """
    if _exit_code:
        os._exit(_exit_code[0])
    print(message, file=sys.stderr, flush=True)
    if not collective and flags.FLAGS.is_parsed() and DISTRIBUTED.value:
        flush = threading.Thread(target=_flush_stdout, daemon=True)
        flush.start()
        flush.join(5)  # nobody may read stdout
        os._exit(code)
    _exit_code.append(code)
    sys.exit(code)


def _flush_stdout() -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()


if __name__ == '__main__':
    app.run(main, flags_parser=parse_flags)
