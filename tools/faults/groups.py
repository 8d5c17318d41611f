"""Several processes that train one run over the loopback interface. Each is controlled as in `runs.Held`."""

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence

from nplm_jax.executors.processes import free_port
from tools.faults import runs

HEARTBEAT = 5  # in seconds; the minimum that the program accepts
LONGEST_END = 60.0  # maximum seconds until a process ends after a fault in another one
Ends = list[tuple[int | None, str]]  # the exit code and stderr of each process; None if it has not ended


@dataclasses.dataclass(frozen=True)
class Base(runs.Base):
    """The reference for multi-process runs with faults."""

    processes: int


def flags(folder: pathlib.Path) -> tuple[str, ...]:
    """Returns the flags for 100 updates in 20 chunks, with 5 evaluations and 4 checkpoints."""
    return (
        *runs.text(folder), '--config.train.epochs=1', '--config.train.evaluate_every=20',
        '--config.train.checkpoint_every=25', '--config.train.log_every=5', '--config.train.steps_per_execution=5',
    )  # fmt: skip


def unbroken(folder: pathlib.Path, processes: int, own_flags: tuple[str, ...] = ()) -> Base:
    """Trains without a fault, with `own_flags` or else `flags`. Each process keeps its compiled programs."""
    folder.mkdir(exist_ok=True)
    mesh = f'--config.parallel.data={processes}'
    base = Base((*(own_flags or flags(folder)), mesh), folder / 'cache', {}, processes)
    ends = Group(folder / 'unbroken', base).ends(900)
    assert [(c, s) for c, s in ends] == [(0, '')] * processes, ends
    return dataclasses.replace(base, unbroken=outcome(folder / 'unbroken'))


def outcome(folder: pathlib.Path) -> dict:
    """Returns `runs.outcome` with only the newest checkpoint and the checkpoint count. SIGTERM may add checkpoints."""
    outcome = runs.outcome(folder)
    return {**outcome, 'checkpoints': (outcome['checkpoints'][-1], len(outcome['checkpoints']))}


class Group:
    """The processes of one run, from start to exit."""

    def __init__(
        self,
        folder: pathlib.Path,
        base: Base,
        flags_of: Callable[[int], Sequence[str]] = lambda i: (),
        prepare_of: Callable[[int], Callable[[], None] | None] = lambda i: None,
        addresses: Sequence[str] = (),
    ) -> None:
        """Starts all processes.

        Args:
            folder: The folder of the run.
            base: The reference, with the flags and the number of processes.
            flags_of: A function from the index of a process to its additional flags.
            prepare_of: A function from the index of a process to a function that the process calls first, or None.
            addresses: The coordinator's HOST:PORT for each process. By default, an unused port on this machine.
        """
        addresses = addresses or [f'localhost:{free_port()}'] * base.processes
        self.processes = []
        for i, address in enumerate(addresses):
            cache = base.cache / str(i)  # JAX caches only the programs of the first process
            cache.mkdir(parents=True, exist_ok=True)
            own = ('--distributed', f'--heartbeat={HEARTBEAT}', f'--coordinator={address}', f'--process_id={i}')
            arguments = (*base.flags, *own, f'--processes={base.processes}', *flags_of(i))
            self.processes.append(runs.Held(folder, arguments, cache, True, prepare_of(i)))

    def reaches(self, holder: int, phase: str, visit: int = 1) -> bool:
        """Holds one process at the start of a phase and lets the others run. Returns False if it ended before."""
        for i, process in enumerate(self.processes):
            if i != holder:
                process.let_go()
        return self.processes[holder].reaches(phase, visit)

    def send(self, number: int, victims: Iterable[int]) -> None:
        """Sends a signal to some processes, which may already have ended."""
        for i in victims:
            if self.processes[i].alive():
                os.kill(self.processes[i].pid, number)

    def ends(self, seconds: float = LONGEST_END) -> Ends:
        """Lets all processes finish. Kills those that have not ended after `seconds`."""
        until, ends = time.monotonic() + seconds, []
        for process in self.processes:
            process.let_go()
        for process in self.processes:
            ends.append(process.end(max(0.1, until - time.monotonic())))
        return ends
