"""Maps a function over items in several processes, in order; ports and processors for processes.

`multiprocessing` is not used: its processes import the caller's script again, or copy a process that runs JAX's
threads. These processes import what the function's module imports, ignore Ctrl-C, and end when their parent ends.
"""

import collections
import concurrent.futures
import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from nplm_jax.utils.errors import BadInput

Item = TypeVar('Item')
Result = TypeVar('Result')
_LOST = 'a helper process was killed or ran out of memory; run again'


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
    if num_processes < 2 or not sys.executable or getattr(sys, 'frozen', False):
        yield from map(function, items)
        return
    with contextlib.ExitStack() as stack:
        idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        for _ in range(num_processes):
            idle.put(stack.enter_context(_start(function)))
        threads = concurrent.futures.ThreadPoolExecutor(num_processes)
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)  # before the processes end, and their answers

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


def free_port() -> int:
    """Returns a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(('localhost', 0))
        return free.getsockname()[1]


def num_processors() -> int:
    """Returns the number of processors that this process may use."""
    # macOS has no sched_getaffinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


@contextlib.contextmanager
def _start(function: Callable[..., Any]) -> Iterator['subprocess.Popen[bytes]']:
    """Starts a process that serves a function; ends it afterwards."""
    # The same modules as here: -P leaves the working directory out, unless it is in sys.path.
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(str(path) or os.getcwd() for path in sys.path)}
    command = [sys.executable, '-P', '-c', f'from {__name__} import serve; serve()']
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    except OSError as error:
        raise BadInput(f'could not start a helper process ({error.strerror})') from None
    try:
        _send(process, function)
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(process: 'subprocess.Popen[bytes]', item: Any) -> Any:
    """Returns the result of a process for an item."""
    assert process.stdout is not None
    _send(process, item)
    try:
        failed, result = pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        raise BadInput(_LOST) from None
    if failed:
        raise result
    return result


def _send(process: 'subprocess.Popen[bytes]', item: Any) -> None:
    """Sends an item to a process. Raises BadInput if the process has ended."""
    assert process.stdin is not None
    try:
        pickle.dump(item, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
    except OSError:
        raise BadInput(_LOST) from None


def serve() -> None:
    """Answers items from standard input on standard output: the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    items, results = sys.stdin.buffer, os.fdopen(os.dup(1), 'wb')
    os.dup2(2, 1)  # what the function prints must not mix with the results
    function = pickle.load(items)
    while True:
        try:
            item = pickle.load(items)
        except (EOFError, pickle.UnpicklingError):  # the parent has ended
            return
        try:
            answer = pickle.dumps((False, function(item)), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            answer = pickle.dumps((True, error), pickle.HIGHEST_PROTOCOL)
        try:
            results.write(answer)
            results.flush()
        except BrokenPipeError:
            os._exit(0)
