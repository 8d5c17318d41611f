"""Dynamic evaluation, in which a network continues to learn from the words that it has predicted.

The stream is read in segments. The current parameters predict the words in a segment and are then updated:

    theta <- theta - rate g / (sqrt(MS) + e) + min(decay r, 1) (theta_0 - theta), r = sqrt(MS) / mean of sqrt(MS),

where g is the gradient of the segment's mean NLL, MS is its mean square on the training words, and theta_0 is the
anchor. In the paper, the anchor is fixed at the trained parameters. In this module, the anchor may follow theta:
theta_0 <- theta_0 + a (theta - theta_0). The model then retains properties shared by many texts, such as their genre,
while it forgets the words of individual texts.

Dims: T words in a span, S segments, B words in a segment.

References:
    Krause, Kahembwe, Murray and Renals, Dynamic evaluation of neural sequence models, 2018 (sections 3 and 4).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.apps.adaptive.adaptive_model import AdaptiveModel, score_in_parts
from nplm_jax.data.stream import Span
from nplm_jax.models.body import by_example
from nplm_jax.models.network import Network
from nplm_jax.models.network_reading import ReadState, jit_float32, read, stream_blocks
from nplm_jax.models.neural import NeuralLanguageModel, compiled_read
from nplm_jax.outputs.output_layer import Params

Carry = tuple[Params, Params, ReadState]  # the adapted parameters, the anchor, and the network's state
SEGMENTS = 16  # adjacent segments per stretch; gradients are measured on stretches of training words
EPSILON = 10.0  # e, in units of the mean of sqrt(MS); large, because the gradients of rare words are tiny


class DynamicEvaluation(AdaptiveModel):
    """A network whose parameters change with each segment of the stream.

    Attributes:
        model: The trained network.
        root_mean_squares: sqrt(MS) of each parameter, computed by `root_mean_square_gradients`.
        rate: The learning rate.
        decay: The rate, per segment, at which the parameters return to the anchor.
        segment: The number of words per segment.
        anchor_rate: The rate a, per segment, at which the anchor follows the parameters.
    """

    def __init__(
        self,
        model: NeuralLanguageModel,
        root_mean_squares: Params,
        rate: float,
        decay: float,
        segment: int,
        anchor_rate: float = 0.0,
    ) -> None:
        self.model, self.root_mean_squares = model, root_mean_squares
        self.rate, self.decay, self.segment, self.anchor_rate = rate, decay, segment, anchor_rate
        self.vocabulary_size = model.network.vocabulary_size

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. Each call starts from the trained parameters.

        To fill the state, first reads the `Body.burn_in` words before the span with these parameters.
        """
        network, trained = self.model.network, self.model.params
        state, ids_SxB, targets_SxB = stream_blocks(network, tokens_T, span, self.segment)
        before = Span(max(0, span.start - network.body.burn_in), span.start)
        if len(before):
            start, ids_1xL, _ = stream_blocks(network, tokens_T, before, len(before))
            _, state = compiled_read(network, trained, start, ids_1xL)
        rates = jnp.float32(self.rate), jnp.float32(self.decay), jnp.float32(self.anchor_rate)
        score = functools.partial(_score_segments, network, self.root_mean_squares, rates)
        carry = trained, trained, state
        return score_in_parts(score, carry, ids_SxB, targets_SxB, 'dynamic evaluation')[: len(span)]


def root_mean_square_gradients(
    model: NeuralLanguageModel, tokens_T: np.ndarray, span: Span, segment: int, num_segments: int
) -> Params:
    """Returns the root mean square of each parameter's gradient over segments of training words.

    Gradients are measured on stretches of SEGMENTS adjacent segments, or fewer if `span` is shorter. The stretches are
    evenly spaced in `span`.

    Args:
        model: The network.
        tokens_T: Ids of the stream.
        span: The training words.
        segment: The number of words per segment.
        num_segments: The number of segments, rounded up to whole stretches.
    """
    segment = min(segment, len(span))
    size = min(SEGMENTS, len(span) // segment)
    stretch = size * segment
    num_stretches = min(-(-num_segments // size), len(span) // stretch)
    sums = jax.tree.map(jnp.zeros_like, model.params)
    for i in range(num_stretches):
        first = span.start + i * (len(span) - stretch) // num_stretches
        blocks = stream_blocks(model.network, tokens_T, Span(first, first + stretch), segment)
        sums = _add_squared_gradients(model.network, model.params, sums, *blocks)
    return jax.tree.map(lambda total: np.sqrt(total / (num_stretches * size)), sums)


def _segment_loss(
    params: Params, network: Network, state: ReadState, ids_B: jax.Array, targets_B: jax.Array
) -> tuple[jax.Array, tuple[ReadState, jax.Array]]:
    """Returns the mean NLL of a segment, in nats per word. Auxiliary outputs are the next state and each word's NLL."""
    features, state = read(network, params, state, ids_B[None])
    nll_B = network.output.nll(params, by_example(features), targets_B)
    return jnp.mean(nll_B), (state, nll_B)


_gradients = jax.value_and_grad(_segment_loss, has_aux=True)


@jit_float32
def _add_squared_gradients(
    network: Network, params: Params, sums: Params, state: ReadState, ids_SxB: jax.Array, targets_SxB: jax.Array
) -> Params:
    """Adds the squared gradients of consecutive segments to the sums."""

    def read_segment(carry: tuple[ReadState, Params], words: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        state, sums = carry
        (_, (state, _)), grads = _gradients(params, network, state, *words)
        return (state, jax.tree.map(lambda total, g: total + jnp.square(g), sums, grads)), None

    return jax.lax.scan(read_segment, (state, sums), (ids_SxB, targets_SxB))[0][1]


@jit_float32
def _score_segments(
    network: Network,
    root_mean_squares: Params,
    rates: tuple[jax.Array, jax.Array, jax.Array],
    carry: Carry,
    ids_SxB: jax.Array,
    targets_SxB: jax.Array,
) -> tuple[Carry, jax.Array]:
    """Returns the next carry, and log P of the words in nats, S x B. Each segment changes the parameters."""
    rate, decay, anchor_rate = rates
    num_params = sum(rms.size for rms in jax.tree.leaves(root_mean_squares))
    mean = sum(jnp.sum(rms) for rms in jax.tree.leaves(root_mean_squares)) / num_params

    def update(theta: jax.Array, anchor: jax.Array, g: jax.Array, rms: jax.Array) -> jax.Array:
        return theta - rate * g / (rms + EPSILON * mean) + jnp.minimum(decay * rms / mean, 1) * (anchor - theta)

    def read_segment(carry: Carry, inputs: tuple[jax.Array, jax.Array]) -> tuple[Carry, jax.Array]:
        (adapted, anchor, state), (ids_B, targets_B) = carry, inputs
        (_, (state, nll_B)), grads = _gradients(adapted, network, state, ids_B, targets_B)
        adapted = jax.tree.map(update, adapted, anchor, grads, root_mean_squares)
        anchor = jax.tree.map(lambda theta_0, theta: theta_0 + anchor_rate * (theta - theta_0), anchor, adapted)
        return (adapted, anchor, state), -nll_B

    return jax.lax.scan(read_segment, carry, (ids_SxB, targets_SxB))
