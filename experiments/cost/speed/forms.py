"""Which form of the output layer's loss and gradients is fastest? All of them, alternating in one run.

    python -m experiments.cost.speed.forms [--batch=512] [--widths=50,240] [--vocabulary=16384]
    python -m experiments.cost.speed.forms --show      the table of the committed results, nothing measured

A turn is some updates in one execution, as in training: loss, all gradients, plain SGD. Writes results/forms.json.
Dims: V vocabulary, B batch, S examples of a block, K and P inputs of the output layer, D inputs of one part.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import study
from experiments.cost.speed import problem
from experiments.sources import of_module
from nplm_jax.distributed.constraints import vocab_minor_layout
from nplm_jax.distributed.sharding import ONE_DEVICE
from nplm_jax.outputs import blockwise, softmax
from nplm_jax.outputs.blockwise import LinearTerm
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import require

HERE = pathlib.Path(__file__).parent
LinearTerms = Sequence[LinearTerm]
Loss = Callable[[Any, jax.Array, jax.Array, str], jax.Array]  # terms, b_V, targets_B, precision -> mean NLL
MATRICES = ('U_VxK', 'W_VxP')
WIDTHS = ([100], [50, 240])
WORDS, EXAMPLES = 2048, 128  # of a block: of words, of examples


def product(left: jax.Array, right: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """Returns the product of two matrices over one axis of each, both rounded to the left one's type."""
    return blockwise._product(left, right.astype(left.dtype), contract)


