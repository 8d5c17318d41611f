"""Tests the bigram proposal: its probabilities, its samples, and the effect of added counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.paper.section5.plugins import bigram_proposal

V, T = 13, 600
TRAIN = np.minimum(np.random.default_rng(0).geometric(0.3, T) - 1, V - 2)  # the last word never occurs
EVERY_WORD = jnp.broadcast_to(jnp.arange(V), (V, V))  # after each word


def reference(train_T, num_words, kept=None):
    """Returns the float64 Q(w | v) of every pair by the definition. `kept` limits the number of stored pairs."""
    pairs = np.zeros((num_words, num_words))
    for v, w in zip(train_T[:-1], train_T[1:]):
        pairs[v, w] += 1
    once, twice = (pairs == 1).sum(), (pairs == 2).sum()
    discount = once / (once + 2 * twice)
    if kept is not None:
        order = np.argsort(-pairs[pairs > 0], kind='stable')  # the first pairs of equal count
        stored = np.zeros(len(order), bool)
        stored[order[:kept]] = True
        is_stored = np.zeros_like(pairs, bool)
        is_stored[pairs > 0] = stored
    else:
        is_stored = pairs > 0
    counts = np.where(is_stored, pairs - discount, 0)
    rest_V = np.maximum(pairs.sum(1) - counts.sum(1), discount)
    unigram_V = np.bincount(train_T, minlength=num_words) + 0.5
    counts += rest_V[:, None] * unigram_V / unigram_V.sum()
    return counts / counts.sum(1, keepdims=True)


def probabilities(proposal):
    return np.exp(np.float64(bigram_proposal.look_up(proposal, jnp.arange(V), EVERY_WORD).log_q_BxL))


def test_probabilities_are_those_of_the_definition_and_sum_to_one():
    q = probabilities(bigram_proposal.estimate(TRAIN, V))
    np.testing.assert_allclose(q, reference(TRAIN, V), rtol=1e-5)
    np.testing.assert_allclose(q.sum(1), 1, rtol=1e-6)


def test_pairs_that_the_table_has_no_room_for_are_left_to_the_unigram(monkeypatch):
    monkeypatch.setattr(bigram_proposal, 'PAIRS_PER_WORD', 2)
    proposal = bigram_proposal.estimate(TRAIN, V)
    assert len(proposal.word_G) == 4 * V
    np.testing.assert_allclose(probabilities(proposal), reference(TRAIN, V, kept=2 * V), rtol=1e-5)


def test_a_word_whose_share_is_tiny_can_still_be_drawn():
    proposal = bigram_proposal.estimate(TRAIN, V)
    added_G = jnp.zeros_like(proposal.count_G).at[proposal.first_R[:-1]].set(1e12)  # the first entry of each row
    assert (probabilities(bigram_proposal.add_counts(proposal, added_G)) > 0).all()


def test_draws_follow_the_probabilities():
    proposal, samples = bigram_proposal.estimate(TRAIN, V), 40_000
    words_VxL = np.asarray(bigram_proposal.draw(jax.random.key(3), proposal, jnp.arange(V), samples))
    for words_L, q_V in zip(words_VxL, reference(TRAIN, V)):
        observed_V = np.bincount(words_L, minlength=V)
        assert stats.chisquare(observed_V, q_V / q_V.sum() * samples).pvalue > 1e-3
    first, second = words_VxL[0, :-1], words_VxL[0, 1:]  # adjacent draws are independent
    assert abs(np.corrcoef(first == 0, second == 0)[0, 1]) < 4 * samples**-0.5


def test_added_counts_move_the_probabilities_as_in_the_definition():
    proposal = bigram_proposal.estimate(TRAIN, V)
    draws = bigram_proposal.look_up(proposal, jnp.asarray([0, 5]), jnp.asarray([[1, 12, 1], [3, 0, 12]]))
    weights_BxL = jnp.asarray([[5.0, 7.0, 2.0], [1.0, 0.0, 9.0]])
    zeros_G = jnp.zeros(len(proposal.word_G))
    added_G = bigram_proposal.expected_counts(proposal, zeros_G, jnp.asarray([0, 5]), draws, weights_BxL)
    adapted = bigram_proposal.add_counts(proposal, added_G)

    share = np.float64(draws.bigram_share_BxL) * weights_BxL
    other = np.float64(weights_BxL) - share
    first, count = np.asarray(proposal.first_R), np.float64(proposal.count_G)
    pair_counts = {(v, int(w)): 0.0 for v in range(V) for w in np.asarray(proposal.word_G)[first[v] : first[v + 1]]}
    for v in range(V):
        for entry in range(first[v], first[v + 1]):
            pair_counts[v, int(proposal.word_G[entry])] = count[entry]
    unigram_V = count[first[V] : first[V + 1]].copy()
    for b, v in enumerate((0, 5)):
        for i, w in enumerate(np.asarray(draws.word_BxL)[b]):
            if (v, int(w)) in pair_counts:
                pair_counts[v, int(w)] += share[b, i]
            pair_counts[v, V] += other[b, i]  # V represents all words that are not stored after v
            unigram_V[w] += other[b, i]
    expected = np.zeros((V, V))
    for (v, w), c in pair_counts.items():
        expected[v] += c * (np.eye(V)[w] if w < V else unigram_V / unigram_V.sum())
    np.testing.assert_allclose(probabilities(adapted), expected / expected.sum(1, keepdims=True), rtol=1e-5)
    assert float(added_G.sum()) == pytest.approx(24 + float(other.sum()), rel=1e-5)  # the unigram also counts its words


def test_counts_of_a_distribution_draw_the_proposal_towards_it():
    proposal = bigram_proposal.estimate(TRAIN, V)
    p_V = np.random.default_rng(1).dirichlet(np.ones(V))
    previous_B, added_G = jnp.arange(V), jnp.zeros(len(proposal.word_G))

    def divergence(proposal):
        return np.sum(p_V * (np.log(p_V) - np.log(probabilities(proposal))), axis=1)

    steps = [divergence(proposal)]
    for _ in range(3):
        adapted = bigram_proposal.add_counts(proposal, added_G)
        draws = bigram_proposal.look_up(adapted, previous_B, EVERY_WORD)
        weights = 200 * jnp.broadcast_to(p_V, (V, V))
        added_G = bigram_proposal.expected_counts(adapted, added_G, previous_B, draws, weights)
        steps.append(divergence(bigram_proposal.add_counts(proposal, added_G)))
    assert all((after < before).all() for before, after in zip(steps, steps[1:]))


def test_sums_that_wrap_around_lose_nothing():
    """The total of the rows is many times 2**32 units."""
    tokens_T = np.random.default_rng(0).integers(0, 211, 5000)
    proposal = bigram_proposal.estimate(tokens_T, 211)
    assert np.diff(np.asarray(proposal.edge_G).astype(np.int64)).min() < 0  # at least one sum has wrapped around
    draws = bigram_proposal.look_up(proposal, jnp.arange(211), jnp.broadcast_to(jnp.arange(211), (211, 211)))
    np.testing.assert_allclose(np.exp(np.float64(draws.log_q_BxL)), reference(tokens_T, 211), rtol=1e-5)
