"""The operations of a trace's matrix products, each loop as often as it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from nplm_jax.training.flops import inner_jaxprs


def count(jaxpr: Any, num_devices: int = 1, tile: int = 1) -> tuple[float, float]:
    """Returns the operations of the products on one device, and those with each side of a product filled up.

    Args:
        jaxpr: A trace.
        num_devices: The devices over which products outside shard_map are divided.
        tile: What each side is filled up to a multiple of.
    """
    found = [(times, equation) for equation, times in _products(jaxpr, 1 / num_devices, num_devices)]
    exact, tiled = (sum(times * _operations(equation, size) for times, equation in found) for size in (1, tile))
    return exact, tiled


def _operations(equation: Any, tile: int) -> float:
    (contracted, batch), (left, right) = equation.params['dimension_numbers'], (x.aval.shape for x in equation.invars)
    sides = [math.prod(left[axis] for axis in contracted[0])]
    for shape, used, batched in ((left, contracted[0], batch[0]), (right, contracted[1], batch[1])):
        sides.append(math.prod(size for axis, size in enumerate(shape) if axis not in (*used, *batched)))
    filled = (-(-side // tile) * tile for side in sides)
    return 2.0 * math.prod(left[axis] for axis in batch[0]) * math.prod(filled)


def _products(jaxpr: Any, times: float, num_devices: int) -> Iterator[tuple[Any, float]]:
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == 'dot_general':
            yield equation, times
        inner = times * (equation.params['length'] if name == 'scan' else 1)
        inner = inner * num_devices if name == 'shard_map' else inner  # its shapes are those of one device
        for body in inner_jaxprs(equation):
            yield from _products(body, inner, num_devices)
