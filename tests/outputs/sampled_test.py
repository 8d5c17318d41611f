"""The losses from sampled words: against the full softmax, and against the formulas in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax.config import CorpusSettings, ModelSettings, OptimizerSettings, OutputSettings, Settings, TrainSettings
from nplm_jax.models import nplm
from nplm_jax.outputs import blockwise, sampled
from nplm_jax.training import loop, objective

V, B = 211, 9


def problem(widths=(7, 12), seed=0):
    random = np.random.default_rng(seed)
    parts = tuple((jnp.asarray(random.normal(size=(V, d)) * d**-0.5, jnp.float32),) for d in widths)
    parts = tuple((w, jnp.asarray(random.normal(size=(B, w.shape[1])), jnp.float32)) for (w,) in parts)
    log_q_V = sampled.log_uniform(V)
    return parts, jnp.asarray(log_q_V, jnp.float32), jnp.asarray(random.integers(0, V, B), jnp.int32), log_q_V


def loss(kind, samples_S, log_inclusion_prob_V, parts, b_V, targets_B):
    own_Bx1 = targets_B[:, None]
    y_target_B = blockwise.own_scores(b_V[own_Bx1], *((w[own_Bx1], x) for w, x in parts))[:, 0]
    of_samples = tuple((w[samples_S], x) for w, x in parts)
    return sampled.losses(kind, of_samples, b_V[samples_S], y_target_B, targets_B, samples_S, log_inclusion_prob_V)


@pytest.mark.parametrize('samples', [1, 20, 100, 210, V])
def test_a_draw_is_of_distinct_words_each_with_its_chance(samples):
    noise = sampled.make_noise(sampled.log_uniform(V), samples)
    keys = jax.random.split(jax.random.key(0), 4000)
    draws_NxS = np.asarray(jax.vmap(lambda key: sampled.draw(key, noise, samples))(keys))
    assert all(len(set(draw)) == samples for draw in draws_NxS[:100].tolist())
    chance_V = np.exp(np.asarray(noise.log_inclusion_prob_V, np.float64))
    assert chance_V.max() <= 1 + 1e-6 and chance_V.sum() == pytest.approx(samples, rel=1e-5)
    np.testing.assert_allclose(np.bincount(draws_NxS.reshape(-1), minlength=V) / 4000, chance_V, atol=0.04)
    likely_V = np.exp(sampled.log_uniform(V))
    uncertain = chance_V < 0.999
    ratio = chance_V[uncertain] / likely_V[uncertain]
    np.testing.assert_allclose(ratio, ratio[0] if len(ratio) else 0, rtol=1e-4)


def test_the_proposals_are_distributions():
    assert np.exp(sampled.log_uniform(V)).sum() == pytest.approx(1)
    assert (np.diff(sampled.log_uniform(V)) < 0).all()


def test_words_of_no_probability_are_never_drawn():
    log_q_V = np.where(np.arange(V) % 2 == 0, 0.0, -np.inf)
    noise = sampled.make_noise(log_q_V, 50)
    for key in jax.random.split(jax.random.key(0), 20):
        assert not (np.asarray(sampled.draw(key, noise, 50)) % 2).any()


def test_with_every_word_a_sample_it_is_the_full_softmax():
    parts, b_V, targets_B, log_q_V = problem()
    noise = sampled.make_noise(log_q_V, V)
    samples_S = sampled.draw(jax.random.key(1), noise, V)
    with_grad = jax.value_and_grad(
        lambda p, b: loss('sampled', samples_S, noise.log_inclusion_prob_V, p, b, targets_B)[0], (0, 1)
    )
    full = jax.value_and_grad(lambda p, b: blockwise.mean_nll(p, b, targets_B, 'float32', 4), (0, 1))
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6),
        with_grad(parts, b_V),
        full(parts, b_V),
    )


def test_the_normaliser_is_without_bias_and_the_gradient_nears_the_full_one():
    parts, b_V, targets_B, log_q_V = problem()
    exact = jax.grad(lambda p: blockwise.mean_nll(p, b_V, targets_B, 'float32', 4))(parts)
    keys = jax.random.split(jax.random.key(0), 2000)
    distance = []
    for samples in (10, 50, 150):
        noise = sampled.make_noise(log_q_V, samples)

        def one(key, parts, noise=noise, samples=samples):
            return loss(
                'sampled', sampled.draw(key, noise, samples), noise.log_inclusion_prob_V, parts, b_V, targets_B
            )[0]

        gradients = jax.vmap(jax.grad(one, 1), (0, None))(keys, parts)
        off = jax.tree.map(lambda g, e: jnp.abs(g.mean(0) - e).max() / jnp.abs(e).max(), gradients, exact)
        distance.append(max(jax.tree.leaves(off)))
    assert distance[2] < distance[1] < distance[0] and distance[2] < 0.02

    def ratio(key):  # Z of the samples to Z of all words, for the first example
        samples_S = sampled.draw(key, noise, 150)
        y_V = blockwise.scores(b_V, *parts)[:, 0]
        drawn = jnp.exp(y_V[samples_S] - noise.log_inclusion_prob_V[samples_S])
        return jnp.sum(drawn) / jnp.sum(jnp.exp(y_V))

    ratios = np.asarray(jax.vmap(ratio)(keys))
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / 2000**0.5


def test_nce_equals_the_formula_in_float64():
    parts, b_V, targets_B, log_q_V = problem()
    noise = sampled.make_noise(log_q_V, 30)
    samples_S = sampled.draw(jax.random.key(2), noise, 30).at[3].set(targets_B[0])  # a target among the samples
    y_BxV = sum(np.float64(x) @ np.float64(w).T for w, x in parts) + np.float64(b_V)
    odds_BxV = np.exp(y_BxV) / np.exp(np.float64(noise.log_inclusion_prob_V))
    expected = 0.0
    for i, target in enumerate(np.asarray(targets_B)):
        expected -= np.log(odds_BxV[i, target] / (1 + odds_BxV[i, target]))
        for word in np.asarray(samples_S):
            expected -= np.log(1 / (1 + odds_BxV[i, word]))
    found, estimate = loss('nce', samples_S, noise.log_inclusion_prob_V, parts, b_V, targets_B)
    assert float(found) == pytest.approx(expected / B, rel=1e-6)
    assert float(estimate) == float(loss('sampled', samples_S, noise.log_inclusion_prob_V, parts, b_V, targets_B)[1])


def test_nce_is_least_where_the_scores_are_the_true_log_probabilities():
    """With all words drawn: one context whose words have known probabilities, learned without a normaliser."""
    true_V = np.exp(sampled.log_uniform(V))
    noise = sampled.make_noise(np.zeros(V), V // 2)
    log_inclusion_prob_V = noise.log_inclusion_prob_V

    def expected(y_V):  # over targets and draws
        told = jnp.asarray(true_V, jnp.float32) * jax.nn.softplus(log_inclusion_prob_V - y_V)
        return jnp.sum(told + jnp.exp(log_inclusion_prob_V) * jax.nn.softplus(y_V - log_inclusion_prob_V))

    gradient = jax.grad(expected)(jnp.asarray(np.log(true_V), jnp.float32))
    assert float(jnp.abs(gradient).max()) < 1e-6


def test_softplus():
    x = jnp.asarray([-1e4, -20.0, -1.0, 0.0, 1.0, 20.0, 1e4])
    np.testing.assert_allclose(sampled._softplus(x), jax.nn.softplus(x), rtol=1e-5, atol=1e-7)
    slope = jax.vmap(jax.grad(sampled._softplus))(x)
    np.testing.assert_allclose(slope, jax.nn.sigmoid(x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('n,m,h,direct', [(4, 3, 5, True), (3, 7, 0, True)])
def test_updates_with_every_word_a_sample_are_those_of_the_full_loss(n, m, h, direct):
    """Rows that a batch touches several times, too; decay, once a dispatch, is all but what it is at each step."""
    tokens_T = jnp.asarray(np.random.default_rng(2).integers(0, 23, 200), jnp.int32)
    order_T = jnp.asarray(np.random.default_rng(3).permutation(200), jnp.int32)

    def end(kind, decay):
        settings = Settings(
            'x', CorpusSettings('sentences'), ModelSettings(n, m, h, direct),
            OptimizerSettings('sgd', 0.5, decay=decay), TrainSettings(batch_size=16),
            output=OutputSettings(kind, samples=23),
        )  # fmt: skip
        noise = sampled.make_noise(np.zeros(23), 23)
        state = loop.init_state(settings, 23, None, 12)
        state, nll_S = loop.train_steps(state, tokens_T, order_T, 0, settings, 12, 12, noise)
        return np.concatenate([np.ravel(x) for x in (*jax.tree.leaves(state.params), nll_S)])

    np.testing.assert_allclose(end('sampled', 0.0), end('full', 0.0), rtol=1e-4, atol=1e-6)
    decayed = end('full', 1e-2)
    effect = np.linalg.norm(decayed - end('full', 0.0))
    assert np.linalg.norm(end('sampled', 1e-2) - decayed) < 0.15 * effect


def test_only_the_rows_of_the_batch_and_the_samples_move():
    output = OutputSettings('sampled', samples=2)
    settings = Settings(
        'x', CorpusSettings('sentences'), ModelSettings(3, 4, 5, True),
        OptimizerSettings('sgd', 0.5, decay=0.0), TrainSettings(batch_size=2), output=output,
    )  # fmt: skip
    before = nplm.init(jax.random.key(0), settings.model, V)
    contexts_BxN, targets_B = jnp.asarray([[3, 4], [4, 5]]), jnp.asarray([7, 7])
    noise = sampled.make_noise(np.zeros(V), 2)
    state = loop.init_state(settings, V, None, 9).replace(params=before)
    after = loop.train_step(state, contexts_BxN, targets_B, settings, 9, noise)[0].params

    def moved(name):
        rows = np.asarray(getattr(after, name) - getattr(before, name)).reshape(V, -1)
        return set(np.flatnonzero(np.abs(rows).max(1)).tolist())

    assert moved('C_VxM') == {3, 4, 5}
    assert 7 in moved('U_VxK') == moved('W_VxP') == moved('b_V') and len(moved('b_V')) == 3
    own_BxL, shared_S = objective.output_rows(before, targets_B, output, noise, jax.random.key(0))
    assert own_BxL.tolist() == [[7], [7]] and shared_S.shape == (2,)
