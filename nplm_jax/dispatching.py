"""Who makes the updates that a run asks for: a run is a generator of dispatches, and is sent what `timed` returns.

`drive` makes them one after another; `vectorized` makes those of several runs as one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np


def drive(run: Generator[Callable, Any, Any]) -> Any:
    """Makes every dispatch that the run asks for. Returns: what it returns."""
    answer = None
    with contextlib.closing(run):
        try:
            while True:
                answer = timed(run.send(answer))
        except StopIteration as end:
            return end.value


def timed(dispatch: Callable[[], tuple[Any, jax.Array]]) -> tuple[Any, np.ndarray, float]:
    """The state or states and the NLLs that the dispatch returns, once they are there, and its seconds."""
    started = time.perf_counter()
    state, nll = dispatch()
    return state, np.asarray(nll), time.perf_counter() - started
