"""Who makes the updates that a run asks for: a run is a generator of dispatches, and is sent what `timed` returns.

`drive` makes them one after another; `vectorized` makes those of several runs as one.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import jax
import numpy as np

from nplm_jax.utils.errors import BadInput, first_line


def drive(run: Generator[Callable, Any, Any]) -> Any:
    """Makes every dispatch that the run asks for. Returns: what it returns. Raises: BadInput for lack of memory."""
    answer = None
    with memory_told(), contextlib.closing(run):
        try:
            while True:
                answer = timed(run.send(answer))
        except StopIteration as end:
            return end.value


@contextlib.contextmanager
def memory_told() -> Iterator[None]:
    """Raises: BadInput where the body finds no memory, on the device or the host."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not (isinstance(error, MemoryError) or re.search('RESOURCE_EXHAUSTED|[Oo]ut of memory', str(error))):
            raise
        keys = 'model.m, model.h, train.batch_size or output.block_size'
        raise BadInput(f'out of memory ({first_line(error)[:200]}); make {keys} smaller') from None


def timed(dispatch: Callable[[], tuple[Any, jax.Array]]) -> tuple[Any, np.ndarray, float]:
    """The state or states and the NLLs that the dispatch returns, once they are there, and its seconds."""
    started = time.perf_counter()
    state, nll = dispatch()
    return state, np.asarray(nll), time.perf_counter() - started
