"""A sampling distribution of the next word given the previous word: a bigram interpolated with the unigram.

Q(w | v) = [c(v, w) + c(v, REST) c(w) / c(all words)] / c(v), where c(v) is the sum of c(v, REST) and of c(v, w) over
the stored words w. The initial c use absolute discounting: c(v, w) is the number of times that w follows v, minus d,
and c(v, REST) is the sum of the discounts. All c form a single table. Its rows are sampled by their cumulative sums, so
that training can change the counts (`expected_counts`). Memory is O(V), regardless of the corpus.

Dims: V vocabulary, B batch, L words of each example, G entries of the table, R = V + 1 rows, T training words.

References:
    Ney, Essen and Kneser, On structuring probabilistic dependences in stochastic language modelling, 1994 (d).
"""

import dataclasses
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

PAIRS_PER_WORD = 24  # maximum number of stored pairs (v, w), as a multiple of V; the most frequent ones are kept
_UNITS = 2.0**30  # number of units in a row; sampling is exact in integers
_SMOOTHING = 0.5  # number added to the count of each word


@flax.struct.dataclass
class BigramProposal:
    """The table. Row v has the words seen after v, in the order of their ids, followed by REST, whose id is V.

    Row V has the counts of all words. Entries after it are padding.

    Attributes:
        first_R: The first entry of each row, and the end of the last row, int32, R + 1.
        row_G: The row of each entry, int32. R for padding.
        word_G: The word of each entry, int32.
        count_G: c before training, float32.
        edge_G: Cumulative sums of c in units of about 2**-30 of its row, from 0, uint32 modulo 2**32, G + 1.
        num_halvings: Steps of a binary search in the longest row.
    """

    first_R: jax.Array
    row_G: jax.Array
    word_G: jax.Array
    count_G: jax.Array
    edge_G: jax.Array
    num_halvings: int = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class Draws:
    """Words for each example, with their probabilities.

    Attributes:
        word_BxL: The ids of the words, int32.
        log_q_BxL: log Q(w | v), float32, nats.
        entry_BxL: The entry of (v, w), int32, or G if the pair is not stored.
        bigram_share_BxL: The part of Q(w | v) that comes from that entry, float32.
    """

    word_BxL: jax.Array
    log_q_BxL: jax.Array
    entry_BxL: jax.Array
    bigram_share_BxL: jax.Array


def num_entries(vocabulary_size: int) -> int:
    """Returns the number of entries of the table, G."""
    return (PAIRS_PER_WORD + 2) * vocabulary_size


