"""Submits jobs to SLURM or to this machine with submitit. Each process of a job runs an ordinary command line.

A job that is preempted, requeued or out of time saves its state and resumes when SLURM restarts it.
"""

import contextlib
import functools
import io
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.executors.processes import free_port
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.names import did_you_mean

# Options of sbatch, and `setup`, which is shell code to run before the command.
_INTEGERS = ('time', 'nodes', 'cpus_per_task', 'gpus_per_node', 'signal_delay_s')
_STRINGS = ('partition', 'account', 'qos', 'mem', 'gres', 'constraint', 'nodelist', 'exclude', 'setup')
_DEFAULTS = {'time': 1440, 'nodes': 1, 'signal_delay_s': 90}  # time in minutes
_DEVICES = 'CUDA_VISIBLE_DEVICES'  # submitit clears this variable for jobs on this machine
_UNLIMITED = 10**6  # time limit of jobs on this machine (minutes), and maximum number of timeouts of a SLURM job


class Job(NamedTuple):
    """A run to submit as a job.

    Attributes:
        name: The name of the run.
        folder: The folder of the run.
        command: The command line of one process: launch.py and its flags.
    """

    name: str
    folder: pathlib.Path
    command: tuple[str, ...]


class _Process:
    """A process of a job. submitit calls this object in the job, and `checkpoint` shortly before the time limit."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def __call__(self) -> None:
        """Runs the command. If it fails, no result is written for submitit, because SLURM may restart the job."""
        import submitit

        job = submitit.JobEnvironment()
        is_local = job.cluster == 'local'
        number = [f'--process_id={job.global_rank}'] * (is_local and job.num_tasks > 1)
        # SLURM sends SIGUSR2 to every process of a job before the time limit. Only this process handles the signal.
        ignore = functools.partial(signal.signal, signal.SIGUSR2, signal.SIG_IGN)
        self._run = subprocess.Popen([*self._words, *number], preexec_fn=ignore)
        if is_local:
            signal.signal(signal.SIGTERM, lambda *_: self._run.terminate())
        if code := self._run.wait():
            sys.exit(code)

    def checkpoint(self) -> Any:
        """Makes the run save its state. Returns the submission that continues the run."""
        import submitit

        self._run.terminate()
        os.waitid(os.P_PID, self._run.pid, os.WEXITED | os.WNOWAIT)  # `wait` in a signal handler would deadlock
        return submitit.helpers.DelayedSubmission(_Process(self._words))


def parse_slurm_options(texts: Iterable[str]) -> dict[str, Any]:
    """Parses options such as `['partition=gpu', 'time=60']`. Raises BadInput if an option is invalid.

    The time is in minutes.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, _, value = text.partition('=')
        keys = sorted(_INTEGERS + _STRINGS)
        allowed = f'must be KEY=VALUE with one of the keys {", ".join(keys)}{did_you_mean(key, set(keys) - {key})}'
        require(bool(value) and key in keys, '--slurm', text, allowed)
        is_valid = key in _STRINGS or (value.isdecimal() and int(value) > 0)
        require(is_valid, '--slurm', text, 'must be a positive integer')
        options[key] = int(value) if key in _INTEGERS else value
    return options


def run(
    jobs: Sequence[Job],
    launcher: str,
    logs: pathlib.Path,
    finished: Callable[[pathlib.Path], object],
    options: Mapping[str, Any],
    processes: int = 1,
    max_running: int | None = None,
) -> list[str]:
    """Submits the jobs and waits for all of them. Jobs that are already in SLURM's queue are not submitted again.

    An interrupt leaves SLURM jobs in the queue and stops jobs on this machine after they have saved their state.

    Args:
        jobs: The jobs.
        launcher: 'slurm', or 'local' for processes on this machine.
        logs: A folder that contains only the output of the jobs and the files of submitit.
        finished: A function that returns whether the run in a folder has a result.
        options: The options of SLURM jobs.
        processes: The number of processes in each job. The processes of a job train one model together.
        max_running: The maximum number of concurrent jobs. None means no limit on SLURM, and one job at a time on this
            machine.

    Returns:
        The names of the jobs that ended without a result.

    Raises:
        BadInput: The package submitit or SLURM is missing, or SLURM rejects the job.
    """
    is_local = launcher == 'local'
    executor = _executor(launcher, logs, options, processes)
    queue = {} if is_local else _read_queue()
    if queue is None:  # without the queue, jobs from an earlier command might be submitted again
        problem = 'squeue does not respond, so jobs might be submitted twice; try again later'
        raise BadInput('--launcher', problem, value=launcher)
    max_running = max_running or (1 if is_local else len(jobs))
    poll_seconds, waiting, running, failed = 0.3 if is_local else 2.0, list(jobs), dict[Job, Any](), list[str]()
    try:
        while waiting or running:
            while waiting and len(running) < max_running:
                job = waiting.pop(0)
                job_id = queue.get(str(job.folder.absolute()))
                running[job] = _submit(executor, job, launcher, processes, job_id)
                _print(f'{job.name}: submitted as job {running[job].job_id}; logs: {logs}/{running[job].job_id}_*')
            time.sleep(poll_seconds)
            poll_seconds = poll_seconds if is_local else min(30, poll_seconds * 1.3)
            for job in _ended(running, is_local):
                log = running.pop(job).paths.stderr
                if finished(job.folder):
                    _print(f'{job.name}: finished, {len(waiting) + len(running)} to go')
                else:
                    failed.append(job.name)
                    _print(f'{job.name}: ended without a result ({_last_line(log)}); see {log}')
    except BaseException:
        ids = [submitted.job_id for submitted in running.values() if not (is_local and submitted.done())]
        if is_local:
            for job_id in ids:
                os.kill(int(job_id), signal.SIGTERM)
            while not all(submitted.done() for submitted in running.values()):
                time.sleep(poll_seconds)
        elif ids:
            which = f'{" ".join(ids)} (cancel them with scancel {" ".join(ids)})'
            _print(f'jobs still running: {which}; run the same command to wait for them again')
        raise
    return failed


