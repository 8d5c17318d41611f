"""Dynamic evaluation: the network goes on learning from the words that it has predicted.

The stream is read in segments. The words of a segment are predicted with the parameters before it; then
theta <- theta - rate g / (sqrt(MS) + e) + min(decay r, 1) (theta_0 - theta), r = sqrt(MS) / mean of sqrt(MS), where g
is the gradient of the segment's mean NLL, MS its mean square on the training words and theta_0 the trained parameters.
Dims: T words of a span, S segments, B words of a segment.

References:
    Krause, Kahembwe, Murray and Renals, Dynamic evaluation of neural sequence models, 2018 (sections 3 and 4).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.models.body import Carry
from nplm_jax.models.language_model import LanguageModel, check_contexts
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params

SEGMENTS = 16  # adjacent segments that measure one stretch of the training words
EPSILON = 10.0  # e, as a multiple of the mean of sqrt(MS): the rows of rare words have almost no gradient


class DynamicEvaluation(LanguageModel):
    """A network whose parameters change with each segment of the stream.

    Attributes:
        model: The trained network.
        root_mean_squares: sqrt(MS) of each parameter, as `root_mean_square_gradients` returns it.
        rate: The learning rate.
        decay: How fast the parameters return to the trained ones, per segment.
        segment: Words of a segment.
    """

    n = None

    def __init__(
        self, model: NeuralLanguageModel, root_mean_squares: Params, rate: float, decay: float, segment: int
    ) -> None:
        self.model, self.root_mean_squares = model, root_mean_squares
        self.rate, self.decay, self.segment = rate, decay, segment

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. The parameters at the start of the span are the trained ones."""
        # Whole segments: those before the span fill the state, and the last one repeats the last word.
        num_static = min(-(-self.model.network.body.burn_in // self.segment), span.start // self.segment)
        first = span.start - num_static * self.segment
        positions_SxB = dataset.consecutive_positions(Span(first, span.stop), self.segment)
        log_p_T = np.asarray(self._read(tokens_T, positions_SxB, num_static)[1]).reshape(-1)
        return log_p_T[span.start - first : span.stop - first]

    def _read(
        self, tokens_T: np.ndarray, positions_SxB: np.ndarray, num_static: int = 0
    ) -> tuple[tuple[Params, Carry], jax.Array]:
        """Returns parameters and carry after the words at these positions, and log P of each word, S x B."""
        return _read_stream(
            self.model.network,
            self.model.params,
            self.root_mean_squares,
            (jnp.float32(self.rate), jnp.float32(self.decay)),
            jnp.asarray(tokens_T),
            positions_SxB,
            num_static,
        )

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`. The network adapts to the whole segments of each context."""
        contexts_BxN = check_contexts(contexts_BxN)
        num_read = contexts_BxN.shape[1] // self.segment * self.segment
        rows = []
        for words_N in contexts_BxN:
            words_T = np.append(words_N, RARE_ID)  # the last one stands for the word to predict
            state, _ = self._read(words_T, dataset.consecutive_positions(Span(0, num_read), self.segment))
            rows.append(_predict(self.model.network, *state, words_T, num_read))
        return np.stack(rows)


def root_mean_square_gradients(
    model: NeuralLanguageModel, tokens_T: np.ndarray, span: Span, segment: int, num_segments: int
) -> Params:
    """Returns sqrt(MS) of each parameter's gradient over segments of `span`, in stretches that are spread evenly.

    Args:
        model: The network.
        tokens_T: Ids of the stream.
        span: The training words.
        segment: Words of a segment.
        num_segments: The number of segments, rounded up to whole stretches.
    """
    stretch = SEGMENTS * segment
    num_stretches = min(-(-num_segments // SEGMENTS), max(1, len(span) // stretch))
    starts = span.start + np.arange(num_stretches) * (len(span) - stretch) // num_stretches
    positions = (starts[:, None] + np.arange(stretch)[None, :]).astype(np.int32).reshape(-1, SEGMENTS, segment)
    return _root_mean_squares(model.network, model.params, jnp.asarray(tokens_T), positions)


def _segment_loss(
    params: Params, network: Network, tokens_T: jax.Array, positions_B: jax.Array, carry: Carry
) -> tuple[jax.Array, tuple[Carry, jax.Array]]:
    """Returns the mean NLL of a segment, nats per word, and with it the next carry and the NLL of each word."""
    contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, network.body.num_context)
    features, carry = network.features(params, contexts_BxN, carry)
    nll_B = network.output.nll(params, features, targets_B)
    return jnp.mean(nll_B), (carry, nll_B)


_gradients = jax.value_and_grad(_segment_loss, has_aux=True)


@functools.partial(jax.jit, static_argnames='network')
def _root_mean_squares(network: Network, params: Params, tokens_T: jax.Array, positions_SxLxB: jax.Array) -> Params:
    def stretch(sums: Params, positions_LxB: jax.Array) -> tuple[Params, None]:
        def segment(state: tuple, positions_B: jax.Array) -> tuple[tuple, None]:
            carry, sums = state
            (_, (carry, _)), grads = _gradients(params, network, tokens_T, positions_B, carry)
            return (carry, jax.tree.map(lambda total, g: total + jnp.square(g), sums, grads)), None

        return jax.lax.scan(segment, (network.body.start(1), sums), positions_LxB)[0][1], None

    sums, _ = jax.lax.scan(stretch, jax.tree.map(jnp.zeros_like, params), positions_SxLxB)
    num_segments = positions_SxLxB.shape[0] * positions_SxLxB.shape[1]
    return jax.tree.map(lambda total: jnp.sqrt(total / num_segments), sums)


@functools.partial(jax.jit, static_argnames='network')
def _read_stream(
    network: Network,
    params: Params,
    root_mean_squares: Params,
    rates: tuple[jax.Array, jax.Array],
    tokens_T: jax.Array,
    positions_SxB: jax.Array,
    num_static: jax.Array | int,
) -> tuple[tuple[Params, Carry], jax.Array]:
    """Reads consecutive segments, of which the first do not change the parameters. See `DynamicEvaluation._read`."""
    rate, decay = rates
    num_params = sum(rms.size for rms in jax.tree.leaves(root_mean_squares))
    mean = sum(jnp.sum(rms) for rms in jax.tree.leaves(root_mean_squares)) / num_params

    def update(theta: jax.Array, theta_0: jax.Array, g: jax.Array, rms: jax.Array, is_adaptive: jax.Array) -> jax.Array:
        back = jnp.minimum(decay * rms / mean, 1) * (theta_0 - theta)
        return theta + is_adaptive * (back - rate * g / (rms + EPSILON * mean))

    def segment(
        state: tuple[Params, Carry], inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[Params, Carry], jax.Array]:
        (adapted, carry), (positions_B, number) = state, inputs
        (_, (carry, nll_B)), grads = _gradients(adapted, network, tokens_T, positions_B, carry)
        step = functools.partial(update, is_adaptive=number >= num_static)
        return (jax.tree.map(step, adapted, params, grads, root_mean_squares), carry), -nll_B

    inputs = positions_SxB, jnp.arange(len(positions_SxB))
    return jax.lax.scan(segment, (params, network.body.start(1)), inputs)


@functools.partial(jax.jit, static_argnames=('network', 'num_read'))
def _predict(network: Network, params: Params, carry: Carry, words_T: jax.Array, num_read: int) -> jax.Array:
    """Returns log P of all words as the last word, after the words from `num_read` on were read, V, nats."""
    positions = jnp.arange(num_read, len(words_T))
    contexts_BxN, _ = dataset.windows(words_T, positions, network.body.num_context)
    features, _ = network.features(params, contexts_BxN, carry)
    return network.output.log_probabilities(params, jax.tree.map(lambda x: x[-1:], features))[0]
