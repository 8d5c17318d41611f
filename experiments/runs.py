"""Trains the runs of studies whose results are missing, shortest first. Run the same command again to resume.

    python -m experiments.runs table1 recurrent            the missing runs of these studies
    python -m experiments.runs --until=17:30               all missing runs except `use`; stops at that time of day
    python -m experiments.runs table1 --only='mlp9*' --repeat     also runs that experiments.audit rejects
    python -m experiments.runs --repeat --list             lists the runs to train, with their earlier duration

Each run is kept in the folder --runs. The results.json of a run is added to the results of the run's study, together
with the CPU time and the wall time of the process, the load of the machine before the run, and the keys that differ
from their defaults.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from experiments import audit, origins, points, results, study
from experiments.points import Adaptation, Mixture, Point, Program, Training
from experiments.sources import of_runs
from nplm_jax.config import settings as config_lib
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.command_line import load_config
from nplm_jax.runs.signals import Terminated, raise_on_sigterm
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_json

ROOT = pathlib.Path(__file__).parents[1]
_COST = 'processor_seconds', 'process_seconds', 'load'  # the cost of a process that trained an entire run
_SAVING = 60  # seconds before --until at which training is asked to stop


def due(names: Sequence[str], only: str, repeat: bool) -> list[Point]:
    """Returns the points without a usable result, shortest first. Points that were never trained come last.

    Args:
        names: Studies of `points.STUDIES`.
        only: A pattern that the names of the results must match, such as `mlp*`.
        repeat: Whether to retrain the runs whose results `experiments.audit` rejects.

    Raises:
        BadInput: No name matches the pattern, and the pattern is not `*`.
    """
    faulty = {path for path, found in audit.faults(audit.read_all()).items() if found} if repeat else set()
    wanted = [point for name in names for point in points.STUDIES[name]() if fnmatch.fnmatch(point.result.stem, only)]
    require(bool(wanted) or only == '*', '--only', only, f'matches no result of {", ".join(names)}')
    missing = [point for point in wanted if not point.result.exists() or point.result in faulty]
    return sorted(missing, key=lambda point: seconds_before(point) or float('inf'))


def seconds_before(point: Point) -> float | None:
    """Returns the duration of the run behind a committed result, in seconds, or None without a committed result."""
    if not point.result.exists():
        return None
    before = read_json(point.result)
    if isinstance(seconds := before.get('seconds', 0.0), dict):  # sum over the parts of a program
        return sum(seconds.values())
    return before.get('process_seconds') or seconds + before.get('evaluation_seconds', 0.0)


def launch(words: Sequence[str], folder: pathlib.Path, until: float = 0.0) -> dict[str, Any]:
    """Trains or resumes a run. If the run is finished, launch.py only checks that the config is the same.

    Args:
        words: The arguments of launch.py, without --workdir.
        folder: The run's folder.
        until: The time at which to stop, in seconds since the epoch, or 0 for never.

    Returns:
        The results, and the cost of the process if it trained the entire run.

    Raises:
        subprocess.CalledProcessError: The process failed.
        TimeoutError: The process was stopped.
    """
    is_new, load = not folder.exists(), os.getloadavg()[0]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    _run([sys.executable, 'launch.py', *words, f'--workdir={folder}'], until)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    process = {'processor_seconds': round(used), 'process_seconds': round(time.monotonic() - started, 1), 'load': load}
    return {**read_json(folder / 'results.json'), **(process if is_new else {})}


def _run(command: list[str], until: float) -> None:
    """Runs a process until it ends, or asks it to stop in time. Raises the same exceptions as `launch`."""
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            child.wait(max(0.0, until - _SAVING - time.time()) if until else None)
        except (subprocess.TimeoutExpired, Terminated) as stop:
            child.send_signal(signal.SIGTERM)
            child.wait()
            if isinstance(stop, Terminated):
                raise
        except KeyboardInterrupt:  # the terminal has also sent the signal to the child
            child.wait()
            raise
    if child.returncode in (128 + signal.SIGTERM, -signal.SIGTERM):  # the child has no handler during its first second
        raise TimeoutError('stopped; run the same command again to resume')
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


def train(point: Point, runs: pathlib.Path, until: float = 0.0) -> dict[str, Any]:
    """Trains a point after the runs it requires. Returns its results. Raises the same exceptions as `launch`."""
    needed = [train(other, runs, until) for other in point.needs]
    return _train(point, needed, runs, until)


@functools.singledispatch
def _train(point: Point, needed: list[dict[str, Any]], runs: pathlib.Path, until: float) -> dict[str, Any]:
    """Trains a point whose required runs have the results `needed`."""
    raise NotImplementedError(f'{type(point).__name__} has no function that trains it')


@_train.register
def _(point: Training, needed: list[dict[str, Any]], runs: pathlib.Path, until: float) -> dict[str, Any]:
    found = launch(point.words(), runs / point.name, until)
    changed = results.changed_keys(config_lib.override(load_config(point.config), point.keys))
    return {**_cost_before(point, found), **found, 'settings': changed}


@_train.register
def _(point: Program, needed: list[dict[str, Any]], runs: pathlib.Path, until: float) -> dict[str, Any]:
    output = runs / f'{point.name}-{point.result.name}'
    runs.mkdir(parents=True, exist_ok=True)
    flags = f'--workdir={runs / point.name}', f'--output={output}'
    _run([sys.executable, '-m', *point.command, *flags], until)
    return read_json(output)


@_train.register
def _(point: Adaptation, needed: list[dict[str, Any]], runs: pathlib.Path, until: float) -> dict[str, Any]:
    return {**_combine('adapt', point, runs, until), 'trained': of_runs(needed)}


@_train.register
def _(point: Mixture, needed: list[dict[str, Any]], runs: pathlib.Path, until: float) -> dict[str, Any]:
    """Mixes runs with weights learned on the validation words. The times and sizes of the results are sums."""
    mixed = _combine('mix', point, runs, until)
    sums: dict[str, Any] = {key: sum(found.get(key, 0) for found in needed) for key in ('parameters', 'seconds')}
    shared: dict[str, Any] = {
        key: needed[0][key] for key in ('corpus', 'vocabulary', 'calibration_words') if key in needed[0]
    }
    perplexities = {'perplexity': mixed['mixtures']['learned'], 'equal_weights': mixed['mixtures']['equal']}
    facts = {'name': point.name, 'family': 'mixture', 'trained': of_runs(needed)}
    return {**mixed, **facts, **shared, **perplexities, **sums}


def _combine(command: str, point: Point, runs: pathlib.Path, until: float) -> dict[str, Any]:
    """Runs `nplm COMMAND` on the required runs of a point. Returns the results that the command writes."""
    output = runs / f'{point.name}.json'
    folders = [str(runs / member.name) for member in point.needs]
    _run([sys.executable, '-m', 'nplm_jax.cli', command, *folders, f'--output={output}', '--overwrite'], until)
    return read_json(output)


def _cost_before(point: Point, found: dict[str, Any]) -> dict[str, Any]:
    """Returns the cost in a point's committed result if it is from the same run, otherwise an empty dictionary."""
    before = read_json(point.result) if point.result.exists() else {}
    is_same = all(before.get(key) == found.get(key) for key in ('commit', 'perplexity'))
    return {key: before[key] for key in _COST if is_same and key in before}


