"""Compares the sampled losses with the full softmax loss and with a float64 implementation of the formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sampled_problem import V, full_loss, loss, problem

from nplm_jax.outputs import sampled


@pytest.mark.parametrize('samples', [1, 20, 100, 210, V])
def test_a_draw_is_of_distinct_words_each_with_its_inclusion_probability(samples):
    proposal = sampled.inclusion_distribution(sampled.log_uniform(V), samples)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws_NxS = np.asarray(jax.jit(jax.vmap(lambda key: sampled.draw(key, proposal, samples)))(keys))
    assert all(len(set(draw)) == samples for draw in draws_NxS[:100].tolist())
    inclusion_prob_V = np.exp(np.asarray(proposal.log_inclusion_prob_V, np.float64))
    assert inclusion_prob_V.max() <= 1 + 1e-6 and inclusion_prob_V.sum() == pytest.approx(samples, rel=1e-5)
    frequencies_V = np.bincount(draws_NxS.reshape(-1), minlength=V) / 4000
    np.testing.assert_allclose(frequencies_V, inclusion_prob_V, atol=0.04)
    uncertain = inclusion_prob_V < 0.999
    ratio = inclusion_prob_V[uncertain] / np.exp(sampled.log_uniform(V))[uncertain]
    np.testing.assert_allclose(ratio, ratio[0] if len(ratio) else 0, rtol=1e-4)


def test_the_log_uniform_proposal_is_a_distribution_by_falling_frequency():
    assert np.exp(sampled.log_uniform(V)).sum() == pytest.approx(1)
    assert (np.diff(sampled.log_uniform(V)) < 0).all()


def test_a_layer_draws_by_the_proposal_that_its_settings_name():
    words_T = np.minimum(np.random.default_rng(0).geometric(0.02, 5000), V - 1)
    log_q_V = np.log((np.bincount(words_T, minlength=V) + 0.5) / (5000 + V / 2)).astype(np.float32)
    by_name = {
        name: sampled.SampledSoftmax(samples=20, proposal=name, precision='float32').make_extras(words_T, V)
        for name in ('unigram', 'log_uniform')
    }
    for name, expected in (('unigram', log_q_V), ('log_uniform', sampled.log_uniform(V))):
        np.testing.assert_array_equal(
            by_name[name].cumulative_V, sampled.inclusion_distribution(expected, 20).cumulative_V
        )


def test_words_of_no_probability_are_never_drawn():
    proposal = sampled.inclusion_distribution(np.where(np.arange(V) % 2 == 0, 0.0, -np.inf), 50)
    for key in jax.random.split(jax.random.key(0), 20):
        assert not (np.asarray(sampled.draw(key, proposal, 50)) % 2).any()


def test_with_every_word_a_sample_it_is_the_full_softmax():
    terms, b_V, targets_B, log_q_V = problem()
    proposal = sampled.inclusion_distribution(log_q_V, V)
    samples_S = sampled.draw(jax.random.key(1), proposal, V)

    def sampled_loss(terms, b_V):
        return loss('sampled', samples_S, proposal.log_inclusion_prob_V, terms, b_V, targets_B)[0]

    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6),
        jax.jit(jax.value_and_grad(sampled_loss, (0, 1)))(terms, b_V),
        jax.jit(jax.value_and_grad(full_loss, (0, 1)))(terms, b_V, targets_B),
    )


def test_nce_is_least_where_the_scores_are_the_true_log_probabilities():
    """The test draws all words and learns the known probabilities of one context without a normalizer."""
    true_V = np.exp(sampled.log_uniform(V))
    log_inclusion_prob_V = sampled.inclusion_distribution(np.zeros(V), V // 2).log_inclusion_prob_V

    def expected_loss(y_V):  # over targets and draws
        of_targets_V = jnp.asarray(true_V, jnp.float32) * jax.nn.softplus(log_inclusion_prob_V - y_V)
        return jnp.sum(of_targets_V + jnp.exp(log_inclusion_prob_V) * jax.nn.softplus(y_V - log_inclusion_prob_V))

    gradient = jax.grad(expected_loss)(jnp.asarray(np.log(true_V), jnp.float32))
    assert float(jnp.abs(gradient).max()) < 1e-6


def test_softplus_and_its_slope_equal_jaxs():
    x = jnp.asarray([-1e4, -20.0, -1.0, 0.0, 1.0, 20.0, 1e4])
    np.testing.assert_allclose(sampled._softplus(x), jax.nn.softplus(x), rtol=1e-5, atol=1e-7)
    slope = jax.vmap(jax.grad(sampled._softplus))(x)
    np.testing.assert_allclose(slope, jax.nn.sigmoid(x), rtol=1e-5, atol=1e-7)
