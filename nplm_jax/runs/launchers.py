"""Runs as jobs of SLURM, or of this machine, through submitit: each starts the command line that a user would.

A job that SLURM ends or queues again stops its run as SIGTERM does, with everything saved, and goes on from there when
it is started again. Imported in every job, before JAX: nothing here imports it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from nplm_jax.utils.errors import BadInput, require

# What may be asked of SLURM, by submitit's names: whole numbers, else text.
WHOLE = ('time', 'nodes', 'cpus_per_task', 'gpus_per_node', 'signal_delay_s')
TEXT = ('partition', 'account', 'qos', 'mem', 'gres', 'constraint', 'nodelist', 'exclude', 'setup')
_A_DAY, _RETRIES = 24 * 60, 1000  # minutes; how often a job whose time was over may be queued again
_A_YEAR = 365 * _A_DAY
_ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run that becomes a job. command: launch.py and its flags, for one process."""

    name: str
    folder: pathlib.Path
    command: tuple[str, ...]


def read_options(texts: Iterable[str]) -> dict[str, Any]:
    """`['partition=gpu', 'time=60']` as submitit takes them; time is in minutes. Raises: BadInput."""
    options = {}
    for text in texts:
        key, equals, value = text.partition('=')
        allowed = f'must be KEY=VALUE, with a key of {", ".join(sorted(WHOLE + TEXT))}'
        require(bool(equals and value) and key in WHOLE + TEXT, '--slurm', text, allowed)
        if key in WHOLE:
            require(value.isdecimal() and int(value) > 0, '--slurm', text, 'must be a whole number above 0')
        options[key] = int(value) if key in WHOLE else [value] if key == 'setup' else value
    return options


def run(
    runs: Sequence[Run],
    launcher: str,
    logs: pathlib.Path,
    finished: Callable[[pathlib.Path], Any],
    options: Mapping[str, Any],
    processes: int = 1,
    at_once: int | None = None,
) -> dict[str, str]:
    """Submits each run as one job and waits for them all; one that SLURM has in its queue already is not sent again.

    launcher: slurm, or local for this machine. logs: the folder of what the jobs print, below which nothing else is.
    finished: tells of a run's folder whether it is. processes: of each job, which then train together.
    at_once: how many jobs there may be; all on SLURM, one on this machine when None.
    Interrupted, it leaves the jobs of SLURM as they are, and ends those of this machine with everything saved.
    Returns: why, of each run that has no result. Raises: BadInput when submitit or SLURM refuses.
    """
    jobs = (_Slurm if launcher == 'slurm' else _Local)(_submitit(), logs, options, processes)
    at_once = at_once or (len(runs) if launcher == 'slurm' else 1)
    waiting, under_way, failed, pause = list(runs), {}, {}, jobs.pause
    try:
        while waiting or under_way:
            while waiting and len(under_way) < at_once:
                this = waiting.pop(0)
                under_way[this] = number = jobs.submit(this)
                _tell(f'{this.name}: job {number}, which writes to {logs}/{number}_*')
            time.sleep(pause)
            pause = min(30, pause * jobs.patience)
            for this in jobs.ended(under_way):
                log = logs / f'{under_way.pop(this)}_0_log.err'
                if not finished(this.folder):
                    failed[this.name] = f'{this.name}: ended without a result ({_last_line(log)}); see {log}'
                _tell(failed.get(this.name, f'{this.name}: done, {len(waiting) + len(under_way)} to go'))
    except BaseException:
        jobs.leave(under_way)
        raise
    return failed


class Task:
    """What submitit runs in each process of a job: the command, as a process that is asked to stop and may go on."""

    def __init__(self, command: Sequence[str], coordinator: str, visible: str | None):
        """coordinator, visible: of a job of this machine alone; HOST:PORT, and CUDA_VISIBLE_DEVICES as it was."""
        self.given = command, coordinator, visible
        self.child, self.asked = 0, False

    def __call__(self) -> None:
        """Waits for the command. Raises: SystemExit with its exit code, unless that is 0."""
        here = _submitit().JobEnvironment()
        words, environment = self.line(here)
        local = here.cluster == 'local'
        signal.signal(signal.SIGTERM, lambda *_: self._stop() if local else setattr(self, 'asked', True))
        # SLURM signals all processes of a job. SIGTERM is the command's business, the one that asks for a requeue not.
        former = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2))  # what the command inherits
        child = subprocess.Popen(words, env=environment)
        self.child = child.pid
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOWAIT)
        if code := child.wait():
            raise SystemExit(code if code > 0 else 128 - code)  # and no result, so that submitit keeps none

    def checkpoint(self) -> Any:
        """What submitit calls before it has the job queued again: stops the command, which saves. Returns: the same."""
        if self.child:
            self._stop()
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOWAIT)
        return _submitit().helpers.DelayedSubmission(Task(*self.given))

    def line(self, here: Any) -> tuple[list[str], dict[str, str]]:
        """The words and the environment of the command in the process of a job that `here`, submitit's, describes."""
        command, coordinator, visible = self.given
        words, environment = [sys.executable, *command], dict(os.environ)
        together = here.num_tasks > 1
        if together:
            words.append('--distributed')
        if here.cluster == 'local':
            environment.pop('CUDA_VISIBLE_DEVICES', None)  # submitit hides all GPUs
            environment |= {} if visible is None else {'CUDA_VISIBLE_DEVICES': visible}
            if together:
                rank = f'--process_id={here.global_rank}'
                words += [f'--coordinator={coordinator}', f'--processes={here.num_tasks}', rank]
        return words, environment

    def _stop(self) -> None:
        """Once: a second SIGTERM would end the command in the middle of saving."""
        if self.child and not self.asked:
            self.asked = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, signal.SIGTERM)


