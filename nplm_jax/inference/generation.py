"""Generates text with any language model, by greedy decoding or by sampling (temperature, top-k, nucleus).

Dims: B sequences, T words to generate, N words in a context, V vocabulary, K most likely words.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.distributed import jax_settings
from nplm_jax.inference.loaded_model import LoadedModel, check_loaded, model_of
from nplm_jax.models.language_model import LanguageModel, reorder
from nplm_jax.utils.errors import require

_CHECKED_EVERY = 8  # number of generated words between calls of `is_enough`
BLOCK = 32  # sequences generated in parallel; small enough for B x V arrays to fit into a CPU cache
_VALUES_PER_MAXIMUM = 64  # number of values per block in `largest`


@dataclasses.dataclass(frozen=True)
class Choice:
    """Sampling options for the next word.

    Attributes:
        temperature: The number by which log-probabilities are divided. Values below 1 make likely words more likely.
        top_k: The number of most likely words to sample from. Of words with equal probability, the more frequent ones
            are kept. None keeps all words.
        top_p: The threshold of nucleus sampling, which is applied after `top_k`. Words are sampled from the smallest
            set of most likely words with a total probability of at least `top_p`, and from all words tied with the
            least likely word in this set. None keeps all words.
        rare: Whether the rare-word symbol may be sampled.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    rare: bool = False

    def __post_init__(self) -> None:
        ok = math.isfinite(self.temperature) and self.temperature >= 1e-6
        allowed = 'must be finite and at least 1e-6; to generate the most likely word, use top_k=1'
        require(ok, 'temperature', self.temperature, allowed)
        ok = self.top_k is None or (isinstance(self.top_k, (int, np.integer)) and self.top_k >= 1)
        require(ok, 'top_k', self.top_k, 'must be an integer of at least 1; omit top_k to sample from all words')
        ok = self.top_p is None or 0 < self.top_p <= 1
        require(ok, 'top_p', self.top_p, 'must be greater than 0 and at most 1; omit top_p to sample from all words')


GREEDY = Choice(top_k=1)


def encode_prompt(words: Sequence[str], model: LoadedModel | Vocabulary) -> np.ndarray:
    """Encodes a prompt as word ids, and prepends the same context as at the beginning of a scored text.

    See `LineStart` for this context.

    Args:
        words: The words in the prompt; may be empty. If the first word is a boundary token, the `<p>` of the context is
            omitted.
        model: The loaded model, or its vocabulary.

    Returns:
        The word ids, int32.
    """
    if not isinstance(model, Vocabulary):
        check_loaded('model', model)
    vocabulary = model.vocabulary if isinstance(model, LoadedModel) else model
    ids = vocabulary.encode(words)
    return np.concatenate([LineStart.of(vocabulary).before(ids, continues=True), ids])


