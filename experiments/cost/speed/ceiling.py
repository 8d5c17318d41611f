"""The peak speed of matrix products on this machine: the fastest repetition in JAX and, if installed, PyTorch."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp


def flops_per_second(precisions: Sequence[str], repeats: int) -> dict[str, dict[str, float]]:
    """Returns the floating-point operations per second in a square matrix product, by precision and library."""
    n = 2048 if jax.default_backend() == 'cpu' else 8192
    products = {'jax': _jax_product, **({'torch': _torch_product} if importlib.util.find_spec('torch') else {})}
    best = {precision: dict.fromkeys(products, 0.0) for precision in precisions}
    runs = {(p, name): make(n, p) for p in precisions for name, make in products.items()}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for (precision, name), run in runs.items():
            started = time.perf_counter()
            run()
            rate = 2 * n**3 / (time.perf_counter() - started)
            best[precision][name] = max(best[precision][name], rate)
    return best


def _jax_product(n: int, precision: str) -> Callable[[], object]:
    left, right = jax.random.normal(jax.random.key(0), (2, n, n), precision)
    product = jax.jit(jnp.matmul)
    return lambda: product(left, right).block_until_ready()


def _torch_product(n: int, precision: str) -> Callable[[], object]:
    import torch  # noqa: PLC0415 (an optional package)

    from experiments.cost.speed.torch_contestants import DEVICE  # noqa: PLC0415

    left, right = torch.randn(2, n, n, dtype=getattr(torch, precision), device=DEVICE)

    def run() -> None:
        left @ right
        if DEVICE.type == 'cuda':
            torch.cuda.synchronize()

    return run
