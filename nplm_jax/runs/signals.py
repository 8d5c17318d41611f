"""How a process hears of SIGINT and SIGTERM: as a request to stop while it trains, as an exception otherwise.

Imports no JAX: launch.py catches `Terminated` before JAX is there.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn


class Terminated(BaseException):
    """SIGTERM arrived outside training; `fit` handles it inside."""


def raise_on_sigterm() -> None:
    """Makes SIGTERM raise Terminated, as Ctrl-C raises KeyboardInterrupt.

    Python drops an exception that is raised inside some callbacks, such as the garbage collector's; the signal is then
    sent again 0.1 s later.
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
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one acts as it always does.

    Yields:
        A function that returns the signal's number, 0 while there was none.
    """
    requests: list[int] = []
    former: dict[int, Any] = {}

    def request(number: int, _frame: Any) -> None:
        requests.append(number)
        signal.signal(number, former[number])
        print('\nfinishing the current updates, then stopping ...', file=sys.stderr)

    if threading.current_thread() is threading.main_thread():  # no other may handle signals
        former |= {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in former:
            signal.signal(number, request)
    try:
        yield lambda: requests[0] if requests else 0
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
