"""Initializes multi-process runs, and implements collective operations between their processes.

All processes must run the same program and call these functions in the same order. Only the first process writes files.
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
_SILENT = 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED', 'CANCELLED'  # gRPC status codes
_COLLECTIVE = re.compile('Gloo|NCCL|[Cc]oordination')


def start(
    coordinator: str | None,
    processes: int | None,
    process_id: int | None,
    heartbeat: int,
    on_loss: Callable[[], Any],
) -> None:
    """Connects this process to the other processes of the run. Must be called before the first use of JAX.

    Args:
        coordinator: HOST:PORT of the first process, or None to take it from SLURM or the environment.
        processes: The number of processes, or None to take it from SLURM or the environment.
        process_id: The index of this process, or None to take it from SLURM or the environment.
        heartbeat: The number of seconds without a heartbeat after which a process is considered lost.
        on_loss: A function that ends this process. It is called if another process is lost during shutdown.

    Raises:
        BadInput: The processes cannot be reached.
    """
    host, _, port = (coordinator or '').rpartition(':')
    ok = coordinator is None or (host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16)
    require(bool(ok), '--coordinator', coordinator, 'must be HOST:PORT, with a port between 1 and 65535')
    jax.config.update('jax_enable_preemption_service', False)  # the service would intercept SIGTERM
    if jax.config.jax_logging_level == 'NOTSET':  # type: ignore[attr-defined]
        jax.config.update('jax_logging_level', 'CRITICAL')  # the command reports each error in one line
    try:
        # Connect in a separate thread, because the main thread cannot handle signals while it waits in C++ code.
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
        options = 'specify --coordinator, --processes and --process_id'
        raise BadInput('--distributed', f'{first_line(error)}; {options}') from None
    atexit.register(_leave, on_loss)


def _leave(on_loss: Callable[[], Any]) -> None:
    """Waits for all processes to exit, like JAX's exit handler, but without a traceback if a process was lost."""
    try:
        jax.distributed.shutdown()
    except RuntimeError:
        on_loss()


def is_lost_process(error: Exception) -> bool:
    """Returns whether JAX raised `error` because another process did not respond.

    JAX has no exception type for lost processes. A collective operation raises JaxRuntimeError, or ValueError if NumPy
    waits for its result. A lost process can be distinguished from other failures only by the status code and the
    message of gRPC, Gloo or NCCL.
    """
    if not isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) or isinstance(error, BadInput):
        return False
    is_silent = isinstance(error, jax.errors.JaxRuntimeError) and status(error) in _SILENT
    return is_silent or bool(status(error) and _COLLECTIVE.search(str(error)))


def is_alone() -> bool:
    """Returns whether this is the only process of the run."""
    return jax.process_count() == 1


def is_primary() -> bool:
    """Returns whether this is the first process, which is the one that writes all files."""
    return jax.process_index() == 0


@contextlib.contextmanager
def primary_first() -> Iterator[None]:
    """Propagates a BadInput error that the first process raises in the block to all other processes.

    Otherwise, the other processes would wait forever for the first process.

    Raises:
        BadInput: The first process raised BadInput.
    """
    try:
        yield
    except BadInput:
        broadcast_from_primary(np.bool(True))
        raise
    if broadcast_from_primary(np.bool(False)):
        raise BadInput('--distributed', 'the first process rejected this run; see its error message')


def broadcast_from_primary(tree: Tree) -> Tree:
    """Returns bitwise copies of the first process's arrays in every process. All processes must pass equal shapes."""
    if is_alone():
        return tree
    as_bytes = jax.tree.map(lambda x: np.frombuffer(np.asarray(x).tobytes(), np.uint8), tree)
    received = multihost_utils.broadcast_one_to_all(as_bytes)
    return jax.tree.map(lambda x, b: np.frombuffer(np.asarray(b).tobytes(), x.dtype).reshape(x.shape), tree, received)


def allgather(numbers_N: np.ndarray) -> np.ndarray:
    """Gathers the numbers of all processes in every process, as an array of shape (number of processes) x N."""
    return numbers_N[None] if is_alone() else np.asarray(multihost_utils.process_allgather(numbers_N))


def differences_from_primary(values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compares JSON values with those in the first process.

    Returns:
        For each key whose values differ, the value in this process and the value in the first process.
    """
    text = json.dumps(values).encode()
    longest = int(allgather(np.array([len(text)], np.int32)).max())
    padded = np.frombuffer(text.ljust(longest), np.uint8)
    here, there = json.loads(text), json.loads(broadcast_from_primary(padded).tobytes())
    keys = sorted(here.keys() | there.keys())
    return {key: (here.get(key), there.get(key)) for key in keys if here.get(key) != there.get(key)}
