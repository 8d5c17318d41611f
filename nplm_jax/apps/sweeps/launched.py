"""Executes the sweeps, searches and jobs that the flags select."""

import importlib.util
import os
import sys

from nplm_jax.apps.sweeps import launchers, sweep_points, sweeps
from nplm_jax.apps.sweeps import sweep_flags as asked
from nplm_jax.apps.sweeps.sweep_points import Point, Points
from nplm_jax.cli.launch_flags import HEARTBEAT, PRINT_CONFIG, PROCESS_ID, PROCESSES
from nplm_jax.cli.launched import Launch
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, workdir
from nplm_jax.runs.command_line import describe_config
from nplm_jax.utils.errors import Resumable, require


def run(launch: Launch) -> None:
    """Runs the points of a sweep, the trials of a search, or a single run as a job. Prints the resulting table.

    Raises:
        BadInput: A point, the search space or the folder is invalid.
        Resumable: The job of a single run or the processes of a search ended without a result.
    """
    points, impossible = find_points(launch)
    for point in points if asked.is_sweep() else []:
        workdir.check_path(launch.folder / point.name)  # check all paths before training starts
    for name, reason in impossible.items():
        print(f'{name}: the point is skipped, because it is impossible ({reason})', file=sys.stderr, flush=True)
    if PRINT_CONFIG.value:
        print(describe_config(launch.config, [point.overrides for point in points if asked.is_sweep()]))
        return
    if asked.is_search():
        print(run_search(launch))
        return
    failed = run_jobs(launch, points) if asked.LAUNCHER.value else []
    failures = dict.fromkeys(failed, 'failed') | dict.fromkeys(impossible, 'impossible')
    if asked.is_sweep() and asked.LAUNCHER.value:
        print(sweeps.write_table(points, launch.folder, failures))
    elif asked.is_sweep():
        print(sweeps.run(points, launch.folder, launch.command, asked.VECTORIZE.value, failures))
    elif failed:
        raise Resumable('the job ended without a result')


def find_points(launch: Launch) -> Points:
    """Returns the points that the flags select. If the flags select no sweep, the single run is the only point."""
    if asked.CONFIGS.value:
        return Points(sweep_points.config_points(asked.CONFIGS.value.split(';'), launch.overrides), {})
    if asked.GRID.value:
        return sweep_points.grid_points(asked.GRID.value, launch.config, launch.overrides.keys())
    if asked.SWEEP.value:
        return sweep_points.load_points(launch.file.partition(':')[0], launch.config, launch.overrides.keys())
    return Points([Point(launch.config.name, experiment.load_settings(launch.config), {})], {})


def run_search(launch: Launch) -> str:
    """Runs the requested search in this process or as jobs. Returns the table of trials.

    Raises:
        BadInput: A package is not installed, the config file has no valid search space, or the folder or the database
            URL is invalid.
    """
    is_installed = importlib.util.find_spec('optuna') is not None
    require(is_installed, '--search', ..., 'Optuna is not installed; install it with: pip install "nplm-jax[search]"')
    from nplm_jax.apps.sweeps import search, search_space, search_storage

    assert asked.SEARCH.value is not None
    workdir.check_path(launch.folder / 'trial-0000')
    space = search_space.load(launch.file.partition(':')[0], launch.config, launch.overrides.keys())
    url = search_storage.find_url(asked.STORAGE.value, launch.folder)
    words = launch.words(launch.file, launch.overrides)
    searching = search.Search(space, launch.folder, url, asked.SEARCH.value, words, PROCESS_ID.value)
    if not asked.LAUNCHER.value:
        return searching.run()
    if asked.STORAGE.value:  # passed in the environment, because the password would be visible in a command line
        os.environ['NPLM_STORAGE'] = asked.STORAGE.value
    options = launchers.parse_slurm_options(asked.SLURM.value)
    return searching.run_jobs(asked.JOBS.value or 1, asked.LAUNCHER.value, options, launch.scheduler_flags)


def run_jobs(launch: Launch, points: list[Point]) -> list[str]:
    """Runs each unfinished point as a job with a separate command line.

    Args:
        launch: The values of the flags.
        points: The points of a sweep, or one point for a single run.

    Returns:
        The names of the points whose jobs ended without a result.

    Raises:
        BadInput: The folder of a point belongs to another config, or its text or a model file has changed.
    """
    assert asked.LAUNCHER.value is not None
    jobs, folder, processes = dict[launchers.Job, Point](), launch.folder, PROCESSES.value or 1
    if asked.is_sweep():
        sweeps.check_begun(points, folder)
    for point in points:
        point_folder = folder / point.name if asked.is_sweep() else folder
        workdir.ensure_folder(point_folder, point.settings)
        if not catalog.finished(point_folder):
            file = point.file or launch.file
            words = launch.words(*sweep_points.job_config(file, launch.overrides, launch.config, point))
            heartbeat = [f'--heartbeat={HEARTBEAT.value}'] if processes > 1 else []
            arguments = (*words, f'--workdir={point_folder}', *heartbeat, *launch.scheduler_flags)
            jobs[launchers.Job(point.name, point_folder, arguments)] = point
    if not jobs:
        return []
    options = launchers.parse_slurm_options(asked.SLURM.value)
    failed = launchers.run(
        [*jobs], asked.LAUNCHER.value, folder / '.jobs', catalog.finished, options, processes, asked.JOBS.value
    )
    for job, point in jobs.items():  # jobs of another config may have been in SLURM's queue
        workdir.ensure_folder(job.folder, point.settings)
    return failed
