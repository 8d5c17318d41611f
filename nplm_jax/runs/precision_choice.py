"""Precision of matrix products on this machine: measured once, and then read from the cache."""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform as python_platform
import time
from collections.abc import Callable
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
from filelock import FileLock

from nplm_jax.nn import Precision, default_platform, product_precision
from nplm_jax.utils.io import cache_folder, write_atomically

_PRECISIONS: tuple[Precision, ...] = ('float32', 'bfloat16')
MARGIN = 1.3  # by which bfloat16 has to be faster: processors have either less or two to four times the speed
ROUNDS = 7
SHAPE = 256, 128, 4096  # examples, inputs and words of a product of the output layer: some milliseconds
_LONGEST_WAIT = 60.0  # for another process that measures [seconds]


def native_precision(platform: str | None = None) -> Precision:
    """Returns the precision that `auto` stands for on a platform; None selects `default_platform`.

    The precision is bfloat16 on accelerators. On a CPU it is the one whose products are faster on this machine.
    """
    return _of_processor() if (platform or default_platform()) == 'cpu' else 'bfloat16'


@functools.cache
def _of_processor() -> Precision:
    """Returns the precision for this processor. A process that measures locks out others, so all of them agree."""
    path = cache_folder() / 'precision' / _machine()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotImplementedError):  # without a writable cache, every process measures
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(f'{path}.lock', timeout=_LONGEST_WAIT))
        if known := _read(path):
            return known
        precision = measure()
        with contextlib.suppress(OSError):
            write_atomically(path, precision)
        return precision


def _read(path: pathlib.Path) -> Precision | None:
    """Returns the precision in a file; None if the file is missing or damaged."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        return next((precision for precision in _PRECISIONS if content == precision.encode()), None)
    return None


def _machine() -> str:
    """Returns a digest of everything that the choice depends on."""
    info = pathlib.Path('/proc/cpuinfo')  # Linux only
    lines = info.read_text().splitlines() if info.exists() else []
    models = {line for line in lines if line.startswith(('model name', 'flags', 'CPU ', 'Features'))}
    device = jax.local_devices(backend='cpu')[0].device_kind
    compiler = [metadata.version('jaxlib'), os.environ.get('XLA_FLAGS', '')]
    compiler.append(str(jax.config.read('jax_disable_most_optimizations')))  # true in the tests
    facts = [python_platform.machine(), python_platform.processor(), str(os.cpu_count()), device, *sorted(models)]
    return hashlib.sha256('\n'.join([*compiler, *facts]).encode()).hexdigest()[:16]


def measure(clock: Callable[[], float] = time.process_time) -> Precision:
    """Returns bfloat16 if its products are faster by `MARGIN`, else float32.

    Args:
        clock: Returns seconds. Processor time does not depend on other processes, which would make the choice random.
    """
    products = {precision: _product(precision) for precision in _PRECISIONS}
    seconds: dict[str, list[float]] = {precision: [] for precision in products}
    for _ in range(ROUNDS):
        for precision, multiply in products.items():
            began = clock()
            multiply()
            seconds[precision].append(clock() - began)
    return 'bfloat16' if MARGIN * min(seconds['bfloat16']) < min(seconds['float32']) else 'float32'


def _product(precision: str) -> Callable[[], jax.Array]:
    """Returns a compiled product of factors in a precision, with float32 sums."""
    S, D, V = SHAPE
    device = jax.local_devices(backend='cpu')[0]
    factors = [jax.device_put(np.ones(shape, jnp.dtype(precision)), device) for shape in ((S, D), (D, V))]
    product = functools.partial(
        jnp.dot, precision=product_precision(factors[0].dtype), preferred_element_type=jnp.float32
    )
    compiled = jax.jit(product).lower(*factors).compile()
    return lambda: compiled(*factors).block_until_ready()