def _executor(launcher: str, logs: pathlib.Path, options: Mapping[str, Any], processes: int) -> Any:
    """Returns a submitit executor. Raises BadInput if submitit or SLURM is missing."""
    try:
        import submitit
    except ImportError:
        problem = 'submitit is not installed; install it with: pip install "nplm-jax[jobs]"'
        raise BadInput('--launcher', problem, value=launcher) from None
    asked = _DEFAULTS | dict(options)
    nodes = asked.pop('nodes')
    require(processes % nodes == 0, '--processes', processes, f'must be a multiple of nodes={nodes}')
    try:
        executor = submitit.AutoExecutor(logs, launcher, slurm_max_num_timeout=_UNLIMITED)
    except RuntimeError:
        problem = 'srun was not found; run the command on a machine with SLURM, or use --launcher=local'
        raise BadInput('--launcher', problem, value=launcher) from None
    executor.update_parameters(
        nodes=nodes,
        tasks_per_node=processes // nodes,
        local_timeout_min=_UNLIMITED,
        slurm_time=asked.pop('time'),
        slurm_signal_delay_s=asked.pop('signal_delay_s'),
        slurm_setup=[asked.pop('setup', '')],
        slurm_srun_args=[f'--cpus-per-task={asked[key]}' for key in asked if key == 'cpus_per_task'],
        slurm_additional_parameters={**asked, 'requeue': True},
    )
    return executor


def _submit(executor: Any, job: Job, launcher: str, processes: int, job_id: str | None) -> Any:
    """Submits a job unless it already has an id. Returns the submitit job. Raises BadInput if SLURM rejects the job."""
    import cloudpickle
    import submitit

    if job_id:
        return submitit.SlurmJob(executor.folder, job_id)
    words = [sys.executable, *job.command, *['--distributed'] * (processes > 1)]
    if launcher == 'local':
        devices = os.environ.get(_DEVICES)
        shown = ['-u', _DEVICES, *([] if devices is None else [f'{_DEVICES}={devices}'])]
        group = [f'--coordinator=localhost:{free_port()}', f'--processes={processes}'] if processes > 1 else []
        words = ['env', *shown, *words, *group]
    executor.update_parameters(name=job.name, slurm_comment=str(job.folder.absolute()))
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a job's Python may not find this package
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)  # jobs inherit this, so Ctrl-C stops only the waiting
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints SLURM's messages
            return executor.submit(_Process(words))
    except submitit.core.utils.FailedJobError as error:
        raise BadInput('--launcher', str(error).strip().splitlines()[-1], value=launcher) from None
    finally:
        signal.signal(signal.SIGINT, former)


def _ended(running: Mapping[Job, Any], is_local: bool) -> list[Job]:
    """Returns the jobs that have ended. On SLURM, these are the jobs that are no longer in the queue."""
    if is_local:
        return [job for job, submitted in running.items() if submitted.done()]
    queue = _read_queue()
    return [job for job in running if queue is not None and str(job.folder.absolute()) not in queue]


def _read_queue() -> dict[str, str] | None:
    """Returns the ids of the user's pending, running and ending jobs by folder, or None if SLURM does not respond."""
    squeue = subprocess.run(['squeue', '--me', '--noheader', '--format=%i %k'], capture_output=True, text=True)
    if squeue.returncode:
        return None
    return {folder: job_id for job_id, _, folder in (line.partition(' ') for line in squeue.stdout.splitlines())}


def _last_line(log: pathlib.Path) -> str:
    """Returns up to 300 characters of the last nonempty line of a log, ignoring lines from srun."""
    lines = log.read_text(errors='replace').split('\n') if log.exists() else []
    said = (line.strip() for line in reversed(lines) if not line.startswith('srun: '))
    return next((line[:300] for line in said if line), 'no output')


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