def estimate(train_T: np.ndarray, vocabulary_size: int) -> BigramProposal:
    """Counts the pairs of training words on the host.

    Args:
        train_T: The training words in reading order, int.
        vocabulary_size: The size of the vocabulary, V.
    """
    V, words_T = vocabulary_size, np.asarray(train_T, np.int64)
    keys, counts = np.unique(words_T[:-1] * V + words_T[1:], return_counts=True)
    once, twice = np.sum(counts == 1), np.sum(counts == 2)
    discount = once / (once + 2 * twice) if twice else 0.5
    kept = np.sort(np.argsort(-counts, kind='stable')[: PAIRS_PER_WORD * V])
    totals_V = np.bincount(keys // V, counts, V)
    keys, counts = keys[kept], counts[kept] - discount
    rest_V = np.maximum(totals_V - np.bincount(keys // V, counts, V), discount)
    unigram_V = np.bincount(words_T, minlength=V) + _SMOOTHING
    row = np.concatenate([keys // V, np.arange(V), np.full(V, V)])
    word = np.concatenate([keys % V, np.full(V, V), np.arange(V)])
    order = np.lexsort((word, row))
    padding = (0, num_entries(V) - len(row))
    count_G = np.pad(np.concatenate([counts, rest_V, unigram_V])[order], padding)
    row_G = np.pad(row[order], padding, constant_values=V + 1)
    first_R = np.searchsorted(row_G, np.arange(V + 2))
    proposal = BigramProposal(
        jnp.asarray(first_R, jnp.int32),
        jnp.asarray(row_G, jnp.int32),
        jnp.asarray(np.pad(word[order], padding), jnp.int32),
        jnp.asarray(count_G, jnp.float32),
        jnp.zeros(num_entries(V) + 1, jnp.uint32),
        int(np.diff(first_R).max()).bit_length(),
    )
    return add_counts(proposal, jnp.zeros(num_entries(V)))


@jax.jit
def add_counts(proposal: BigramProposal, added_G: jax.Array) -> BigramProposal:
    """Returns the distribution after adding `added_G` to the initial counts."""
    count_G, num_rows = proposal.count_G + added_G, len(proposal.first_R) - 1
    total_R = jax.ops.segment_sum(count_G, proposal.row_G, num_rows, indices_are_sorted=True)
    units_G = jnp.maximum(count_G * (_UNITS / total_R)[jnp.minimum(proposal.row_G, num_rows - 1)], 1)
    edge_G = jnp.pad(
        jnp.cumsum(units_G.astype(jnp.uint32)), (1, 0)
    )  # sums may wrap around; differences within a row do not
    return dataclasses.replace(proposal, edge_G=edge_G)


def draw(key: jax.Array, proposal: BigramProposal, previous_B: jax.Array, num_samples: int) -> jax.Array:
    """Draws L words for each example from Q(. | previous word), with replacement. Returns int32 ids, B x L."""
    V = len(proposal.first_R) - 2
    key_bigram, key_unigram = jax.random.split(key)
    rows_BxL = jnp.broadcast_to(previous_B[:, None], (len(previous_B), num_samples))
    word_BxL = proposal.word_G[_draw_entries(key_bigram, proposal, rows_BxL)]
    other_BxL = proposal.word_G[_draw_entries(key_unigram, proposal, jnp.full_like(rows_BxL, V))]
    return jnp.where(word_BxL == V, other_BxL, word_BxL)


def look_up(proposal: BigramProposal, previous_B: jax.Array, words_BxL: jax.Array) -> Draws:
    """Returns Q(w | previous word) of the words of each example, with its components."""
    V, edge_G = len(proposal.first_R) - 2, proposal.edge_G
    first_Bx1, rest_Bx1 = proposal.first_R[previous_B[:, None]], proposal.first_R[previous_B[:, None] + 1] - 1
    first_BxL, rest_BxL = (jnp.broadcast_to(x, words_BxL.shape) for x in (first_Bx1, rest_Bx1))
    entry_BxL = _search(lambda entry: proposal.word_G[entry] < words_BxL, first_BxL, rest_BxL, proposal.num_halvings)
    is_stored_BxL = proposal.word_G[entry_BxL] == words_BxL

    def units(first: jax.Array, end: jax.Array) -> jax.Array:
        return (edge_G[end] - edge_G[first]).astype(jnp.float32)

    unigram_BxL = proposal.first_R[V] + words_BxL
    share_BxL = units(unigram_BxL, unigram_BxL + 1) / units(*proposal.first_R[V:])
    bigram_BxL = jnp.where(is_stored_BxL, units(entry_BxL, entry_BxL + 1), 0)
    total_BxL = bigram_BxL + units(rest_Bx1, rest_Bx1 + 1) * share_BxL
    return Draws(
        word_BxL=words_BxL,
        log_q_BxL=jnp.log(total_BxL / units(first_Bx1, rest_Bx1 + 1)),
        entry_BxL=jnp.where(is_stored_BxL, entry_BxL, len(proposal.word_G)),
        bigram_share_BxL=bigram_BxL / total_BxL,
    )


def expected_counts(
    proposal: BigramProposal, added_G: jax.Array, previous_B: jax.Array, draws: Draws, weights_BxL: jax.Array
) -> jax.Array:
    """Adds weighted words to the counts: an expectation step of EM for the mixture of bigram and unigram.

    Args:
        proposal: The table.
        added_G: The counts added so far.
        previous_B: The previous words.
        draws: Words that may follow the previous words.
        weights_BxL: The weight of each word. If the weights are (estimates of) P(w | context), Q moves towards P.

    Returns:
        The new `added_G`.
    """
    V = len(proposal.first_R) - 2
    bigram_BxL = weights_BxL * draws.bigram_share_BxL
    unigram_BxL = weights_BxL - bigram_BxL
    rest_B = proposal.first_R[previous_B + 1] - 1
    entries = jnp.concatenate([draws.entry_BxL.ravel(), rest_B, (proposal.first_R[V] + draws.word_BxL).ravel()])
    counts = jnp.concatenate([bigram_BxL.ravel(), unigram_BxL.sum(axis=1), unigram_BxL.ravel()])
    return added_G.at[entries].add(counts, mode='drop')


def _draw_entries(key: jax.Array, proposal: BigramProposal, rows_BxL: jax.Array) -> jax.Array:
    """Draws an entry of each row by binary search in the cumulative sums."""
    first_BxL, end_BxL = proposal.first_R[rows_BxL], proposal.first_R[rows_BxL + 1]
    start_BxL = proposal.edge_G[first_BxL]
    total_BxL = (proposal.edge_G[end_BxL] - start_BxL).astype(jnp.int32)
    point_BxL = jax.random.randint(key, rows_BxL.shape, 0, total_BxL).astype(jnp.uint32)
    is_before = lambda entry: proposal.edge_G[entry + 1] - start_BxL <= point_BxL  # noqa: E731
    return _search(is_before, first_BxL, end_BxL - 1, proposal.num_halvings)


def _search(
    is_before: Callable[[jax.Array], jax.Array], first: jax.Array, last: jax.Array, num_halvings: int
) -> jax.Array:
    """Returns the first entry from `first` on for which `is_before` is false, or `last` if there is none."""

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, last = bounds
        middle = (first + last) // 2
        goes_right = (first < last) & is_before(middle)
        return jnp.where(goes_right, middle + 1, first), jnp.where(goes_right, last, middle)

    return jax.lax.fori_loop(0, num_halvings, halve, (first, last))[0]
