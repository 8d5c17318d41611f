"""Runs as jobs of SLURM or of this machine, through submitit: each job starts the command line that a user would.

A job that SLURM ends or requeues stops its run as SIGTERM does, with everything saved, and resumes it when the job
starts again. Every job imports this module before JAX, so nothing here imports JAX.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.processes import free_port

# The options of SLURM jobs that a user may set, by submitit's names.
INTEGER_OPTIONS = ('time', 'nodes', 'cpus_per_task', 'gpus_per_node', 'signal_delay_s')
STRING_OPTIONS = ('partition', 'account', 'qos', 'mem', 'gres', 'constraint', 'nodelist', 'exclude', 'setup')
_MINUTES_PER_DAY = 24 * 60
_MAX_REQUEUES = 1000  # after a job's time is over
_ROOT = pathlib.Path(__file__).parents[2]


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


def parse_slurm_options(texts: Iterable[str]) -> dict[str, Any]:
    """Converts `['partition=gpu', 'time=60']` to submitit's options; time is in minutes. Raises BadInput."""
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition('=')
        allowed = f'must be KEY=VALUE, with a key of {", ".join(sorted(INTEGER_OPTIONS + STRING_OPTIONS))}'
        require(bool(equals and value) and key in INTEGER_OPTIONS + STRING_OPTIONS, '--slurm', text, allowed)
        if key in INTEGER_OPTIONS:
            require(value.isdecimal() and int(value) > 0, '--slurm', text, 'must be an integer above 0')
        options[key] = int(value) if key in INTEGER_OPTIONS else [value] if key == 'setup' else value
    return options


