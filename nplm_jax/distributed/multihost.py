"""Several processes as one run: how they find each other, what they must agree on, and what happens to a lost one.

Only the first process writes. Every process calls the functions here together, or all wait.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from nplm_jax.utils.errors import BadInput, first_line, require

Tree = TypeVar('Tree')


def start(coordinator: str | None, processes: int | None, process_id: int | None, heartbeat: int) -> None:
    """Joins the other processes; what is None comes from SLURM or the environment. Before JAX is first used.

    coordinator: HOST:PORT of the first process. heartbeat: seconds of silence after which a process counts as lost.
    Raises: BadInput when the processes cannot be found.
    """
    host, _, port = (coordinator or '').rpartition(':')
    ok = coordinator is None or (host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16)
    require(bool(ok), '--coordinator', coordinator, 'must be HOST:PORT')
    jax.config.update('jax_enable_preemption_service', False)  # it would take SIGTERM away from `fit`
    try:
        jax.distributed.initialize(
            coordinator, processes, process_id, heartbeat_timeout_seconds=heartbeat, shutdown_timeout_seconds=24 * 3600
        )
    except (ValueError, RuntimeError) as error:
        raise BadInput(
            f'--distributed: {first_line(error)}; give --coordinator, --processes and --process_id'
        ) from None


def is_primary() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def broadcast_from_primary(tree: Tree) -> Tree:
    """The first process's arrays, bit for bit, for all; the shapes must be the same in all."""
    if jax.process_count() == 1:
        return tree
    as_bytes = jax.tree.map(lambda x: np.frombuffer(np.asarray(x).tobytes(), np.uint8), tree)
    found = multihost_utils.broadcast_one_to_all(as_bytes)
    return jax.tree.map(lambda x, b: np.frombuffer(np.asarray(b).tobytes(), x.dtype).reshape(x.shape), tree, found)


def allreduce_max(number: int) -> int:
    """The largest number that a process gave."""
    return number if jax.process_count() == 1 else int(np.max(multihost_utils.process_allgather(np.int32(number))))


class Silent:
    """Stands for the checkpoints and the reports in the processes that write none."""

    def latest_step(self) -> None:
        """There is none."""

    def restore(self, *_) -> None:
        """The first process restores, and all get what it found."""

    def save(self, *_) -> None:
        """The first process saves."""

    start = trained = validated = save
