"""Applies functions in parallel in local processes. Also finds unused ports and counts processors."""

import collections
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker, util
from typing import Any, TypeVar

from nplm_jax.utils.errors import BadInput

Item = TypeVar('Item')
Result = TypeVar('Result')
_function: Callable[[Any], Any]  # the function that this helper process applies to items


def map_in_processes(function: Callable[[Item], Result], items: Iterable[Item], num_processes: int) -> Iterator[Result]:
    """Applies a function to items in parallel. Reads at most two items per process in advance.

    Args:
        function: A module-level function, or a `functools.partial` of one. It is pickled once per process.
        items: The items. Items and results are pickled.
        num_processes: The number of helper processes. If it is less than 2, the calling process does all the work.

    Yields:
        The results in the order of the items.

    Raises:
        BadInput: A process died before it finished its work.
        Exception: Any exception that `function` raises.
    """
    if num_processes < 2:
        yield from map(function, items)
        return
    _end_tracker_at_exit()
    # Spawn instead of forking: the child of a process with JAX threads may wait for locks that these threads held.
    spawn = multiprocessing.get_context('spawn')
    pool = concurrent.futures.ProcessPoolExecutor(num_processes, spawn, _set_up, (function,))
    pending: collections.deque[concurrent.futures.Future[Result]] = collections.deque()
    try:
        for item in items:
            with _without_script():
                pending.append(pool.submit(_apply, item))
            if len(pending) > 2 * num_processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except concurrent.futures.BrokenExecutor:
        raise BadInput('out of memory', 'a helper process was killed; free some memory and try again') from None
    finally:
        pool.shutdown(cancel_futures=True)


@functools.cache
def _end_tracker_at_exit() -> None:
    """Stops multiprocessing's resource tracker when this process exits. Otherwise, the tracker might outlive it."""
    util.Finalize(None, _end_tracker, exitpriority=-100)  # after the finalizers that report released resources


def _end_tracker() -> None:
    tracker: Any = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    if tracker._pid is not None:  # None if the tracker belongs to the parent process
        tracker._stop()


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Hides the caller's `__main__` from new processes.

    Otherwise, they would rerun a script that has no `if __name__ == '__main__'` guard.
    """
    script = sys.modules['__main__']
    sys.modules['__main__'] = types.ModuleType('__main__')
    try:
        yield
    finally:
        sys.modules['__main__'] = script


def _set_up(function: Callable[[Any], Any]) -> None:
    """Initializes a helper process, which ignores Ctrl-C and exits when its parent process exits."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _apply(item: Any) -> Any:
    """Applies `_function` to an item. Runs in a helper process."""
    return _function(item)


def free_port() -> int:
    """Returns an unused TCP port on this machine."""
    with socket.socket() as free:
        free.bind(('localhost', 0))
        return free.getsockname()[1]


def num_processors() -> int:
    """Returns the number of processors that this process may use."""
    # macOS has no sched_getaffinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
