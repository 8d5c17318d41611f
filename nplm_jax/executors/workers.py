"""Who does work that is cut into tasks: processes of this machine, or a cluster that a command line names.

No result depends on the choice, so it is no setting of a run, and functions that need workers ask `current`.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol

from nplm_jax.executors.processes import map_in_processes, num_processors

MAX_PROCESSES = 16


class Workers(Protocol):
    """Apply a function to many items.

    Attributes:
        are_remote: Whether they share only files with this process, so that tasks take paths and return paths.
    """

    @property
    def are_remote(self) -> bool:
        """See the class."""
        ...

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yields `function` of each item, in the order of the items. See `processes.map_in_processes`."""
        ...

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """Calls `function` once in each process that is another machine's. Returns the results. Raises what it does."""
        ...


@dataclasses.dataclass(frozen=True)
class Processes:
    """Processes of this machine; below 2 everything runs in this one."""

    number: int
    are_remote: ClassVar[bool] = False

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """See `Workers.map`."""
        return map_in_processes(function, items, self.number)

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """See `Workers.on_each`: these share this machine's files and package."""
        return ()


_cluster: contextvars.ContextVar[Workers | None] = contextvars.ContextVar('cluster', default=None)


def here(is_large: bool) -> Processes:
    """Returns the processes of this machine, one for work that is not large."""
    return Processes(min(num_processors(), MAX_PROCESSES) if is_large else 1)


def current(is_large: bool) -> Workers:
    """Returns the cluster of a block `use`; else what `here` returns."""
    return _cluster.get() or here(is_large)


@contextlib.contextmanager
def use(cluster: Workers | None) -> Iterator[None]:
    """Lets a cluster do the work that is large enough to be cut into tasks; None leaves it to this machine."""
    token = _cluster.set(cluster)
    try:
        yield
    finally:
        _cluster.reset(token)
