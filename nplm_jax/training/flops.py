"""Model FLOPs: what the products of an update cost, whatever a program computes besides or computes twice.

A product of a KxM and an MxN array takes 2KMN operations forward, and twice as many backward: one product for the
gradient of each factor. Only products count, as in the literature: those of matrices, convolutions, and elementwise
products that are summed, such as the scores of rows that were gathered for each example.

References:
    Chowdhery et al., PaLM: Scaling language modeling with pathways, 2022, appendix B (model FLOPs utilization).
"""

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from tqdm import tqdm

from nplm_jax.data.batches import Batch
from nplm_jax.models.body import by_example
from nplm_jax.outputs.output_layer import Gathered, Params, SparseOutputLayer
from nplm_jax.training import sparse_rows
from nplm_jax.training.chips import peak_flops
from nplm_jax.training.step import Program


class Cost(NamedTuple):
    """What training costs, and what its devices can do.

    Attributes:
        flops_per_word: Model FLOPs per trained word, forward and backward.
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


def cost_of(program: Program, extras: Any = None) -> Cost:
    """Returns what the updates of a program cost.

    Args:
        program: The program.
        extras: `Batch.extras` of its batches.
    """
    network, B = program.network, program.batch_size
    body, output = network.body, network.output
    S, T = body.layout.num_streams(B), body.layout.bptt_length

    def forward(params: Params, batch: Batch) -> jax.Array:
        key = jax.random.key(0)
        features = by_example(network.features(params, batch.ids_SxL, body.start(S), key).features)
        if not isinstance(output, SparseOutputLayer):
            return output.nll(params, features, batch.targets_B).mean()  # no loss in blocks with its own gradients
        state = output.init_state(network.vocabulary_size)
        rows = sparse_rows.Rows(batch.ids_SxL, *output.rows(batch, key, state))
        gathered = sparse_rows.gather_rows(params, rows, network.tables.words)
        return output.sparse_loss(Gathered(*gathered, rows.shared_S, rows.draws), features, batch)[0]

    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    ids, targets = (jax.ShapeDtypeStruct((S, length), jnp.int32) for length in (body.layout.lookback + T, T))
    batch = Batch(cast(Any, ids), cast(Any, targets), jax.eval_shape(lambda: extras))
    flops = 3 * product_flops(jax.make_jaxpr(forward)(params, batch).jaxpr)
    return Cost(round(flops / B), peak_flops(device.device_kind for device in program.sharding.devices))


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