def sample(
    model: LoadedModel | LanguageModel,
    prompt_N: np.ndarray,
    words: int,
    samples: int,
    choice: Choice = Choice(),
    seed: int = 1,
    is_enough: Callable[[Sequence[int]], bool] | None = None,
) -> np.ndarray:
    """Samples continuations of a prompt.

    Each sequence depends only on the seed and on its index. The first 10 of 1,000 samples are therefore the same
    as the result of a call with 10 samples.

    Args:
        model: A loaded model, or any language model, such as a mixture.
        prompt_N: Word ids in reading order; may be empty.
        words: The number of words to generate per sequence.
        samples: The number of sequences.
        choice: The sampling options.
        seed: The random seed, at least 0 and less than 2**31.
        is_enough: A function that takes the ids generated so far for a sequence and returns whether the sequence may
            end. A block of at most BLOCK sequences, which are generated in parallel, ends early once all of its
            sequences may end. If None, every sequence has `words` words.

    Returns:
        The generated word ids without the prompt, int32, B x T. Sequences of blocks that ended early are padded with
        rare-word symbols.
    """
    require(words >= 1, 'words', words, 'must be 1 or more')
    require(samples >= 1, 'samples', samples, 'must be 1 or more')
    require(0 <= seed < 2**31, 'seed', seed, 'must be non-negative and less than 2**31')
    jax_settings.require_pinned()
    model = model_of(model)
    num_blocks = -(-samples // BLOCK)
    size = -(-samples // num_blocks)
    prompted, blocks = model.prefill(np.asarray(prompt_N)[None]), []
    for first in range(0, num_blocks * size, size):
        numbers_B = np.arange(first, first + size)
        state, ids_TxB = reorder(prompted, np.zeros(size, np.int32)), []
        for position in range(words):
            ids_B = draw_word(seed, numbers_B, position, model.predict(state), choice)
            ids_TxB.append(np.asarray(ids_B))  # waits for this word, which avoids a queue of B x V arrays
            if is_enough and (position + 1) % _CHECKED_EVERY == 0 and all(map(is_enough, zip(*ids_TxB))):
                break
            if position + 1 < words:
                state = model.advance(state, ids_B)
        blocks.append(np.stack(ids_TxB, axis=1))
    length = max(block.shape[1] for block in blocks)
    return np.concatenate([np.pad(block, ((0, 0), (0, length - block.shape[1]))) for block in blocks])[:samples]


def cut_words(tokens: Sequence[str], tokenizer: Tokenizer, words: int) -> list[str]:
    """Returns the longest prefix of `tokens` whose text has at most `words` whitespace-separated words."""
    kept = list(tokens)
    while kept and len(tokenizer.decode(kept).split()) > words:
        kept.pop()
    return kept


def largest(values: np.ndarray, number: int) -> np.ndarray:
    """Returns the indices of the `number` largest values, in descending order of the values.

    Of equal values, those with lower indices are returned first. To avoid sorting all values, the function compares the
    maxima of blocks, and sorts only the values that can be among the largest.
    """
    values = np.where(np.isnan(values), -np.inf, values)
    maxima = np.maximum.reduceat(values, np.arange(0, len(values), _VALUES_PER_MAXIMUM))
    # At least `number` blocks contain a value of at least `least`. Values below `least` are therefore not needed.
    least = np.partition(maxima, -number)[-number] if number <= len(maxima) else -np.inf
    (kept,) = np.nonzero(values >= least)
    return kept[np.argsort(-values[kept], kind='stable')[:number]]


def draw(keys_B: jax.Array, log_p_BxV: jax.Array, choice: Choice) -> jax.Array:
    """Samples a word from each row of log-probabilities, which need not be normalized.

    If only the rare-word symbol is possible and `choice` excludes it, all other words are equally likely.

    Args:
        keys_B: One random key per row.
        log_p_BxV: Log-probabilities, float32, nats.
        choice: The sampling options.

    Returns:
        Word ids, int32, B.
    """
    if not choice.rare:
        log_p_BxV = log_p_BxV.at[:, RARE_ID].set(-jnp.inf)
        stuck_Bx1 = jnp.all(jnp.isneginf(log_p_BxV), axis=1, keepdims=True)
        log_p_BxV = jnp.where(stuck_Bx1, 0.0, log_p_BxV).at[:, RARE_ID].set(-jnp.inf)
    # Shift the largest value to 0, so that the values of likely words are close to 0. Division by a low temperature
    # would otherwise magnify the rounding errors of large values.
    log_p_BxV = (log_p_BxV - jnp.max(log_p_BxV, axis=1, keepdims=True)) / choice.temperature
    if choice.top_k is None or choice.top_k >= log_p_BxV.shape[1]:
        return _draw_columns(keys_B, _keep_nucleus(log_p_BxV, choice.top_p))
    log_p_BxK, ids_BxK = jax.lax.top_k(log_p_BxV, choice.top_k)  # ties favour lower ids
    columns_B = _draw_columns(keys_B, _keep_nucleus(log_p_BxK, choice.top_p))
    return jnp.take_along_axis(ids_BxK, columns_B[:, None], axis=1)[:, 0]


def _keep_nucleus(log_p_BxV: jax.Array, top_p: float | None) -> jax.Array:
    """Replaces the entries outside the nucleus of each row with -inf. If `top_p` is None, keeps all entries."""
    if top_p is None or top_p == 1:
        return log_p_BxV
    p_BxV = jax.nn.softmax(log_p_BxV, axis=1)
    # Non-negative floats are ordered in the same way as their bits, and XLA sorts integers four times as fast on a CPU.
    sorted_BxV = jnp.sort(p_BxV.view(jnp.uint32), axis=1, descending=True).view(jnp.float32)
    before_B = jnp.sum(jnp.cumsum(sorted_BxV, axis=1) < top_p, axis=1)  # entries before the one that completes top_p
    last_Bx1 = jnp.minimum(before_B, p_BxV.shape[1] - 1)[:, None]
    return jnp.where(p_BxV >= jnp.take_along_axis(sorted_BxV, last_Bx1, axis=1), log_p_BxV, -jnp.inf)


def _draw_columns(keys_B: jax.Array, log_p_BxV: jax.Array) -> jax.Array:
    """Samples a column of each row. Returns int32, B."""
    # With replace=True, JAX would use an argmax, and XLA would fuse random number generation into this argmax, which
    # halves the speed on a CPU.
    draw_row = functools.partial(jax.random.categorical, shape=(1,), replace=False)
    return jax.vmap(draw_row)(keys_B, log_p_BxV)[:, 0]


@functools.partial(jax.jit, static_argnames='choice')
def draw_word(seed: int, numbers_B: np.ndarray, position: int, log_p_BxV: jax.Array, choice: Choice) -> jax.Array:
    """Samples the next word of each sequence, with a random key derived from the seed, the sequence and the position.

    Args:
        seed: The random seed.
        numbers_B: The index of each sequence.
        position: The number of words generated before.
        log_p_BxV: log P of every possible next word, float32, nats.
        choice: The sampling options.
    """
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), numbers_B)
    keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, position)
    return draw(keys_B, log_p_BxV, choice)