def run(
    jobs: Sequence[Job],
    on_slurm: bool,
    logs: pathlib.Path,
    finished: Callable[[pathlib.Path], Any],
    options: Mapping[str, Any],
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
        BadInput: submitit is missing, or SLURM refuses the job.
    """
    backend = (_Slurm if on_slurm else _Local)(_import_submitit(), logs, options, processes)
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


@dataclasses.dataclass
class Task:
    """What submitit runs in each process of a job: the command, in a child process that can be stopped.

    Attributes:
        command: launch.py and its flags.
        coordinator: HOST:PORT of a job's first process on this machine; empty on SLURM.
        visible_gpus: CUDA_VISIBLE_DEVICES of the submitting process on this machine, None if unset.
        child_pid: the process of the command, 0 before it starts.
        stopping: whether the command has received SIGTERM.
    """

    command: Sequence[str]
    coordinator: str = ''
    visible_gpus: str | None = None
    child_pid: int = dataclasses.field(default=0, init=False)
    stopping: bool = dataclasses.field(default=False, init=False)

    def __call__(self) -> None:
        """Runs the command to its end. Raises SystemExit with its exit code unless that is 0."""
        job = _import_submitit().JobEnvironment()
        words, environment = self.command_line(job)
        local = job.cluster == 'local'  # SLURM signals all processes of a job: the command gets SIGTERM by itself
        signal.signal(signal.SIGTERM, lambda *_: self._stop_child() if local else setattr(self, 'stopping', True))
        # The child inherits a mask of the signals that ask submitit for a requeue: they are not meant for it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2))
        child = subprocess.Popen(words, env=environment)
        self.child_pid = child.pid
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _wait_without_reaping(self.child_pid)
        if code := child.wait():
            raise SystemExit(code if code > 0 else 128 - code)  # submitit then stores no result

    def checkpoint(self) -> Any:
        """Stops the child, which saves, and returns the submission that submitit requeues."""
        if self.child_pid:
            self._stop_child()
            with contextlib.suppress(ChildProcessError):
                if not _wait_without_reaping(self.child_pid):
                    os.waitpid(self.child_pid, 0)
        return _import_submitit().helpers.DelayedSubmission(dataclasses.replace(self))

    def command_line(self, job: Any) -> tuple[list[str], dict[str, str]]:
        """Returns the words and the environment of the command for this process of a submitit `JobEnvironment`."""
        words, environment = [sys.executable, *self.command], dict(os.environ)
        distributed = job.num_tasks > 1
        if distributed:
            words.append('--distributed')
        if job.cluster == 'local':
            environment.pop('CUDA_VISIBLE_DEVICES', None)  # submitit hides all GPUs
            environment |= {} if self.visible_gpus is None else {'CUDA_VISIBLE_DEVICES': self.visible_gpus}
            if distributed:
                process_id = f'--process_id={job.global_rank}'
                words += [f'--coordinator={self.coordinator}', f'--processes={job.num_tasks}', process_id]
        return words, environment

    def _stop_child(self) -> None:
        """Sends SIGTERM once: a second one would end the child in the middle of saving."""
        if self.child_pid and not self.stopping:
            self.stopping = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child_pid, signal.SIGTERM)


def _wait_without_reaping(pid: int) -> bool:
    """Waits until a child has ended, without reaping it, so that a signal handler may wait for it too.

    Returns:
        False, at once, where the system has no such call: macOS before Python 3.13. There `Popen.wait` waits instead,
        and a handler that reaps the child ends the process itself.
    """
    if not hasattr(os, 'waitid'):
        return False
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return True


class _Slurm:
    """Jobs of SLURM. squeue tells their state: not every SLURM keeps the accounts that submitit reads."""

    poll_seconds, backoff = 2.0, 1.3

    def __init__(self, submitit: ModuleType, logs: pathlib.Path, options: Mapping[str, Any], processes: int) -> None:
        nodes = options.get('nodes', 1)
        require(processes % nodes == 0, '--processes', processes, f'must be a multiple of nodes={nodes}')
        self.refusal = submitit.core.utils.FailedJobError
        try:
            self.executor = submitit.SlurmExecutor(logs, _MAX_REQUEUES, python=_python_command())
        except RuntimeError:
            raise BadInput(
                '--launcher=slurm: srun not found; run this where SLURM is installed, or use --launcher=local'
            ) from None
        requeue = {'requeue': True}
        defaults = {'time': _MINUTES_PER_DAY, 'ntasks_per_node': processes // nodes, 'additional_parameters': requeue}
        self.executor.update_parameters(**defaults | dict(options))
        self.queue = _read_queue() or {}

    def submit(self, job: Job) -> str:
        folder = str(job.folder.absolute())
        if folder in self.queue:
            return self.queue[folder]
        self.executor.update_parameters(job_name=job.name, comment=folder)
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # submitit prints sbatch's message
                return self.executor.submit(Task(job.command)).job_id
        except self.refusal as error:
            raise BadInput(f'--launcher=slurm: {str(error).strip().splitlines()[-1]}') from None

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

    def __init__(self, submitit: ModuleType, logs: pathlib.Path, _options: Mapping[str, Any], processes: int) -> None:
        self.executor = submitit.LocalExecutor(logs, python=_python_command())
        self.executor.update_parameters(tasks_per_node=processes, timeout_min=365 * _MINUTES_PER_DAY)
        self.submitted: dict[Job, Any] = {}

    def submit(self, job: Job) -> str:
        task = Task(job.command, f'localhost:{free_port()}', os.environ.get('CUDA_VISIBLE_DEVICES'))
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the waiting process: see `on_interrupt`
        try:
            self.submitted[job] = self.executor.submit(task)
        finally:
            signal.signal(signal.SIGINT, handler)
        return self.submitted[job].job_id

    def ended(self, running: Iterable[Job]) -> list[Job]:
        return [job for job in running if self.submitted[job].done()]

    def on_interrupt(self, running: Mapping[Job, str]) -> None:
        while remaining := [job for job in running if not self.submitted[job].done()]:
            for job in remaining:  # repeatedly: a process that is just starting may miss the signal
                os.kill(int(running[job]), signal.SIGTERM)
            time.sleep(1)


def _import_submitit() -> ModuleType:
    try:
        import submitit  # noqa: PLC0415 (an optional extra)
    except ImportError:
        raise BadInput('--launcher: needs submitit: pip install submitit') from None
    return submitit


def _read_queue() -> dict[str, str] | None:
    """Returns the ids of the user's pending, running and ending jobs by folder; None while SLURM does not answer."""
    squeue = subprocess.run(['squeue', '--me', '--noheader', '--format=%i %k'], capture_output=True, text=True)
    if squeue.returncode:
        return None
    return {folder: job_id for job_id, _, folder in (line.partition(' ') for line in squeue.stdout.splitlines())}


def _python_command() -> str:
    """Returns the command with which a job starts Python so that it finds this package from any folder."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get('PYTHONPATH'))))
    return shlex.join(['env', f'PYTHONPATH={path}', sys.executable])


def _last_line(log: pathlib.Path) -> str:
    """Returns at most 300 characters of the last line of a log that is not blank."""
    lines = log.read_text(errors='replace').split('\n') if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), 'no output')


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
