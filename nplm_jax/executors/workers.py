"""Selects the executor: local processes, or the cluster that is specified on the command line.

Results do not depend on the executor, so it is not part of a run's config. Code that needs an executor calls `active`.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol

from nplm_jax.executors.processes import map_in_processes, num_processors

MAX_PROCESSES = 16


class Workers(Protocol):
    """The interface of an executor."""

    @property
    def are_remote(self) -> bool:
        """Whether the workers share only files with this process. If True, tasks must take and return paths."""
        ...

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Applies `function` to `items` and yields the results in order. See `processes.map_in_processes`."""
        ...

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """Calls `function` once in each remote process and returns the results. Exceptions of `function` propagate."""
        ...


@dataclasses.dataclass(frozen=True)
class Processes:
    """An executor with `number` local processes. If `number` is less than 2, this process does all the work."""

    number: int
    are_remote: ClassVar[bool] = False

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """See `Workers.map`."""
        return map_in_processes(function, items, self.number)

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """Does nothing, because local processes share the files and the package. See `Workers.on_each`."""
        return ()


_cluster: contextvars.ContextVar[Workers | None] = contextvars.ContextVar('cluster', default=None)


def local_processes(is_large: bool) -> Processes:
    """Returns an executor with one process per processor, up to MAX_PROCESSES, if the computation is large.

    For a small computation, the executor has a single process.
    """
    return Processes(min(num_processors(), MAX_PROCESSES) if is_large else 1)


def active(is_large: bool) -> Workers:
    """Returns the cluster of the enclosing `use` block, or local processes if there is none."""
    return _cluster.get() or local_processes(is_large)


@contextlib.contextmanager
def use(cluster: Workers | None) -> Iterator[None]:
    """Makes `active` return this cluster within the `with` block. None selects local processes."""
    token = _cluster.set(cluster)
    try:
        yield
    finally:
        _cluster.reset(token)
