"""Faults in a multi-process run. A fault affects one process or all processes, and the run is then restarted.

Each function starts the run once and returns a record. `who` is first, another or all.
"""

import contextlib
import pathlib
import random
import re
import signal
import time

from nplm_jax.executors.processes import free_port
from tools.faults import disks, groups, kills, net, runs
from tools.faults.groups import Base, Ends, Group

ALL = ('compile', 'step', 'evaluation')  # phases of every process; other phases occur only in the first process
LOST = 'another process was lost ('
BY_JAX = 'JAX: another task died'
_FATAL = re.compile(r'^[EF]\d{4} .*(coordination_service|client\.h)', re.MULTILINE)
VISITS = {'step': 3, 'evaluation': 2}
HOUR = 3600


def victims(who: str, processes: int, rng: random.Random) -> list[int]:
    """Returns the indices of the affected processes."""
    return {'first': [0], 'another': [rng.randrange(1, processes)], 'all': list(range(processes))}[who]


def describe(fault: str, who: str, phase: str, base: Base, ends: Ends, hurt: list[int], folder: pathlib.Path) -> dict:
    """Returns the record of a start: the exit codes and last messages of the affected processes and of the others."""
    ends = [(code, in_lines(stderr)) for code, stderr in ends]
    said = [
        runs.said(stderr, folder).replace('finishing the current updates, then stopping ...', '') for _, stderr in ends
    ]
    lines = [len([line for line in stderr.splitlines() if line and 'then stopping' not in line]) for _, stderr in ends]
    others = [i for i in range(base.processes) if i not in hurt]
    return {
        'fault': fault,
        'processes': base.processes,
        'who': who,
        'phase': phase,
        'exit': [ends[i][0] for i in hurt],
        'others': [ends[i][0] for i in others],
        'said': _most_telling([said[i] for i in hurt]),
        'others_said': _most_telling([said[i] for i in others]),
        'lines': max(lines),
    }


def in_lines(stderr: str) -> str:
    """Shortens JAX's message about a lost process in stderr to one line, or removes it if the program has its own."""
    found = _FATAL.search(stderr)
    if found is None or 'Traceback' in stderr[found.start() :]:
        return stderr
    before, after = stderr[: found.start()], stderr[found.start() :].splitlines()
    return before if LOST in before else before + next((line for line in after if line.startswith(LOST)), BY_JAX)


def _most_telling(said: list[str]) -> str:
    return max(said, key=lambda line: (not line.startswith(LOST), len(line)) if line else (False, 0), default='')


def held(folder: pathlib.Path, base: Base, who: str, phase: str, rng: random.Random, **options) -> tuple:
    """Starts all processes and holds one at a phase. Returns the group (None if it ended earlier) and the victims."""
    group, hurt = Group(folder, base, **options), victims(who, base.processes, rng)
    holder = hurt[0] if phase in ALL else 0
    if not group.reaches(holder, phase, rng.randint(1, VISITS.get(phase, 1))):
        group.ends()
        return None, hurt
    group.processes[holder].linger(phase, rng.uniform(0, kills.LONGEST[phase]))
    return group, hurt


def signalled(
    folder: pathlib.Path, base: Base, who: str, phase: str, rng: random.Random, number: int, deadline: float = 0
) -> dict | None:
    """Sends a signal to some processes. If there is a deadline, then kills all processes that remain after it."""
    before = runs.checkpoints(folder)
    group, hurt = held(folder, base, who, phase, rng)
    if group is None:
        return None
    started, told = time.monotonic(), runs.reported(folder) if phase not in ('files', 'compile') else 0
    group.send(number, hurt)
    for process in group.processes:
        process.let_go()
    if deadline:
        time.sleep(deadline)
        group.send(signal.SIGKILL, range(base.processes))
    ends, after = group.ends(), runs.checkpoints(folder)
    fault = 'kill -9' if number == signal.SIGKILL else 'SIGTERM, then kill -9' if deadline else 'SIGTERM'
    return {
        **describe(fault, who, phase, base, ends, hurt, folder),
        'seconds': round(time.monotonic() - started, 1),
        'redone': max(0, told - max(after, default=0)),
        'kept': not runs.lost(before, after),
    }


def stopped(folder: pathlib.Path, base: Base, who: str, phase: str, rng: random.Random, how: str) -> dict | None:
    """Sends SIGSTOP to some processes. These continue in time, never, or after the other processes have ended."""
    group, hurt = held(folder, base, who, phase, rng)
    if group is None:
        return None
    before = runs.checkpoints(folder)
    group.send(signal.SIGSTOP, hurt)
    for process in group.processes:
        process.let_go()
    others = [p for i, p in enumerate(group.processes) if i not in hurt]
    if how == 'goes on':
        time.sleep(1.5)
    else:
        until = time.monotonic() + groups.LONGEST_END
        while any(p.alive() for p in others) and time.monotonic() < until:
            time.sleep(0.1)
    group.send(signal.SIGKILL if how == 'hangs' else signal.SIGCONT, hurt)
    record = describe(f'SIGSTOP, {how}', who, phase, base, group.ends(120), hurt, folder)
    return {**record, 'kept': not runs.lost(before, runs.checkpoints(folder))}


