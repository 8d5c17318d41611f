"""Runs one experiment: python launch.py --config=configs/brown.py:mlp9 [--workdir=DIR] [--config.model.h=50 ...]

--sweep runs every point of the config file's sweep(), each in a folder of its own, and ends with their table.
--vectorize with it trains those points together that differ only in their seed, learning rate or decay.
--distributed makes this process one of several that train together; start the same command in each.
--launcher=slurm runs it as a job, or a job a point, and waits for them; --launcher=local as processes of this machine.
Running the same command again goes on where it ended. Exit codes: 0 done, 1 failed or another process was lost,
2 bad input, 130 or 143 stopped by Ctrl-C or SIGTERM with everything saved.
"""

import contextlib
import os
import pathlib
import shlex
import signal
import sys

from absl import app, flags
from ml_collections import ConfigDict, config_flags

from configs import default
from nplm_jax.config import KEY_ALIASES
from nplm_jax.runs import launchers
from nplm_jax.utils.errors import BadInput, first_line

_CONFIG = config_flags.DEFINE_config_file('config', None, 'A config file, with the row after a colon.')
_SWEEP = flags.DEFINE_boolean('sweep', False, 'Run every point that the sweep() of the config file yields.')
_VECTORIZE = flags.DEFINE_boolean('vectorize', False, 'With --sweep: train points of one shape together, by jax.vmap.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'The folder of the run; runs/NAME when not given.')
_DISTRIBUTED = flags.DEFINE_boolean('distributed', False, 'Train together with other processes; the mesh spans all.')
_COORDINATOR = flags.DEFINE_string('coordinator', None, 'HOST:PORT of the first process; from SLURM when not given.')
_PROCESSES = flags.DEFINE_integer('processes', None, 'How many there are; from SLURM when not given.', 1)
_PROCESS_ID = flags.DEFINE_integer('process_id', None, 'Which of them this is; from SLURM when not given.', 0)
_LAUNCHER = flags.DEFINE_enum('launcher', None, ['local', 'slurm'], 'Run as jobs of this machine, or of SLURM.')
_SLURM = flags.DEFINE_list('slurm', [], 'What is asked of SLURM: KEY=VALUE,... such as partition=gpu,time=60.')
_JOBS = flags.DEFINE_integer('jobs', None, 'Points that run at once; on SLURM all, here 1 when not given.', 1)
_HEARTBEAT = flags.DEFINE_integer('heartbeat', 10, 'Seconds of silence after which a process counts as lost.', 5)


class _Terminated(BaseException):
    """SIGTERM came outside training, where `fit` does not look for it."""


def main(argv: list[str]) -> None:
    command = shlex.join(['python', *argv])
    try:
        _run(command)
    except BadInput as error:
        _end(2, str(error))
    except OSError as error:
        _end(1, f'{error}; what was saved before is whole; go on with: {command}')
    except RuntimeError as error:  # what JAX raises when a process does not answer
        if not _DISTRIBUTED.value:
            raise
        _end(1, f'another process was lost ({first_line(error)[:200]}); start all again to go on: {command}')
    except (KeyboardInterrupt, _Terminated) as stop:
        code = 143 if isinstance(stop, _Terminated) else 130
        _end(code, f'stopped; what was saved before is whole; go on with: {command}')


def _listen() -> None:
    """SIGTERM raises, as Ctrl-C does; again a moment later where Python drops it, as in a callback of its collector."""

    def terminate(_number, _frame):
        raise _Terminated

    def dropped(what):
        if what.exc_type not in (_Terminated, KeyboardInterrupt):
            return sys.__unraisablehook__(what)
        number = signal.SIGTERM if what.exc_type is _Terminated else signal.SIGINT
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    signal.signal(signal.SIGTERM, terminate)
    sys.unraisablehook = dropped


def _run(command: str) -> None:
    from nplm_jax.distributed import multihost  # noqa: PLC0415 (a bad flag is refused before JAX is there)
    from nplm_jax.runs import experiment, process, sweeps, workdir  # noqa: PLC0415
    from nplm_jax.training import loop  # noqa: PLC0415 (a bad flag is refused before JAX is there)
    from nplm_jax.utils import finite  # noqa: PLC0415 (a bad flag is refused before JAX is there)
    from nplm_jax.utils.io import expand  # noqa: PLC0415

    _listen()  # only now: what is raised within the import of an extension module comes out as an ImportError
    process.set_up_process(all_cores=_VECTORIZE.value)
    if _DISTRIBUTED.value:
        multihost.start(_COORDINATOR.value, _PROCESSES.value, _PROCESS_ID.value, _HEARTBEAT.value)
    config = _CONFIG.value
    overrides = dict(sorted(config_flags.get_override_values(flags.FLAGS['config']).items()))
    own = ','.join(filter(None, (workdir.safe_folder_name(config.name), workdir.run_name(overrides))))
    folder = expand('--workdir', _WORKDIR.value or f'runs/{own}{"-sweep" if _SWEEP.value else ""}')
    file = config_flags.get_config_filename(flags.FLAGS['config'])
    points = sweeps.load_points(file.split(':')[0], config) if _SWEEP.value else None  # less the row
    for point in points or []:
        workdir.check_path(folder / point.name)  # all, before the first one trains
    try:
        failed = {}
        if _LAUNCHER.value:
            failed = _run_jobs(points or [sweeps.Point(config.name, config, {})], folder, file, overrides)
        if points and _LAUNCHER.value:
            print(sweeps.write_table(points, folder, dict.fromkeys(failed, 'failed')))
        elif points:
            print(sweeps.run(points, folder, command, _VECTORIZE.value))
        elif failed:
            _end(1, 'no result; the same line again goes on')
        else:
            experiment.run(config, folder, command)
    except loop.Interrupted as stop:
        _end(128 + stop.signal_number, f'{stop}; go on with: {command}', together=True)
    except finite.NonFiniteError as error:
        _end(1, str(error))


def _run_jobs(points, folder, file, overrides):
    """One job a point, each with a command line of its own. Returns: why, of each that has no result."""
    from nplm_jax.runs import experiment, loading, workdir  # noqa: PLC0415

    runs = []
    for point in points:
        own = folder / point.name if _SWEEP.value else folder
        workdir.check(own, experiment.load_settings(point.config))
        keys = [f'--config.{key}={value}' for key, value in {**overrides, **point.overrides}.items()]
        heartbeat = [f'--heartbeat={_HEARTBEAT.value}'] * (_PROCESSES.value is not None)
        runs.append(
            launchers.Run(point.name, own, (sys.argv[0], f'--config={file}', *keys, f'--workdir={own}', *heartbeat))
        )
    runs = [run for run in runs if not loading.finished(run.folder)]
    if not runs:
        return {}
    options, number = launchers.read_options(_SLURM.value), _PROCESSES.value or 1
    return launchers.run(runs, _LAUNCHER.value, folder / '.jobs', loading.finished, options, number, _JOBS.value)


def _parse(argv: list[str]) -> list[str]:
    """Absl's parser, with every mistake told in one line."""
    try:
        rest = flags.FLAGS(argv)
        if _CONFIG.value is None:
            raise BadInput('--config: missing; for example --config=configs/sentences.py')
        if not isinstance(_CONFIG.value.name, str):  # a file that could not be loaded says so only now
            raise BadInput('--config: name must be a text')
        if rest[1:]:
            raise BadInput(f'{rest[1]}: not a flag; write --config.KEY=VALUE')
        _check_together()
        return argv
    except Exception as error:  # noqa: BLE001 (a config file is Python and may raise anything)
        # ml_collections and Absl raise what a config file raised again, as the text of a traceback.
        causes = [error]
        while causes[-1].__context__:
            causes.append(causes[-1].__context__)
        if told := [cause for cause in causes if isinstance(cause, BadInput)]:
            _end(2, str(told[-1]))
        last = (str(error).strip() or repr(error)).splitlines()[-1].strip()
        file = next((a.partition('=')[2] for a in argv if a.startswith(('--config=', '-config='))), '')
        if wrong := _wrong_override(argv):
            _end(2, wrong)
        if 'positional argument' in last:
            last = 'this config has no rows; leave out the colon and what follows'
        elif isinstance(error, flags.Error):
            _end(2, last)
        elif isinstance(error, OSError):
            there = sorted(str(p) for p in pathlib.Path('configs').glob('[a-z]*.py') if p.stem != 'rows')
            last = f'no such config file; there are {", ".join(there)}'
        _end(2, f'--config={file}: {last}')


def _check_together() -> None:
    """Raises: BadInput for flags that mean nothing without others, or with them."""
    for flag in (_COORDINATOR, _PROCESSES, _PROCESS_ID):
        if flag.value is not None and not (_DISTRIBUTED.value or flag is _PROCESSES and _LAUNCHER.value):
            raise BadInput(f'--{flag.name}={flag.value}: needs --distributed')
    if _VECTORIZE.value and (_LAUNCHER.value or not _SWEEP.value):
        raise BadInput('--vectorize: needs --sweep, and not --launcher, which gives each point a process')
    if _SWEEP.value and _DISTRIBUTED.value:
        raise BadInput('--sweep: not with --distributed; start its points one by one')
    if _LAUNCHER.value and _DISTRIBUTED.value:
        raise BadInput(f'--launcher={_LAUNCHER.value}: not with --distributed; --processes=N starts all of them')
    if _SLURM.value and _LAUNCHER.value != 'slurm':
        raise BadInput(f'--slurm={",".join(_SLURM.value)}: needs --launcher=slurm')
    launchers.read_options(_SLURM.value)
    if _JOBS.value is not None and not (_SWEEP.value and _LAUNCHER.value):
        raise BadInput(f'--jobs={_JOBS.value}: needs --sweep and --launcher')


def _wrong_override(argv: list[str]) -> str | None:
    """Names the first --config.KEY=VALUE that no config has, or whose value is of another type."""
    config = default.get_config()
    for argument in argv:
        path, equals, value = argument.lstrip('-').partition('=')
        here = config
        for part in path.split('.')[1:] if path.startswith('config.') else ():
            if not isinstance(here, ConfigDict) or part not in here:
                allowed = (
                    f'allowed here: {", ".join(here)}' if isinstance(here, ConfigDict) else 'no keys lie below this one'
                )
                if new_key := KEY_ALIASES.get(path.removeprefix('config.')):
                    allowed = f'it is now --config.{new_key}'
                return f'--{path}: unknown key; {allowed}'
            here = here[part]
        if isinstance(here, ConfigDict):
            if path.startswith('config.'):
                return f'--{argument.lstrip("-")}: a section; set its keys: {", ".join(here)}'
        elif equals and not _reads_as(value, type(here)):
            return f'--{path}={value}: must be of type {type(here).__name__}'
    return None


def _reads_as(value: str, kind: type) -> bool:
    if kind is bool:
        return value.lower() in ('', 'true', 'false', '1', '0')
    try:
        kind(value)
        return True
    except ValueError:
        return False


def _end(code: int, message: str, together: bool = False) -> None:
    """together: every process ends so. Where one ends alone, JAX would wait at its exit for those that wait for it."""
    print(message, file=sys.stderr, flush=True)
    if not together and flags.FLAGS.is_parsed() and _DISTRIBUTED.value:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == '__main__':
    app.run(main, flags_parser=_parse)
