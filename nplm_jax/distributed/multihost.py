"""Multi-process runs: initialisation, and collectives between processes.

Every process runs the same program and calls these functions in the same order. Only the first process writes.
"""

import atexit
import concurrent.futures
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from nplm_jax.utils.errors import BadInput, first_line, require, status

Tree = TypeVar('Tree')
_SILENT = 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED', 'CANCELLED'  # statuses of gRPC
_COLLECTIVE = re.compile('Gloo|NCCL|[Cc]oordination')


def start(
    coordinator: str | None,
    processes: int | None,
    process_id: int | None,
    heartbeat: int,
    on_loss: Callable[[], Any],
) -> None:
    """Joins the other processes. Call it before JAX is first used.

    Args:
        coordinator: HOST:PORT of the first process. This and the next two come from SLURM or the environment when None.
        processes: The number of processes.
        process_id: The index of this process.
        heartbeat: Seconds of silence after which a process counts as lost.
        on_loss: Ends this process when another one is lost at the exit of all.

    Raises:
        BadInput: The processes cannot be found.
    """
    host, _, port = (coordinator or '').rpartition(':')
    ok = coordinator is None or (host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16)
    require(bool(ok), '--coordinator', coordinator, 'must be HOST:PORT')
    jax.config.update('jax_enable_preemption_service', False)  # it would take SIGTERM away from `fit`
    if jax.config.jax_logging_level == 'NOTSET':  # type: ignore[attr-defined]
        jax.config.update('jax_logging_level', 'CRITICAL')  # the command says in one line what went wrong
    try:
        # In a thread of its own, as the main thread hears of signals only when no C++ code blocks it.
        joined = concurrent.futures.ThreadPoolExecutor(1).submit(
            jax.distributed.initialize,
            coordinator,
            processes,
            process_id,
            heartbeat_timeout_seconds=heartbeat,
            shutdown_timeout_seconds=24 * 3600,
        )
        joined.result()
    except (ValueError, RuntimeError) as error:
        options = 'give --coordinator, --processes and --process_id'
        raise BadInput('--distributed', f'{first_line(error)}; {options}') from None
    atexit.register(_leave, on_loss)


def _leave(on_loss: Callable[[], Any]) -> None:
    """Waits for the exit of all processes, as JAX's own exit handler would, with a traceback where one was lost."""
    try:
        jax.distributed.shutdown()
    except RuntimeError:
        on_loss()


def is_lost_process(error: Exception) -> bool:
    """Returns whether JAX raises `error` because another process does not answer.

    The type decides first. JAX has no type for this: a collective raises JaxRuntimeError, or ValueError where NumPy
    waits for its result, and only the status and the text of gRPC, Gloo or NCCL tell it from another failure.
    """
    if not isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) or isinstance(error, BadInput):
        return False
    is_silent = isinstance(error, jax.errors.JaxRuntimeError) and status(error) in _SILENT
    return is_silent or bool(status(error) and _COLLECTIVE.search(str(error)))


def is_alone() -> bool:
    """Returns whether this is the only process."""
    return jax.process_count() == 1


def is_primary() -> bool:
    """Returns whether this is the first process, the one that writes."""
    return jax.process_index() == 0


@contextlib.contextmanager
def primary_first() -> Iterator[None]:
    """Ends the other processes where the first one refuses something in the block, instead of leaving them to wait.

    Raises:
        BadInput: The first process raised it in the block.
    """
    try:
        yield
    except BadInput:
        broadcast_from_primary(np.bool(True))
        raise
    if broadcast_from_primary(np.bool(False)):
        raise BadInput('--distributed', 'the first process refuses this run and says why')


def broadcast_from_primary(tree: Tree) -> Tree:
    """Returns the first process's arrays in every process, bit for bit; their shapes must be the same in all."""
    if is_alone():
        return tree
    as_bytes = jax.tree.map(lambda x: np.frombuffer(np.asarray(x).tobytes(), np.uint8), tree)
    received = multihost_utils.broadcast_one_to_all(as_bytes)
    return jax.tree.map(lambda x, b: np.frombuffer(np.asarray(b).tobytes(), x.dtype).reshape(x.shape), tree, received)


def allgather(numbers_N: np.ndarray) -> np.ndarray:
    """Returns the numbers of each process, in every process: processes x N."""
    return numbers_N[None] if is_alone() else np.asarray(multihost_utils.process_allgather(numbers_N))


def differences_from_primary(values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the values, plain JSON, that differ from the first process's: by key this process's and the first's."""
    text = json.dumps(values).encode()
    longest = int(allgather(np.array([len(text)], np.int32)).max())
    padded = np.frombuffer(text.ljust(longest), np.uint8)
    here, there = json.loads(text), json.loads(broadcast_from_primary(padded).tobytes())
    keys = sorted(here.keys() | there.keys())
    return {key: (here.get(key), there.get(key)) for key in keys if here.get(key) != there.get(key)}