def coordinator_cut(
    folder: pathlib.Path, base: Base, who: str, phase: str, rng: random.Random, how: str
) -> dict | None:
    """Pauses the other processes' connections to the coordinator, for a while or for good, or closes them."""
    proxy = net.Proxy(port := free_port())
    addresses = [f'localhost:{port}', *[proxy.address] * (base.processes - 1)]
    with contextlib.closing(proxy):
        group, hurt = held(folder, base, who, phase, rng, addresses=addresses)
        if group is None:
            return None
        for process in group.processes:
            process.let_go()
        if how == 'closed':
            proxy.close()
        else:
            proxy.pause()
        if how == 'for a while':
            time.sleep(1.5)
            proxy.go_on()
        return describe(f'coordinator cut, {how}', who, phase, base, group.ends(120), hurt, folder)


def cable(folder: pathlib.Path, base: Base, who: str, phase: str, rng: random.Random, how: str) -> dict | None:
    """Runs each process in a separate network and unplugs some of them, for a while or for good."""
    with net.networks(base.processes, f'fx{base.processes}-') as names:
        address = f'10.77.0.1:{free_port()}'
        entering = {'prepare_of': lambda i: net.entering(names[i], i, base.cache)}
        group, hurt = held(folder, base, who, phase, rng, addresses=[address] * base.processes, **entering)
        if group is None:
            return None
        for i in hurt:
            net.pull(names[i])
        for process in group.processes:
            process.let_go()
        if how == 'for a while':
            time.sleep(1.5)
            for i in hurt:
                net.pull(names[i], plugged=True)
        return describe(f'cable pulled, {how}', who, phase, base, group.ends(120), hurt, folder)


def full_disk(folder: pathlib.Path, base: Base, phase: str, rng: random.Random) -> dict | None:
    """Fills the disk of the folder, to which only the first process writes. `folder` is on a separate disk."""
    group, hurt = held(folder, base, 'first', phase, rng)
    if group is None:
        return None
    before = runs.checkpoints(folder)
    filler = disks.fill(folder.parent)
    record = describe('disk full', 'first', phase, base, group.ends(), hurt, folder)
    kept = not runs.lost(before, runs.checkpoints(folder))
    filler.unlink()
    return {**record, 'kept': kept}


def two_groups(folder: pathlib.Path, base: Base, same_port: bool, rng: random.Random) -> dict | None:
    """Starts the command twice. The record lists the second group as affected, and the first group as the others."""
    addresses = [f'localhost:{free_port()}'] * base.processes
    group, _ = held(folder, base, 'first', 'step', rng, addresses=addresses)
    if group is None:
        return None
    second = Group(folder, base, addresses=addresses if same_port else ())
    ends = second.ends(120)
    first = group.ends()
    fault = 'two groups, one port' if same_port else 'two groups'
    record = describe(fault, 'first', 'step', base, ends, list(range(base.processes)), folder)
    others_said = _most_telling([runs.said(in_lines(stderr), folder) for _, stderr in first])
    return {**record, 'others': [code for code, _ in first], 'others_said': others_said}


def clock(folder: pathlib.Path, base: Base, who: str, phase: str, rng: random.Random, seconds: float) -> dict | None:
    """Moves the clock of one process."""
    group, hurt = Group(folder, base), victims(who, base.processes, rng)
    if not group.reaches(hurt[0], phase):
        group.ends()
        return None
    group.processes[hurt[0]].jump(seconds)
    return describe(f'clock {seconds / HOUR:+.0f} h', who, phase, base, group.ends(), hurt, folder)


def another_input(folder: pathlib.Path, base: Base, who: str, rng: random.Random, how: str) -> dict:
    """Starts one process with another text or config. Nothing may be written to the folder."""
    hurt = victims(who, base.processes, rng)
    text = base.cache / 'other_text'
    text.write_text((base.cache.parent / 'text').read_text().replace('w1 ', 'w2 ', 1))
    flag = f'--config.corpus.path={text}' if how == 'text' else '--config.optimizer.learning_rate=0.3'
    before = runs.checkpoints(folder)
    group = Group(folder, base, flags_of=lambda i: (flag,) if i in hurt else ())
    record = describe(f'another {how}', who, 'files', base, group.ends(), hurt, folder)
    return {**record, 'kept': before == runs.checkpoints(folder)}


def finished(folder: pathlib.Path, base: Base) -> bool:
    """Starts all processes again. Returns whether they end in the same way as the run without faults."""
    ends = Group(folder, base).ends(600)
    return all(code == 0 for code, _ in ends) and groups.outcome(folder) == base.unbroken
