"""Formulas for the computation, communication and time of an update, in section 3 and in this package.

Dims: B batch, D x M mesh of D devices along the batch and M along the words, K hidden units, P inputs, V words.
"""

from __future__ import annotations

import dataclasses
import math

from nplm_jax.models.nplm import Window

FLOAT = 4  # bytes


@dataclasses.dataclass(frozen=True)
class Machine:
    """The speed of each of several equal devices, and of the network between the devices."""

    flops: float = 2e13  # floating-point operations per second in matrix products
    memory: float = 2e12  # bytes per second
    network: float = 5e10  # bytes per second sent by a device
    latency: float = 5e-6  # seconds per message


def share_of_output_layer(model: Window, num_words: int) -> float:
    """Returns the share of the output layer in all operations: |V|(1 + P + h) of |V|(1 + P + h) + h(1 + P) + P."""
    P = (model.n - 1) * model.m
    output = num_words * (1 + P + model.h)
    return output / (output + model.h * (1 + P) + P)


def numbers_a_word(model: Window) -> int:
    """Returns how many numbers per word the paper's devices exchange: 1 + (n-1)m + h, with direct connections."""
    return 1 + (model.n - 1) * model.m + model.h


def sent_over_words(model: Window, batch_size: int) -> int:
    """Returns the bytes reduced over M > 1 devices per update, which do not depend on |V|.

    For each example, these are the largest score, the sum of E and the target's score (in the paper only the sum), and
    the gradients of the output layer's inputs.
    """
    return FLOAT * batch_size * (3 + _inputs(model))


def sent_over_batch(model: Window, num_words: int, model_devices: int) -> int:
    """Returns the bytes summed over D > 1 devices per update: the gradients of a device's parameters, and the loss."""
    return FLOAT * (_held(model, num_words, model_devices) + 1)


def sent(model: Window, num_words: int, batch_size: int, data: int, model_devices: int) -> int:
    """Returns the bytes all-reduced per device and update, over both axes of the mesh."""
    over_words = sent_over_words(model, batch_size // data) if model_devices > 1 else 0
    return over_words + (sent_over_batch(model, num_words, model_devices) if data > 1 else 0)


def operations(model: Window, num_words: int, batch_size: int, data: int, model_devices: int) -> int:
    """Returns the FLOPs per device and update: three matrix products each of the output and the hidden layer."""
    P = (model.n - 1) * model.m
    rows = -(-num_words // model_devices)
    return 6 * -(-batch_size // data) * (rows * _inputs(model) + model.h * P)


def seconds(model: Window, num_words: int, batch_size: int, data: int, model_devices: int, machine: Machine) -> float:
    """Returns the predicted time of an update, in which products, parameter update and all-reduces do not overlap."""
    held = FLOAT * _held(model, num_words, model_devices)
    time = operations(model, num_words, batch_size, data, model_devices) / machine.flops + 3 * held / machine.memory
    local = -(-batch_size // data)
    time += 3 * _latency(model_devices, machine) + _ring(sent_over_words(model, local), model_devices, machine)
    return time + _latency(data, machine) + _ring(sent_over_batch(model, num_words, model_devices), data, machine)


def best_mesh(model: Window, num_words: int, batch_size: int, devices: int, machine: Machine) -> tuple[int, int]:
    """Returns the mesh D x M of `devices` devices (a power of two) with the shortest predicted time."""
    meshes = [(2**i, devices >> i) for i in range(int(math.log2(devices)) + 1) if 2**i <= batch_size]
    return min(meshes, key=lambda mesh: seconds(model, num_words, batch_size, mesh[0], mesh[1], machine))


def _inputs(model: Window) -> int:
    """Returns the number of inputs of the output layer."""
    return model.h + ((model.n - 1) * model.m if model.direct else 0)


def _held(model: Window, num_words: int, model_devices: int) -> int:
    """Returns the number of parameters on a device."""
    P = (model.n - 1) * model.m
    return -(-num_words // model_devices) * (1 + _inputs(model)) + num_words * model.m + model.h * (1 + P)


def _ring(size: int, devices: int, machine: Machine) -> float:
    return 2 * (devices - 1) / devices * size / machine.network


def _latency(devices: int, machine: Machine) -> float:
    return 2 * math.ceil(math.log2(devices)) * machine.latency