def _rejected(point: Point, runs: pathlib.Path) -> dict[pathlib.Path, list[str]]:
    """Returns the finished runs of a point, and of its required points, that `experiments.audit` rejects, and why."""
    files = [runs / each.name / 'results.json' for each in (point, *point.needs)]
    faults = audit.faults({path: origins.of(read_json(path)) for path in files if path.exists()})
    return {path.parent: found for path, found in faults.items() if found}


def measure(flags: study.Flags) -> None:
    """Trains the missing runs and writes each result immediately."""
    raise_on_sigterm()
    require(set(flags.studies) <= points.STUDIES.keys(), 'STUDY', ', '.join(flags.studies), _known())
    late = flags.until and flags.until < time.time() + _SAVING
    typed = time.strftime('%H:%M', time.localtime(flags.until))
    require(not late, '--until', typed, f'must be at least {_SAVING} seconds from now')
    by_default = [name for name in points.STUDIES if name not in points.ON_REQUEST]
    left = due(flags.studies or by_default, flags.only, flags.repeat)
    if flags.list and left:
        print(markdown_table(['study', 'result', 'minutes before'], list(_rows(left))))
        return
    runs, failed = expand('--runs', flags.runs), 0
    for number, point in enumerate(left, start=1):
        print(f'{number} of {len(left)}: {point.name}, {point.result.stem}', flush=True)
        if point.result.exists() and (rejected := _rejected(point, runs)):
            for folder, faults in rejected.items():
                print(f'{folder}: is rejected ({", ".join(faults)}); delete it to train it again', file=sys.stderr)
            failed += 1
            continue
        try:
            results.write(point.result, train(point, runs, flags.until))
        except TimeoutError as stop:
            print(f'{len(left) - number + 1} left: {stop}')
            return
        except subprocess.CalledProcessError as error:
            print(f'{point.name}: {error}', file=sys.stderr)
            failed += 1
    print(f'{len(left) - failed} done, {failed} failed' if left else 'nothing is missing')
    if failed:
        sys.exit(1)


def _rows(left: Sequence[Point]) -> Iterator[list[str]]:
    for point in left:
        seconds = seconds_before(point)
        yield [results.study_of(point.result), point.result.stem, f'{seconds / 60:.1f}' if seconds else '-']


def _known() -> str:
    return f'must be one or more of {", ".join(points.STUDIES)}'


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    default = f'default: all except {", ".join(points.ON_REQUEST)}'
    studies = f'studies whose missing runs are trained; {_known()}; {default}'
    parser.add_argument('studies', nargs='*', metavar='STUDY', help=studies)
    parser.add_argument(
        '--only', default='*', metavar='PATTERN', help='shell-style pattern of the names of the results; default: *'
    )
    parser.add_switch('--repeat', 'also train runs whose results experiments.audit rejects')
    parser.add_switch('--list', 'list the runs to train, then exit')
    parser.add_training('runs/studies')


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure)
