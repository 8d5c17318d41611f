"""Runs as jobs of SLURM or of this machine: each process of a job starts the command line that a user would.

SLURM stops a run that it preempts or requeues, or whose time is over, by SIGTERM: it saves everything, and resumes when
SLURM starts the job again. launch.py imports this module before JAX, so nothing here imports JAX.
"""

import dataclasses
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from nplm_jax.executors.processes import free_port
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.names import did_you_mean

# What a user may set for SLURM jobs: options of sbatch, and `setup`, shell code that runs before the command.
INTEGER_OPTIONS = ('time', 'nodes', 'cpus_per_task', 'gpus_per_node', 'signal_delay_s')
STRING_OPTIONS = ('partition', 'account', 'qos', 'mem', 'gres', 'constraint', 'nodelist', 'exclude', 'setup')
_DEFAULTS = {'time': '1440', 'nodes': '1', 'signal_delay_s': '90', 'setup': ''}  # time in minutes
# SLURM sends SIGUSR2 to this script alone when the job's time is nearly over, and SIGTERM to the run and to it when the
# job is requeued. A signal ends `wait`, but not the run that it waits for.
_SCRIPT = """#!/bin/bash
{setup}
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
trap 'late=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR2
trap : TERM
srun --unbuffered --open-mode=append --output={log}.out --error={log}.err {command} &
run=$!
wait $run; code=$?
while kill -0 $run 2>/dev/null; do wait $run; code=$?; done
[ -z "$late" ] || scontrol requeue "$SLURM_JOB_ID"
exit $code
"""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run that becomes a job.

    Attributes:
        name: the name of the run.
        folder: the folder of the run.
        command: launch.py and its flags, for one process.
    """

    name: str
    folder: pathlib.Path
    command: tuple[str, ...]


def parse_slurm_options(texts: Iterable[str]) -> dict[str, str]:
    """Converts `['partition=gpu', 'time=60']` to a dictionary; time is in minutes. Raises BadInput."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition('=')
        keys = sorted(INTEGER_OPTIONS + STRING_OPTIONS)
        allowed = f'must be KEY=VALUE, with a key of {", ".join(keys)}{did_you_mean(key, set(keys) - {key})}'
        require(bool(equals and value) and key in keys, '--slurm', text, allowed)
        is_valid = key in STRING_OPTIONS or (value.isdecimal() and int(value) > 0)
        require(is_valid, '--slurm', text, 'must be an integer above 0')
        options[key] = value
    return options


def run(
    jobs: Sequence[Job],
    on_slurm: bool,
    logs: pathlib.Path,
    finished: Callable[[pathlib.Path], object],
    options: Mapping[str, str],
    processes: int = 1,
    max_running: int | None = None,
) -> list[str]:
    """Submits the jobs and waits for all of them; a job that is already in SLURM's queue is not submitted again.

    An interrupt leaves the jobs of SLURM in the queue, and ends those of this machine with everything saved.

    Args:
        jobs: the jobs.
        on_slurm: submit to SLURM instead of starting processes of this machine.
        logs: the folder for what the jobs print; it holds nothing else.
        finished: returns whether the run in a folder has its result.
        options: the options of SLURM jobs.
        processes: the number of processes of each job, which train together.
        max_running: the number of jobs at one time; None is all on SLURM and one on this machine.

    Returns:
        The names of the jobs that ended without a result.

    Raises:
        BadInput: SLURM is not there or refuses the job.
    """
    backend = _Slurm(logs, options, processes) if on_slurm else _Local(logs, processes)
    logs.mkdir(parents=True, exist_ok=True)
    max_running = max_running or (len(jobs) if on_slurm else 1)
    waiting, poll_seconds = list(jobs), backend.poll_seconds
    running: dict[Job, str] = {}
    failed = []
    try:
        while waiting or running:
            while waiting and len(running) < max_running:
                job = waiting.pop(0)
                running[job] = job_id = backend.submit(job)
                _print(f'{job.name}: submitted as job {job_id}; logs: {logs}/{job_id}_*')
            time.sleep(poll_seconds)
            poll_seconds = min(30, poll_seconds * backend.backoff)
            for job in backend.ended(running):
                log = logs / f'{running.pop(job)}_0_log.err'
                if finished(job.folder):
                    _print(f'{job.name}: finished, {len(waiting) + len(running)} to go')
                else:
                    failed.append(job.name)
                    _print(f'{job.name}: ended without a result ({_last_line(log)}); see {log}')
    except BaseException:
        backend.on_interrupt(running)
        raise
    return failed


