"""Faults in runs that are started as local or SLURM jobs. A fault affects the waiting command or the training."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

from tools.faults import groups, runs

_SCRIPT = pathlib.Path(__file__).parents[1] / 'slurm_node.sh'
_RANKS = ('--process_id=', 'SLURM_PROCID=')
# Launcher, processes, number -> the fault and the victim at each start. Faults that affect only the waiting command
# come last, because the training then continues until it ends.
STARTS: dict[str, list[tuple[str, str]]] = {
    'local.1.0': [('kill -9', 'first'), ('SIGTERM', 'launcher')],
    'local.2.0': [
        ('kill -9', 'first'), ('kill -9', 'another'), ('SIGTERM', 'another'), ('SIGSTOP, hangs', 'another'),
        ('kill -9', 'all'),
    ],
    'local.1.1': [('SIGTERM', 'first'), ('kill -9', 'all'), ('kill -9', 'launcher')],
    'local.1.2': [('SIGSTOP, goes on', 'first')],
    'slurm.1.0': [('kill -9', 'first')],
    'slurm.2.0': [('kill -9', 'first'), ('kill -9', 'another'), ('SIGSTOP, hangs', 'another'), ('SIGTERM', 'another')],
    'slurm.1.1': [('SIGTERM', 'first'), ('kill -9', 'launcher')],
}  # fmt: skip


def flags(folder: pathlib.Path) -> tuple[str, ...]:
    """Returns the flags for 400 updates and 16 checkpoints."""
    return (*groups.flags(folder), '--config.train.epochs=4', '--config.train.patience=99')


def unbroken(folder: pathlib.Path, processes: int) -> runs.Base:
    """Trains without a fault and without a launcher."""
    folder.mkdir(exist_ok=True)
    if processes > 1:
        return groups.unbroken(folder, processes, flags(folder))
    base = runs.Base(flags(folder), folder / 'cache', {})
    base.cache.mkdir()
    code, stderr = runs.Held(folder / 'unbroken', base.flags, base.cache, imported=True).end()
    assert code == 0 and not stderr, stderr
    return dataclasses.replace(base, unbroken=groups.outcome(folder / 'unbroken'))


@contextlib.contextmanager
def slurm() -> Iterator[None]:
    """Starts SLURM, if it is installed, on this machine only."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ['SLURM_CONF'] = f'{folder}/slurm.conf'
        try:
            subprocess.run([_SCRIPT, 'start', folder], check=True)
            yield
        finally:
            subprocess.run([_SCRIPT, 'stop', folder], check=True)
            del os.environ['SLURM_CONF']


def start(folder: pathlib.Path, base: runs.Base, kind: str) -> subprocess.Popen:
    """Starts the command that waits for the job."""
    launcher, processes, _ = kind.split('.')
    group = ('--processes=2', f'--heartbeat={groups.HEARTBEAT}') if processes == '2' else ()
    env = {**runs.environment(base.cache), 'JAX_NUM_CPU_DEVICES': '1'}
    return runs.start(folder, (*base.flags, *group, f'--launcher={launcher}'), env=env)


def members(folder: pathlib.Path) -> dict[str, list[int]]:
    """Returns the process ids of the job by role, `first` or `another`. Excludes processes that only wait."""
    pids_of_role: dict[str, list[int]] = {'first': [], 'another': []}
    for process in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            words = (process / 'cmdline').read_bytes().decode().split('\0')
            if not any(str(folder) in word for word in words) or any(w.startswith('--launcher') for w in words):
                continue
            environ = (process / 'environ').read_bytes().decode(errors='replace').split('\0')
            rank = next((v.rpartition('=')[2] for v in (*words, *environ) if v.startswith(_RANKS)), '0')
            if 'launch.py' in words[1:3]:
                pids_of_role['first' if rank == '0' else 'another'].append(int(process.name))
    return pids_of_role


def wait_for(condition, seconds: float) -> bool:
    """Waits until `condition()` is true. Returns whether it became true in time."""
    until = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < until:
        time.sleep(0.05)
    return bool(done)


def hurt(folder: pathlib.Path, base: runs.Base, kind: str, fault: str, who: str) -> dict | None:
    """Starts the run and injects the fault after the next checkpoint. Returns None if the run ended earlier."""
    before, waiting = runs.saved_steps(folder), start(folder, base, kind)
    wait_for(lambda: set(runs.saved_steps(folder)) - set(before) or waiting.poll() is not None, 300)
    pids_of_role = members(folder)
    pids = [waiting.pid] if who == 'launcher' else sum(pids_of_role.values(), []) if who == 'all' else pids_of_role[who]
    if waiting.poll() is not None or not pids:
        print(f'{kind}: ended with {waiting.wait()} before {fault}: {runs.said(waiting.communicate()[1], folder)}')
        return None
    saved = runs.saved_steps(folder)
    number = {'kill -9': signal.SIGKILL, 'SIGTERM': signal.SIGTERM}.get(fault, signal.SIGSTOP)
    _send(number, [*pids, waiting.pid] if who == 'all' else pids)
    if number == signal.SIGSTOP:
        peers = [pid for role in ('first', 'another') for pid in pids_of_role[role] if pid not in pids]
        wait_for(lambda: not any(_runs(pid) for pid in peers), 60) if 'hangs' in fault else time.sleep(1.5)
        _send(signal.SIGKILL if 'hangs' in fault else signal.SIGCONT, pids)
    _, stderr = waiting.communicate(timeout=300)
    wait_for(lambda: not any(members(folder).values()), 120)  # the processes of a killed launcher continue to run
    last = runs.said(stderr, folder)
    return {
        'chain': kind, 'fault': fault, 'processes': int(kind.split('.')[1]), 'who': who, 'phase': 'training',
        'exit': [waiting.returncode], 'others': [], 'said': last, 'others_said': '',
        'lines': 9 if 'Traceback' in last else 1, 'kept': max(runs.saved_steps(folder)) >= max(saved),
    }  # fmt: skip


def _send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
    return False


def finished(folder: pathlib.Path, base: runs.Base, kind: str) -> bool:
    """Starts the run again. Returns whether it ends in the same way as the run without faults."""
    waiting = start(folder, base, kind)
    waiting.communicate(timeout=600)
    if waiting.returncode:
        return False
    outcome = groups.outcome(folder)
    return {**outcome, 'folder': [name for name in outcome['folder'] if name != '.jobs']} == base.unbroken


def measure(launcher: str, folder: pathlib.Path, done: set[str]) -> Iterator[dict]:
    """If a launcher is installed, yields the records of all its starts that are not in `done`."""
    on_slurm = launcher == 'slurm'
    if on_slurm and not shutil.which('slurmd'):
        print('--launcher=slurm: skipped, because SLURM is not installed')
        return
    bases: dict[int, runs.Base] = {}
    for kind, faults in STARTS.items():
        processes = int(kind.split('.')[1])
        if kind in done or not kind.startswith(launcher):
            continue
        if processes not in bases:
            place = folder / f'base{processes}'
            bases[processes] = unbroken(place, processes)
        with slurm() if on_slurm else contextlib.nullcontext():
            place = folder / kind
            records = [r for fault, who in faults if (r := hurt(place, bases[processes], kind, fault, who))]
            same = finished(place, bases[processes], kind)
        for record in records:
            yield {**record, 'same': same}