class _Slurm:
    """The jobs of a SLURM. Its queue is asked with squeue: not every one keeps accounts that submitit could read."""

    pause, patience = 2.0, 1.3  # seconds between questions, and by how much they grow

    def __init__(self, submitit: ModuleType, logs: pathlib.Path, options: Mapping[str, Any], processes: int):
        nodes = options.get('nodes', 1)
        require(processes % nodes == 0, '--processes', processes, f'must be a multiple of nodes={nodes}')
        self.refused = submitit.core.utils.FailedJobError
        try:
            self.executor = submitit.SlurmExecutor(logs, _RETRIES, python=_python())
        except RuntimeError:
            raise BadInput('--launcher=slurm: this machine has no srun; give it where SLURM is, or use local') from None
        common = {'time': _A_DAY, 'ntasks_per_node': processes // nodes, 'additional_parameters': {'requeue': True}}
        self.executor.update_parameters(**common | dict(options))
        self.queue = _queue() or {}

    def submit(self, run: Run) -> str:
        mark = str(run.folder.absolute())
        if mark in self.queue:
            return self.queue[mark]
        self.executor.update_parameters(job_name=run.name, comment=mark)
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what sbatch says
                return self.executor.submit(Task(run.command, '', None)).job_id
        except self.refused as error:
            raise BadInput(f'--launcher=slurm: {str(error).strip().splitlines()[-1]}') from None

    def ended(self, under_way: Iterable[Run]) -> list[Run]:
        queue = _queue()
        return [] if queue is None else [run for run in under_way if str(run.folder.absolute()) not in queue]

    def leave(self, under_way: Mapping[Run, str]) -> None:
        if under_way:
            numbers = ' '.join(under_way.values())
            _tell(f'these jobs go on: {numbers} (scancel {numbers} ends them); the same line again waits for them')


class _Local:
    """The jobs of this machine: they end with the one that waits for them."""

    pause, patience = 0.3, 1.0

    def __init__(self, submitit: ModuleType, logs: pathlib.Path, _options: Mapping[str, Any], processes: int):
        self.executor = submitit.LocalExecutor(logs, python=_python())
        self.executor.update_parameters(tasks_per_node=processes, timeout_min=_A_YEAR)
        self.jobs = {}

    def submit(self, run: Run) -> str:
        with socket.socket() as free:
            free.bind(('localhost', 0))
            coordinator = f'localhost:{free.getsockname()[1]}'
        task = Task(run.command, coordinator, os.environ.get('CUDA_VISIBLE_DEVICES'))
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that waits: see `leave`
        try:
            self.jobs[run] = self.executor.submit(task)
        finally:
            signal.signal(signal.SIGINT, former)
        return self.jobs[run].job_id

    def ended(self, under_way: Iterable[Run]) -> list[Run]:
        return [run for run in under_way if self.jobs[run].done()]

    def leave(self, under_way: Mapping[Run, str]) -> None:
        while left := [run for run in under_way if not self.jobs[run].done()]:
            for run in left:  # again and again: one that is just starting may not hear it
                os.kill(int(under_way[run]), signal.SIGTERM)
            time.sleep(1)


def _submitit() -> ModuleType:
    try:
        import submitit  # noqa: PLC0415 (an extra)
    except ImportError:
        raise BadInput('--launcher: needs submitit: pip install submitit') from None
    return submitit


def _queue() -> dict[str, str] | None:
    """The user's jobs that wait, run or are about to end: folder -> number. None while SLURM does not answer."""
    asked = subprocess.run(['squeue', '--me', '--noheader', '--format=%i %k'], capture_output=True, text=True)
    if asked.returncode:
        return None
    return {mark: number for number, _, mark in (line.partition(' ') for line in asked.stdout.splitlines())}


def _python() -> str:
    """How a job starts Python so that it finds this package, wherever it was started."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get('PYTHONPATH'))))
    return shlex.join(['env', f'PYTHONPATH={path}', sys.executable])


def _last_line(log: pathlib.Path) -> str:
    """At most 300 characters of the last line that says something."""
    lines = log.read_text(errors='replace').split('\n') if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), 'it said nothing')


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
