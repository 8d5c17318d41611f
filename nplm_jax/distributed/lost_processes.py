"""Lets a process say in one line that another process of its run is gone.

JAX's coordination client notices it in a thread of C++ and by default logs a stack trace and aborts. It takes a Python
function instead but cannot call it: jaxlib 0.10 has no conversion for the argument, and the std::bad_cast that this
raises ends the process by std::terminate. So the function also becomes the handler of std::terminate, for this
exception alone. Where the C++ library is another one, the process ends as it did without this module.
"""

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

from jax._src.lib import _jax

_kept_alive: list[Any] = []  # C++ calls them to the end of the process


@contextlib.contextmanager
def reported_to(on_loss: Callable[[], Any]) -> Iterator[None]:
    """Within it, `jax.distributed.initialize` makes a client that calls a function when another process is lost.

    Args:
        on_loss: Ends the process. It is called in another thread than the main one.
    """
    make_client = getattr(_jax, 'get_distributed_runtime_client', None)
    if make_client is None:  # not in this version of JAX, which then says it in its own way
        yield
        return
    _handle_bad_cast(on_loss)
    _jax.get_distributed_runtime_client = functools.partial(make_client, missed_heartbeat_callback=lambda *_: on_loss())
    try:
        yield
    finally:
        _jax.get_distributed_runtime_client = make_client


def _handle_bad_cast(handler: Callable[[], Any]) -> None:
    """Makes std::terminate call `handler` for std::bad_cast, and do what it did for all else."""
    try:
        library = ctypes.CDLL('libstdc++.so.6')  # the one that jaxlib has loaded
        set_terminate, exception_type = library._ZSt13set_terminatePFvvE, library.__cxa_current_exception_type
    except (OSError, AttributeError):
        return
    set_terminate.restype = exception_type.restype = ctypes.c_void_p

    @ctypes.CFUNCTYPE(None)
    def terminate() -> None:
        if type_info := exception_type():  # a virtual table, then the name
            name = ctypes.c_char_p.from_address(type_info + ctypes.sizeof(ctypes.c_void_p)).value
            if name == b'St8bad_cast':
                handler()
        former()

    former = ctypes.CFUNCTYPE(None)(set_terminate(terminate))
    _kept_alive.append(terminate)
