"""What `launch.py`, `nplm train` and `nplm sweep` run: one experiment, or the points of a sweep.

Imports no JAX, so that --help and bad flags answer at once.
"""

from __future__ import annotations

import contextlib
import errno
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

from nplm_jax.cli import scheduler, search_flags
from nplm_jax.config import parts
from nplm_jax.reporting import catalog
from nplm_jax.reporting.shell import command_line, find_modules_here, hide_passwords, prepare_streams, python_command
from nplm_jax.runs.command_line import ConfigParser, check_flags, describe_config, explain, find_configs
from nplm_jax.runs.signals import Terminated, raise_on_sigterm
from nplm_jax.sweeps import launchers
from nplm_jax.utils.errors import BadInput, NonFiniteError, Resumable, first_line

if TYPE_CHECKING:
    from nplm_jax.sweeps.sweeps import Point

_argv: list[str] = []  # the words of the command line, in which ml_collections looks for overridden keys
_CONFIG = config_flags.DEFINE_config_file(
    'config',
    None,
    'Config file or the name of one, and a row after a colon: configs/brown.py:mlp9, brown:mlp9.',
    lock_config=False,  # the file's get_config locks it, but for the options of plug-ins, which are new attributes
    accept_new_attributes=True,
    sys_argv=_argv,
)
flags.FLAGS['config'].parser = ConfigParser()
_PRINT_CONFIG = flags.DEFINE_boolean('print_config', False, 'Print every config key and exit.')
_SWEEP = flags.DEFINE_boolean('sweep', False, "Run every point that the config file's sweep() yields.")
_GRID = flags.DEFINE_multi_string('grid', [], 'KEY=VALUE,VALUE,...: run every combination of values; repeatable.')
_MINUTES = flags.DEFINE_float(
    'minutes', None, 'Minutes of training: chooses the network that suits this text and machine, and trains it.'
)
_VECTORIZE = flags.DEFINE_boolean('vectorize', False, 'Train sweep points of equal shapes together, by jax.vmap.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Output directory; default: runs/NAME and the overridden keys.')
_DISTRIBUTED = flags.DEFINE_boolean('distributed', False, 'Train with other processes on one mesh.')
_COORDINATOR = flags.DEFINE_string('coordinator', None, 'HOST:PORT of the first process; default: from SLURM.')
_PROCESSES = flags.DEFINE_integer('processes', None, 'Number of processes; default: from SLURM.', 1)
_PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Index of this process, from 0; default: from SLURM.', 0)
_LAUNCHER = flags.DEFINE_enum('launcher', None, ['local', 'slurm'], 'Run as jobs; default: in this process.')
_SLURM = flags.DEFINE_list('slurm', [], 'SLURM options: KEY=VALUE,..., such as partition=gpu,time=60.')
_JOBS = flags.DEFINE_integer(
    'jobs', None, 'Most points or workers of a search at once; default: all points on SLURM, else 1.', 1
)
_SCHEDULER = flags.DEFINE_string(
    'scheduler', None, 'tcp://HOST:8786 of Dask, whose workers prepare and count a large text; default: this machine.'
)
_HEARTBEAT = flags.DEFINE_integer('heartbeat', 10, 'Seconds of silence after which a process counts as lost.', 5)

flags.adopt_module_key_flags(search_flags)

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
        if _DISTRIBUTED.value and multihost.is_primary():
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
        if _DISTRIBUTED.value and multihost.is_lost_process(error):
            exit_with_loss(first_line(error)[:200], command)
        if not _DISTRIBUTED.value:
            raise
        exit_with(1, traceback.format_exc().rstrip())  # alone: the other processes hear of it


@contextlib.contextmanager
def resumable(folder: pathlib.Path, command: str) -> Iterator[None]:
    """Ends the process in one line where the folder of the run cannot be written or read; says how to resume."""
    try:
        yield
    except OSError as error:
        if not (failure := describe_failure(error, folder)):
            raise
        exit_with(1, f'{failure}; saved progress is intact; resume with: {command}')


def describe_failure(error: OSError, folder: pathlib.Path) -> str:
    """Returns what failed in the folder of a run; '' for an error from elsewhere, such as a plug-in's."""
    if isinstance(error, Resumable):
        return str(error)
    files = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f'{next(iter(files), folder)}: {error.strerror}; free some space'
    is_own = any(pathlib.Path(os.path.abspath(name)).is_relative_to(folder.absolute()) for name in files)
    return str(error) if is_own else ''