class _Slurm:
    """Jobs of SLURM. Their state comes from squeue, because not every SLURM installation has accounting."""

    poll_seconds, backoff = 2.0, 1.3

    def __init__(self, logs: pathlib.Path, options: Mapping[str, str], processes: int) -> None:
        if not shutil.which('sbatch'):
            raise BadInput(
                '--launcher',
                'sbatch not found; run this where SLURM is installed, or use --launcher=local',
                value='slurm',
            )
        asked = _DEFAULTS | dict(options)
        nodes = int(asked['nodes'])
        require(processes % nodes == 0, '--processes', processes, f'must be a multiple of nodes={nodes}')
        self._setup, delay = asked.pop('setup'), asked.pop('signal_delay_s')
        asked |= {'ntasks_per_node': str(processes // nodes), 'signal': f'B:USR2@{delay}'}
        self._flags = [f'--{key.replace("_", "-")}={value}' for key, value in asked.items()]
        self._logs, self._processes = logs.absolute(), processes
        queue = _read_queue()
        if queue is None:  # a job of an earlier start may be in it
            raise BadInput(
                '--launcher', 'squeue does not answer, so jobs could be submitted twice; try again later', value='slurm'
            )
        self._queue = queue

    def submit(self, job: Job) -> str:
        folder = str(job.folder.absolute())
        if folder in self._queue:
            return self._queue[folder]
        command = shlex.join([sys.executable, *job.command, *['--distributed'] * (self._processes > 1)])
        script = _SCRIPT.format(setup=self._setup, log=shlex.quote(f'{self._logs}/%j_%t_log'), command=command)
        about = [f'--job-name={job.name}', f'--comment={folder}', f'--output={self._logs}/%j_log.out']
        sbatch = ['sbatch', '--parsable', '--requeue', '--open-mode=append', *about, *self._flags]
        done = subprocess.run(sbatch, input=script, capture_output=True, text=True)
        if done.returncode:
            reasons = done.stderr.strip().splitlines() or [f'sbatch ended with exit code {done.returncode}']
            raise BadInput('--launcher', reasons[-1], value='slurm')
        return done.stdout.strip().partition(';')[0]

    def ended(self, running: Iterable[Job]) -> list[Job]:
        queue = _read_queue()
        return [] if queue is None else [job for job in running if str(job.folder.absolute()) not in queue]

    def on_interrupt(self, running: Mapping[Job, str]) -> None:
        if running:
            ids = ' '.join(running.values())
            _print(f'jobs still running: {ids} (cancel them with scancel {ids}); the same command waits for them again')


class _Local:
    """Jobs of this machine, which end with the process that waits for them."""

    poll_seconds, backoff = 0.3, 1.0

    def __init__(self, logs: pathlib.Path, processes: int) -> None:
        self._logs, self._processes = logs, processes
        self._started: dict[Job, list[subprocess.Popen[bytes]]] = {}

    def submit(self, job: Job) -> str:
        job_id, port = f'{os.getpid()}.{len(self._started)}', free_port()
        self._started[job] = []
        for number in range(self._processes):
            group = [f'--coordinator=localhost:{port}', f'--processes={self._processes}', f'--process_id={number}']
            command = [sys.executable, *job.command, *(['--distributed', *group] if self._processes > 1 else [])]
            log = self._logs / f'{job_id}_{number}_log'
            with open(f'{log}.out', 'wb') as out, open(f'{log}.err', 'wb') as err:
                # In a session of its own: Ctrl-C is for the waiting process (see `on_interrupt`).
                child = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
            self._started[job].append(child)
        return job_id

    def ended(self, running: Iterable[Job]) -> list[Job]:
        return [job for job in running if all(child.poll() is not None for child in self._started[job])]

    def on_interrupt(self, running: Mapping[Job, str]) -> None:
        children = [child for job in running for child in self._started[job]]
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait()


def _read_queue() -> dict[str, str] | None:
    """Returns the ids of the user's pending, running and ending jobs by folder; None while SLURM does not answer."""
    squeue = subprocess.run(['squeue', '--me', '--noheader', '--format=%i %k'], capture_output=True, text=True)
    if squeue.returncode:
        return None
    return {folder: job_id for job_id, _, folder in (line.partition(' ') for line in squeue.stdout.splitlines())}


def _last_line(log: pathlib.Path) -> str:
    """Returns at most 300 characters of the last line of a log that is not blank."""
    lines = log.read_text(errors='replace').split('\n') if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), 'no output')


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
