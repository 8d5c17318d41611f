"""Maps a function over items in several processes, in order.

`multiprocessing` is not used: its processes import the caller's script again, or copy a process that runs JAX's
threads. These processes import the function's module only, ignore Ctrl-C, and end when their parent ends.
"""

import collections
import concurrent.futures
import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from nplm_jax.utils.errors import BadInput

Item = TypeVar('Item')
Result = TypeVar('Result')


def map_in_processes(function: Callable[[Item], Result], items: Iterable[Item], num_processes: int) -> Iterator[Result]:
    """Yields `function` of each item, in the order of the items; reads two items a process ahead at most.

    Args:
        function: A function of a module, or a `functools.partial` of one; it is pickled once.
        items: The items, which are pickled, as the results are.
        num_processes: The number of processes; below 2 everything runs in this process.

    Raises:
        BadInput: A process ended before its work was done.
        Exception: What `function` raises.
    """
    if num_processes < 2:
        yield from map(function, items)
        return
    with contextlib.ExitStack() as stack:
        idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for _ in range(num_processes):
            idle.put(stack.enter_context(_start(function)))
        threads = stack.enter_context(concurrent.futures.ThreadPoolExecutor(num_processes))

        def apply(item: Item) -> Any:
            process = idle.get()
            try:
                return _ask(process, item)
            finally:
                idle.put(process)

        pending: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
        for item in items:
            pending.append(threads.submit(apply, item))
            if len(pending) > 2 * num_processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def num_processors() -> int:
    """Returns the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


@contextlib.contextmanager
def _start(function: Callable[..., Any]) -> Iterator['subprocess.Popen[bytes]']:
    """Starts a process that serves a function; ends it afterwards."""
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, '-c', f'from {__name__} import serve; serve()']
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdin is not None
        pickle.dump(function, process.stdin)
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(process: 'subprocess.Popen[bytes]', item: Any) -> Any:
    """Returns the result of a process for an item."""
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump(item, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
        failed, result = pickle.load(process.stdout)
    except (OSError, EOFError):
        raise BadInput('a helper process was ended from outside, or ran out of memory; run again') from None
    if failed:
        raise result
    return result


def serve() -> None:
    """Answers items from standard input on standard output: the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    items, results = sys.stdin.buffer, os.fdopen(os.dup(1), 'wb')
    os.dup2(2, 1)  # what the function prints must not mix with the results
    function = pickle.load(items)
    while True:
        try:
            item = pickle.load(items)
        except EOFError:
            return
        try:
            result = False, function(item)
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            result = True, error
        pickle.dump(result, results, pickle.HIGHEST_PROTOCOL)
        results.flush()