def use_scheduler() -> contextlib.AbstractContextManager[None]:
    """Lets the workers of --scheduler do what is large enough to be cut into tasks."""
    return scheduler.use(_SCHEDULER.value if flags.FLAGS.is_parsed() else None)


def config_words(program: Sequence[str], file: str, overrides: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the words of the command line that runs a config with some keys changed."""
    return (*program, f'--config={file}', *(f'--config.{key}={value}' for key, value in overrides.items()))


def scheduler_flags() -> list[str]:
    """Returns the flag that gives a job the Dask cluster of this process."""
    return [f'--scheduler={_SCHEDULER.value}'] if _SCHEDULER.value else []


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
    process.set_up_process(all_cores=_VECTORIZE.value)
    if _DISTRIBUTED.value:
        on_loss = functools.partial(exit_with_loss, 'it ended or stopped responding', command)
        multihost.start(_COORDINATOR.value, _PROCESSES.value, _PROCESS_ID.value, _HEARTBEAT.value, on_loss)
    config = _CONFIG.value
    file = config_flags.get_config_filename(flags.FLAGS['config'])
    overrides = dict(sorted(config_flags.get_override_values(flags.FLAGS['config']).items()))
    config.update_from_flattened_dict(parts.resets(config, overrides))
    suffix = '-search' if search_flags.is_search() else '-grid' if _GRID.value else '-sweep' if _SWEEP.value else ''
    folder = expand(
        '--workdir', _WORKDIR.value or f'runs/{run_names.default_name(config, overrides, _MINUTES.value)}{suffix}'
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
    from nplm_jax.reporting import metrics as reporting
    from nplm_jax.runs import experiment, workdir
    from nplm_jax.sweeps import sweeps, time_budget
    from nplm_jax.training import loop

    with resumable(folder, command):
        corpus, impossible = None, dict[str, str]()
        if _MINUTES.value is not None:
            config, corpus = time_budget.resolve(config, file.partition(':')[0], overrides, _MINUTES.value, folder)
        if _SWEEP.value:
            points, impossible = sweeps.load_points(file.partition(':')[0], config, overrides)
        elif _GRID.value:
            points, impossible = sweeps.grid_points(_GRID.value, config, overrides)
        else:
            points = [sweeps.Point(config.name, experiment.load_settings(config), {})]
        for point in points if is_sweep() else []:
            workdir.check_path(folder / point.name)  # before the first point trains
        for name, reason in impossible.items():
            print(f'{name}: skipped, since it is impossible ({reason})', file=sys.stderr, flush=True)
        if _PRINT_CONFIG.value:
            print(describe_config(config, [point.overrides for point in points if is_sweep()]))
            return
        try:
            if search_flags.is_search():
                words = config_words(program, file, overrides)
                worker, jobs, options = _PROCESS_ID.value, _JOBS.value or 1, launchers.parse_slurm_options(_SLURM.value)
                searching = search_flags.make_search(folder, file, config, overrides, words, worker)
                on_slurm = _LAUNCHER.value == 'slurm'
                shown = (
                    searching.run_jobs(jobs, on_slurm, options, scheduler_flags())
                    if _LAUNCHER.value
                    else searching.run()
                )
                print(shown)
                return
            failed = run_jobs(points, folder, file, overrides, program) if _LAUNCHER.value else []
            failures = dict.fromkeys(failed, 'failed') | dict.fromkeys(impossible, 'impossible')
            if is_sweep() and _LAUNCHER.value:
                print(sweeps.write_table(points, folder, failures))
            elif is_sweep():
                print(sweeps.run(points, folder, command, _VECTORIZE.value, failures))
            elif failed:
                exit_with(1, f'the job ended without a result; resume with: {command}')
            elif experiment.run(settings := points[0].settings, folder, command, corpus):  # the first process's results
                modules = config_lib.plugin_modules(settings, config_lib.LOADED_PLUGINS)
                print(reporting.next_steps(folder, settings.model.family, modules))
        except loop.Interrupted as stop:
            exit_with(128 + stop.signal_number, f'{stop}; resume with: {command}', collective=True)
        except NonFiniteError as error:
            exit_with(1, str(error))


def is_sweep() -> bool:
    """Returns whether the flags ask for several runs."""
    return _SWEEP.value or bool(_GRID.value)


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
    from nplm_jax.sweeps import sweeps

    jobs = []
    if is_sweep():
        sweeps.check_begun(points, folder)
    for point in points:
        point_folder = folder / point.name if is_sweep() else folder
        workdir.check(point_folder, point.settings)
        if not catalog.finished(point_folder):
            words = config_words(program, file, {**overrides, **point.overrides})
            heartbeat = [f'--heartbeat={_HEARTBEAT.value}'] if _PROCESSES.value else []
            arguments = (*words, f'--workdir={point_folder}', *heartbeat, *scheduler_flags())
            jobs.append(launchers.Job(point.name, point_folder, arguments))
    if not jobs:
        return []
    options, processes = launchers.parse_slurm_options(_SLURM.value), _PROCESSES.value or 1
    on_slurm, logs = _LAUNCHER.value == 'slurm', folder / '.jobs'
    return launchers.run(jobs, on_slurm, logs, catalog.finished, options, processes, _JOBS.value)


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags for absl.app; a mistake ends the process with one line and exit code 2."""
    find_modules_here()
    try:
        flags.FLAGS.set_gnu_getopt(True)  # flags may follow words
        argv = [argv[0], *flags.FLAGS.read_flags_from_files(argv[1:])]
        check_flags(argv)
        _argv[:] = argv = find_configs(argv)
        words = flags.FLAGS(argv)[1:]
        if _CONFIG.value is None:
            raise BadInput('--config', 'missing; for example --config=sentences')
        if not isinstance(_CONFIG.value.name, str):
            raise BadInput('--config', 'name must be a string')
        if words and not _GRID.value:
            raise BadInput(words[0], 'not a flag; set a config key with --config.KEY=VALUE')
        _GRID.value.extend(words)  # --grid model.m=10,30 model.h=20,60
        check_combinations()
    except (BadInput, flags.Error) as error:
        exit_with(2, str(explain(error)))
    return argv


def check_combinations() -> None:
    """Raises BadInput for flags that need or exclude one another."""
    for flag in (_COORDINATOR, _PROCESSES, _PROCESS_ID):
        is_alone = flag is _PROCESSES and _LAUNCHER.value or flag is _PROCESS_ID and search_flags.is_search()
        if flag.value is not None and not (_DISTRIBUTED.value or is_alone):
            raise BadInput(f'--{flag.name}', 'needs --distributed', value=flag.value)
    search_flags.check((_SWEEP, _GRID, _VECTORIZE, _DISTRIBUTED, _PROCESSES, _MINUTES))
    alone: tuple[flags.FlagHolder[Any], ...] = _SWEEP, _GRID, _DISTRIBUTED, _LAUNCHER, _PRINT_CONFIG
    for flag in alone if _MINUTES.value is not None else ():
        if flag.value:
            raise BadInput('--minutes', f'cannot be used with --{flag.name}', value=_MINUTES.value)
    if _SWEEP.value and _GRID.value:
        raise BadInput('--sweep', 'cannot be used with --grid or KEY=VALUE; its points come from the config file')
    if _VECTORIZE.value and (_LAUNCHER.value or not is_sweep()):
        raise BadInput(
            '--vectorize', 'needs --sweep or --grid, and no --launcher, which starts a process for each point'
        )
    if is_sweep() and _DISTRIBUTED.value:
        raise BadInput(
            f'--{"grid" if _GRID.value else "sweep"}', 'cannot be used with --distributed; start its points one by one'
        )
    if _LAUNCHER.value and _DISTRIBUTED.value:
        raise BadInput(
            '--launcher', 'cannot be used with --distributed; --processes=N starts all processes', value=_LAUNCHER.value
        )
    if _SLURM.value and _LAUNCHER.value != 'slurm':
        raise BadInput('--slurm', 'needs --launcher=slurm', value=','.join(_SLURM.value))
    launchers.parse_slurm_options(_SLURM.value)
    if _JOBS.value is not None and not ((is_sweep() or search_flags.is_search()) and _LAUNCHER.value):
        raise BadInput('--jobs', 'needs --sweep, --grid or --search, and --launcher', value=_JOBS.value)


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
    if not collective and flags.FLAGS.is_parsed() and _DISTRIBUTED.value:
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
