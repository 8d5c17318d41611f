"""Handles SIGINT and SIGTERM, which request a stop during training and otherwise raise an exception.

This module does not import JAX, because launch.py catches `Terminated` before JAX is imported.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn


class Terminated(BaseException):
    """An exception raised when SIGTERM arrives outside training."""


def raise_on_sigterm() -> None:
    """Makes SIGTERM raise Terminated, just as Ctrl-C raises KeyboardInterrupt.

    Python discards exceptions that are raised in some callbacks, such as garbage-collection callbacks. If Terminated is
    discarded, the process sends itself the signal again 0.1 s later.
    """

    def terminate(_number: int, _frame: object) -> NoReturn:
        raise Terminated

    def send_again(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type not in (Terminated, KeyboardInterrupt):
            return sys.__unraisablehook__(dropped)
        number = signal.SIGTERM if dropped.exc_type is Terminated else signal.SIGINT
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    signal.signal(signal.SIGTERM, terminate)
    sys.unraisablehook = send_again


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Converts the first SIGINT or SIGTERM within the block to a request to stop. A second signal acts as usual.

    Yields:
        A function that returns the number of the received signal, or 0 if no signal was received.
    """
    requests: list[int] = []
    former: dict[int, Any] = {}

    def request(number: int, _frame: Any) -> None:
        requests.append(number)
        signal.signal(number, former[number])
        print('\nfinishing the current updates, then stopping ...', file=sys.stderr)

    if threading.current_thread() is threading.main_thread():  # only the main thread may handle signals
        former |= {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in former:
            signal.signal(number, request)
    try:
        yield lambda: requests[0] if requests else 0
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
