"""Chooses the precision of matrix products once per process. Each run records the choice when it starts."""

import functools
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.nn import Precision, default_platform, product_precision

_PRECISIONS: tuple[Precision, ...] = ('float32', 'bfloat16')
MARGIN = 1.3  # minimum speedup for choosing bfloat16; on CPUs, the speedup is either below this or between 2 and 4
ROUNDS = 7
SHAPE = 256, 128, 4096  # batch size, inputs and words of an output layer that takes a few milliseconds


def native_precision(platform: str | None = None) -> Precision:
    """Returns the precision that `auto` selects on a platform. None stands for `default_platform`.

    The precision is bfloat16 on accelerators. On a CPU, the precision is the result of `measure`.
    """
    return measure() if (platform or default_platform()) == 'cpu' else 'bfloat16'


@functools.cache
def measure(clock: Callable[[], float] = time.process_time) -> Precision:
    """Returns bfloat16 if bfloat16 products are faster by a factor of more than `MARGIN`, and float32 otherwise.

    Args:
        clock: A function that returns the time in seconds. The default is CPU time, because wall time depends on
            other processes and would make the choice nondeterministic.
    """
    products = {precision: _product(precision) for precision in _PRECISIONS}
    seconds: dict[str, float] = {}
    speedups = []
    for _ in range(ROUNDS):
        for precision, multiply in products.items():
            began = clock()
            multiply()
            seconds[precision] = clock() - began
        speedups.append(seconds['float32'] / max(seconds['bfloat16'], 1e-9))
    # The median over pairs, not a ratio of minima: a thread of this process that is busy until the last round adds to
    # all products but the last.
    return 'bfloat16' if statistics.median(speedups) > MARGIN else 'float32'


def _product(precision: str) -> Callable[[], jax.Array]:
    """Returns a compiled function that multiplies two matrices of the given precision. It accumulates in float32."""
    S, D, V = SHAPE
    device = jax.local_devices(backend='cpu')[0]
    factors = [jax.device_put(np.ones(shape, jnp.dtype(precision)), device) for shape in ((S, D), (D, V))]
    product = functools.partial(
        jnp.dot, precision=product_precision(factors[0].dtype), preferred_element_type=jnp.float32
    )
    compiled = jax.jit(product).lower(*factors).compile()
    return lambda: compiled(*factors).block_until_ready()