def examples_by_words(terms: LinearTerms, b_V: jax.Array, targets_B: jax.Array, precision: str) -> jax.Array:
    """Computes B x V scores: the form that comes to mind first."""
    y_BxV = sum(product(x.astype(precision), w, (1, 1)) for w, x in terms) + b_V[None, :]
    picked_B = jnp.take_along_axis(y_BxV, targets_B[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(y_BxV, axis=1) - picked_B)


def words_by_examples(terms: LinearTerms, b_V: jax.Array, targets_B: jax.Array, precision: str) -> jax.Array:
    """Computes V x B scores; jax.grad gives the gradients."""
    y_VxB = sum(product(w.astype(precision), x, (1, 1)) for w, x in terms) + b_V[:, None]
    return jnp.mean(softmax.cross_entropy(y_VxB, targets_B))


def recomputed(
    terms: LinearTerms, b_V: jax.Array, targets_B: jax.Array, precision: str, words: int = WORDS
) -> jax.Array:
    """Keeps a running maximum and sum over blocks of words; the backward pass computes each block again."""
    V = len(b_V)

    @jax.checkpoint
    def block(running: tuple[jax.Array, jax.Array], first: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        largest_B, sum_B = running
        rows = [jax.lax.dynamic_slice_in_dim(w, first, words) for w, _ in terms]
        y_VxB = sum(product(w.astype(precision), x, (1, 1)) for w, (_, x) in zip(rows, terms))
        y_VxB += jax.lax.dynamic_slice_in_dim(b_V, first, words)[:, None]
        new_B = jax.lax.stop_gradient(jnp.maximum(largest_B, y_VxB.max(0)))
        sum_B = sum_B * jnp.exp(largest_B - new_B) + jnp.exp(y_VxB - new_B[None, :]).sum(0)
        return (new_B, sum_B), None

    start = jnp.full(len(targets_B), -jnp.inf), jnp.zeros(len(targets_B))
    (largest_B, sum_B), _ = jax.lax.scan(block, start, jnp.arange(0, V, words))
    picked_B = b_V[targets_B] + sum(jnp.sum(w[targets_B] * x, 1) for w, x in terms)
    return jnp.mean(largest_B + jnp.log(sum_B) - picked_B)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def transposed(terms: LinearTerms, b_V: jax.Array, targets_B: jax.Array, precision: str) -> jax.Array:
    """Computes V x 128 scores of a block, one product for each of U and W, and W^T E from transposed copies.

    This is the form that the package had before. There b's gradient was a separate product in float32, which was 8%
    faster at K=100. The batch must be a multiple of EXAMPLES.
    """
    return transposed_gradients(terms, b_V, targets_B, precision)[0]


def transposed_gradients(
    terms: LinearTerms, b_V: jax.Array, targets_B: jax.Array, precision: str
) -> tuple[jax.Array, Any]:
    """Returns the loss of `transposed` and its gradients."""
    weights, inputs = zip(*terms)
    *others, last = inputs
    with_ones = [*others, jnp.pad(last, ((0, 0), (0, 1)), constant_values=1)]  # one column more, for b's gradient
    low = [w.astype(precision) for w in weights]
    copies = [jax.lax.optimization_barrier(w.T) for w in low]

    def block(sums: list[jax.Array], inputs: list[jax.Array]) -> tuple[list[jax.Array], Any]:
        y_VxS = sum(product(w, x[:, : w.shape[1]], (1, 1)) for w, x in zip(low, inputs)) + b_V[:, None]
        largest_S = jnp.max(y_VxS, axis=0)
        E_VxS = jnp.exp(y_VxS - largest_S[None, :]).astype(precision)
        sum_S = jnp.sum(E_VxS, axis=0, dtype=jnp.float32)
        sums = [total + product(E_VxS, x / sum_S[:, None], (1, 0)) for total, x in zip(sums, inputs)]
        return sums, (largest_S + jnp.log(sum_S), [(product(w, E_VxS, (1, 0)) / sum_S[None, :]).T for w in copies])

    zeros = [jnp.zeros((len(b_V), x.shape[1])) for x in with_ones]
    sums, (log_sums, expected) = jax.lax.scan(block, zeros, [x.reshape(-1, EXAMPLES, x.shape[1]) for x in with_ones])
    target_rows = [w[targets_B] for w in weights]
    picked_B = b_V[targets_B] + sum(jnp.sum(w * x, 1) for w, x in zip(target_rows, inputs))
    *grad_others, grad_last = [g.at[targets_B].add(-x) / len(x) for g, x in zip(sums, with_ones)]
    grad_weights = [*grad_others, grad_last[:, :-1]]
    grad_inputs = [(e.reshape(x.shape) - w) / len(x) for e, w, x in zip(expected, target_rows, inputs)]
    return jnp.mean(log_sums.ravel() - picked_B), (tuple(zip(grad_weights, grad_inputs)), grad_last[:, -1])


transposed.defvjp(transposed_gradients, lambda _, gradients, g: (*jax.tree.map(lambda x: x * g, gradients), None))


def ours(terms: LinearTerms, b_V: jax.Array, targets_B: jax.Array, precision: str, block_size: int) -> jax.Array:
    """Computes the package's form, nplm_jax/outputs/blockwise.py."""
    return blockwise.blockwise_cross_entropy(terms, b_V, targets_B, precision, block_size)


def forms() -> dict[str, tuple[Loss, bool]]:
    """Returns loss functions by name, each with whether U and W have their words last in memory."""
    losses: dict[str, tuple[Loss, bool]] = {
        'examples x words': (examples_by_words, False),
        'words x examples': (words_by_examples, False),
        'blocks of 2,048 words, recomputed': (recomputed, False),
        'words x examples in blocks of 128': (transposed, False),
        'ours, U and W laid out as they come, 256': (functools.partial(ours, block_size=256), False),
    }
    for size in (32, 64, 128, 256, 512):
        losses[f'ours, blocks of {size} examples'] = functools.partial(ours, block_size=size), True
    return losses


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_count('--batch', 512, 'examples of an update')
    parser.add_count('--vocabulary', 16_384, '|V|')
    widths = 'inputs of the output layer: of h, or of h and x; repeatable; default: 100, and 50,240'
    parser.add_argument('--widths', type=study.counts, action='append', metavar='N[,N]', help=widths)
    parser.add_count('--steps', 6, 'updates of a turn')
    parser.add_count('--rounds', 8, 'turns of each form that are timed')
    parser.add_output_path(HERE / 'results' / 'forms.json')


def make_turn(flags: study.Flags, loss: Loss, vocab_minor: bool, precision: str, widths: list[int]) -> problem.Turn:
    """Returns a function that makes some updates of random weights on random inputs."""
    V, B, S = flags.vocabulary, flags.batch, flags.steps
    keys = jax.random.split(jax.random.key(0), 2 * len(widths) + 1)
    weights = {name: d**-0.5 * jax.random.normal(key, (V, d)) for name, d, key in zip(MATRICES, widths, keys)}
    inputs = [jnp.tanh(jax.random.normal(key, (S, B, d))) for d, key in zip(widths, keys[len(widths) :])]
    targets_SxB = jax.random.randint(keys[-1], (S, B), 0, V)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        weights, b_V = state
        inputs, targets_B = batch
        terms = tuple(zip(weights.values(), inputs))
        nll, (grad_terms, grad_b) = jax.value_and_grad(loss, (0, 1))(terms, b_V, targets_B, precision)
        updated = {name: weights[name] - 0.1 * g for name, (g, _) in zip(weights, grad_terms)}
        updated = vocab_minor_layout(updated, ONE_DEVICE) if vocab_minor else updated
        return (updated, b_V - 0.1 * grad_b), (nll, [g for _, g in grad_terms])

    steps = jax.jit(lambda state: jax.lax.scan(step, state, (inputs, targets_SxB)), donate_argnums=0)
    state = (weights, jnp.zeros(V))

    def turn() -> np.ndarray:
        nonlocal state
        state, (nll_S, _) = steps(state)
        return np.asarray(nll_S)

    return turn


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields everything that forms.json holds, after each shape."""
    require(flags.batch % EXAMPLES == 0, '--batch', flags.batch, f'must be a multiple of {EXAMPLES}')
    require(flags.vocabulary % WORDS == 0, '--vocabulary', flags.vocabulary, f'must be a multiple of {WORDS}')
    for widths in flags.widths or ():
        require(len(widths) <= len(MATRICES), '--widths', widths, f'must be at most {len(MATRICES)} integers')
    problem.set_up()
    facts = {'batch': flags.batch, 'vocabulary': flags.vocabulary, **of_module('experiments.cost.speed.forms')}
    rates: list[dict[str, Any]] = []
    for widths in flags.widths or WIDTHS:
        turns = {
            (name, precision): make_turn(flags, *form, precision, widths)
            for precision in problem.PRECISIONS
            for name, form in forms().items()
        }
        seconds = problem.alternate(turns, flags.rounds)
        rates += [
            {
                'widths': ','.join(map(str, widths)),
                'form': name,
                'precision': precision,
                'per_second': [round(flags.steps * flags.batch / s) for s in turn_seconds],
            }
            for (name, precision), turn_seconds in seconds.items()
        ]
        yield {**facts, 'rates': rates}


def make_table(measured: dict[str, Any]) -> str:
    """Returns a line a form, a column a shape and precision: medians of the examples a second."""
    medians = {(r['form'], r['widths'], r['precision']): np.median(r['per_second']) for r in measured['rates']}
    shapes = sorted({(w, p) for _, w, p in medians}, key=lambda s: (len(s[0]), s[1] != 'float32'))
    header = ['examples a second', *(f'K={w.replace(",", "+")} {p}' for w, p in shapes)]
    lines = [
        [form, *(f'{medians[form, *shape]:,.0f}' for shape in shapes)] for form in dict.fromkeys(f for f, *_ in medians)
    ]
    about = f'B={measured["batch"]}, |V|={measured["vocabulary"]:,}, {measured["device"]}.'
    return f'{markdown_table(header, lines)}\n\n{about}'


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
