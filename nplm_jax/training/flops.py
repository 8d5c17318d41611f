"""The FLOPs of an update: what its matrix products cost.

A product of a KxM and an MxN array takes 2KMN operations, and an update has three for each weight matrix: one forward,
and one for the gradient of each factor. Only products count, as in the literature: those of matrices, convolutions, and
elementwise products that are summed, such as the scores of rows that were gathered for each example. They count as the
update computes them, so what fills up a block of examples counts too.

References:
    Chowdhery et al., PaLM: Scaling language modeling with pathways, 2022, appendix B (model FLOPs utilization).
"""

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
from nplm_jax.training.step import Program, RunInputs, TrainState, init_state, train_step


class Cost(NamedTuple):
    """What training costs, and what its devices can do.

    Attributes:
        flops_per_word: FLOPs per trained word, forward and backward.
        peak: The peak bfloat16 FLOP/s of all devices together; None where it is unknown.
    """

    flops_per_word: int
    peak: float | None = None

    def rates(self, words_per_second: float) -> dict[str, float]:
        """Returns the rates of a training by the names that metrics.jsonl and results.json give them."""
        flops_per_second = self.flops_per_word * words_per_second
        rates = {'words_per_second': words_per_second, 'flops_per_second': flops_per_second}
        return rates if self.peak is None else {**rates, 'mfu': flops_per_second / self.peak}

    def describe(self, words_per_second: float) -> str:
        """Returns the rate as a line of progress shows it.

        Examples:
            >>> Cost(10**6, 4e11).describe(1e5)
            '100GFLOP/s (25% of peak)'
        """
        rates = self.rates(words_per_second)
        share = f' ({rates["mfu"]:.0%} of peak)' if 'mfu' in rates else ''
        return tqdm.format_sizeof(rates['flops_per_second'], 'FLOP/s') + share


def cost_of(program: Program, hyperparams: Hyperparams, inputs: RunInputs) -> Cost:
    """Returns what the updates of a program cost: the products of the very update that trains.

    Args:
        program: The program.
        hyperparams: `Rule.hyperparams` of its optimizer.
        inputs: Its inputs; the words of the corpus are not read.
    """
    layout, B = program.network.layout, program.batch_size
    one_device = dataclasses.replace(program, sharding=ONE_DEVICE, num_microbatches=1)
    state = jax.eval_shape(lambda: init_state(one_device, 0, hyperparams))
    shapes = (B,), (layout.num_streams(B), layout.bptt_length)
    tokens_T, positions_SxT = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes)
    inputs = dataclasses.replace(jax.eval_shape(lambda: inputs), tokens_T=tokens_T)
    flops = product_flops(_update.trace(one_device, state, positions_SxT, inputs).jaxpr.jaxpr)
    return Cost(round(flops / B), peak_flops(device.device_kind for device in program.sharding.devices))


@functools.partial(jax.jit, static_argnames='program')  # traced once for runs that train together
def _update(program: Program, state: TrainState, positions_SxT: jax.Array, inputs: RunInputs) -> Any:
    return train_step(program, state, inputs.batch(program.network, positions_SxT))


def product_flops(jaxpr: Jaxpr) -> int:
    """Returns the operations of the products of a function that JAX has traced.

    A scan counts as often as it runs, a loop of unknown length once, and of the branches of a condition the dearest.
    """
    total, products = 0, set()
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
        elif name == 'reduce_sum' and id(inputs[0]) in products:
            total += 2 * inputs[0].aval.size
        else:
            inner = [product_flops(each) for each in inner_jaxprs(eqn)]
            total += max(inner, default=0) if name == 'cond' else eqn.params.get('length', 1) * sum(inner)
    return total


def inner_jaxprs(eqn: JaxprEqn) -> list[Jaxpr]:
    """Returns the functions that an operation calls."""
    is_function = lambda x: isinstance(x, ClosedJaxpr | Jaxpr)  # noqa: E731
    leaves = jax.tree.leaves(list(eqn.params.values()), is_leaf=is_function)
    return [leaf.jaxpr if isinstance(leaf, ClosedJaxpr) else leaf for leaf in leaves if is_function(leaf)]
