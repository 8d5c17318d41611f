"""Counts the floating-point operations (FLOPs) of a training update in the traced program of the update.

A product of a KxM and an MxN array takes 2KMN operations. An update has three products per weight matrix: one in the
forward pass, and one for the gradient of each of the two factors. As in the literature, only products are counted:
matrix products, convolutions, and elementwise products that are only summed, such as the scores of gathered rows. The
count includes padding, such as the examples that fill the last block.

References:
    Chowdhery et al., PaLM: Scaling language modeling with pathways, 2022, appendix B (model FLOPs utilization).
"""

import collections
import dataclasses
import functools
import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from tqdm import tqdm

from nplm_jax.distributed.sharding import ONE_DEVICE
from nplm_jax.training.chips import peak_flops
from nplm_jax.training.optimizers import Hyperparams
from nplm_jax.training.step import Program, StepInputs, TrainState, init_state, train_step


class Cost(NamedTuple):
    """The cost of training per word, and the peak performance of the devices.

    Attributes:
        flops_per_word: The number of FLOPs per training word in the forward and backward passes.
        peak: The total peak bfloat16 FLOP/s of all devices, or None if it is unknown.
    """

    flops_per_word: int
    peak: float | None = None

    def rates(self, words_per_second: float) -> dict[str, float]:
        """Returns the throughput of training as a dict with the same keys as in metrics.jsonl and results.json."""
        flops_per_second = self.flops_per_word * words_per_second
        rates = {'words_per_second': words_per_second, 'flops_per_second': flops_per_second}
        return rates if self.peak is None else {**rates, 'mfu': flops_per_second / self.peak}

    def describe(self, words_per_second: float) -> str:
        """Formats the throughput for a progress line.

        Examples:
            >>> Cost(10**6, 4e11).describe(1e5)
            '100GFLOP/s (25% of peak)'
        """
        rates = self.rates(words_per_second)
        share = f' ({rates["mfu"]:.0%} of peak)' if 'mfu' in rates else ''
        return tqdm.format_sizeof(rates['flops_per_second'], 'FLOP/s') + share


def cost_of(program: Program, hyperparams: Hyperparams, inputs: StepInputs) -> Cost:
    """Returns the cost of training with a program, by counting the operations of the update that training executes.

    Args:
        program: The static part of the update.
        hyperparams: The traced hyperparameters of the optimizer; see `Rule.hyperparams`.
        inputs: The arrays that every update reads. `tokens_T` is ignored.
    """
    layout, B = program.network.layout, program.batch_size
    one_device = dataclasses.replace(program, sharding=ONE_DEVICE, num_microbatches=1)
    state = jax.eval_shape(lambda: init_state(one_device, 0, hyperparams))
    shapes = (B,), (layout.num_streams(B), layout.bptt_length)
    tokens_T, positions_SxT = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes)
    inputs = dataclasses.replace(jax.eval_shape(lambda: inputs), tokens_T=tokens_T)
    flops = product_flops(_update.trace(one_device, state, positions_SxT, inputs).jaxpr.jaxpr)
    return Cost(round(flops / B), peak_flops(device.device_kind for device in program.sharding.devices))


@functools.partial(jax.jit, static_argnames='program')  # traced only once for runs that train together
def _update(program: Program, state: TrainState, positions_SxT: jax.Array, inputs: StepInputs) -> Any:
    return train_step(program, state, inputs.batch(program.network, positions_SxT))


def product_flops(jaxpr: Jaxpr) -> int:
    """Counts the operations in all products of a traced function.

    The operations in a scan are counted for each iteration. A loop of unknown length is counted as one iteration. Of a
    conditional, only the most expensive branch is counted.
    """
    total, products = 0, set()
    uses = collections.Counter(id(x) for eqn in jaxpr.eqns for x in eqn.invars)
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        inputs, outputs = cast(tuple[list[Any], list[Any]], (eqn.invars, eqn.outvars))
        if name == 'dot_general':
            (contracted, _), _ = eqn.params['dimension_numbers']
            total += 2 * outputs[0].aval.size * math.prod(inputs[0].aval.shape[i] for i in contracted)
        elif name == 'conv_general_dilated':
            out_dim = eqn.params['dimension_numbers'].rhs_spec[0]
            total += 2 * outputs[0].aval.size * inputs[1].aval.size // inputs[1].aval.shape[out_dim]
        elif name == 'mul':
            products.add(id(outputs[0]))
        elif name == 'reduce_sum' and id(inputs[0]) in products and uses[id(inputs[0])] == 1:
            total += 2 * inputs[0].aval.size
        else:
            inner = [product_flops(each) for each in inner_jaxprs(eqn)]
            total += max(inner, default=0) if name == 'cond' else eqn.params.get('length', 1) * sum(inner)
    return total


def inner_jaxprs(eqn: JaxprEqn) -> list[Jaxpr]:
    """Returns the functions that an equation calls."""
    is_function = lambda x: isinstance(x, ClosedJaxpr | Jaxpr)  # noqa: E731
    leaves = jax.tree.leaves(list(eqn.params.values()), is_leaf=is_function)
    return [leaf.jaxpr if isinstance(leaf, ClosedJaxpr) else leaf for leaf in leaves if is_function(leaf)]
