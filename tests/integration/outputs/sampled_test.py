"""Compares the sampled losses with the full softmax loss and with a float64 implementation of the formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IMPORTANCE, make_batch, others_nightly, small_settings, start_training
from sampled_problem import B, V, full_loss, loss, problem
from softmax_reference import named

from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.outputs import sampled, softmax
from nplm_jax.runs import experiment
from nplm_jax.training import step


def test_every_word_of_a_probability_can_be_drawn_so_that_each_target_has_a_gradient():
    log_q_V = np.full(50, -40.0)  # 40 words with probability 1e-17, which is rounded to zero, between the others
    log_q_V[::5] = np.log(np.arange(1, 11))
    proposal = sampled.inclusion_distribution(log_q_V, 4)
    log_p_V = np.asarray(proposal.log_inclusion_prob_V, np.float64)
    assert np.isfinite(log_p_V).all() and log_p_V.max() <= 0
    assert np.exp(log_p_V).sum() == pytest.approx(4, rel=1e-6)
    np.testing.assert_allclose(np.exp(log_p_V[::5]), 4 * np.arange(1, 11) / 55, rtol=1e-5)
    terms = ((jnp.ones((50, 3)), jnp.ones((1, 3))),)
    arguments = jnp.arange(4), proposal.log_inclusion_prob_V, terms
    gradient_V = jax.grad(lambda b_V: loss('nce', *arguments, b_V, jnp.array([49]))[0])(jnp.full(50, -40.0))
    assert float(gradient_V[49]) < -0.1


def test_the_normaliser_is_without_bias_and_the_gradient_nears_the_full_one():
    terms, b_V, targets_B, log_q_V = problem()
    exact = jax.jit(jax.grad(full_loss))(terms, b_V, targets_B)
    keys = jax.random.split(jax.random.key(0), 2000)
    distance = []
    for samples in (10, 50, 150):
        proposal = sampled.inclusion_distribution(log_q_V, samples)

        def loss_of_draw(key, terms, proposal=proposal, samples=samples):
            samples_S = sampled.draw(key, proposal, samples)
            return loss('sampled', samples_S, proposal.log_inclusion_prob_V, terms, b_V, targets_B)[0]

        grads = jax.jit(jax.vmap(jax.grad(loss_of_draw, 1), (0, None)))(keys, terms)
        off = jax.tree.map(lambda g, e: jnp.abs(g.mean(0) - e).max() / jnp.abs(e).max(), grads, exact)
        distance.append(max(jax.tree.leaves(off)))
    assert distance[2] < distance[1] < distance[0] and distance[2] < 0.02

    def ratio(key):  # ratio of Z from the samples to Z of all words, for the first example
        samples_S = sampled.draw(key, proposal, 150)
        y_V = softmax.scores(*named(terms, b_V))[:, 0]
        drawn = jnp.exp(y_V[samples_S] - proposal.log_inclusion_prob_V[samples_S])
        return jnp.sum(drawn) / jnp.sum(jnp.exp(y_V))

    ratios = np.asarray(jax.jit(jax.vmap(ratio))(keys))
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / 2000**0.5


def test_nce_equals_the_formula_in_float64():
    terms, b_V, targets_B, log_q_V = problem()
    proposal = sampled.inclusion_distribution(log_q_V, 30)
    samples_S = sampled.draw(jax.random.key(2), proposal, 30).at[3].set(targets_B[0])  # a target among the samples
    y_BxV = sum(np.float64(x) @ np.float64(w).T for w, x in terms) + np.float64(b_V)
    odds_BxV = np.exp(y_BxV) / np.exp(np.float64(proposal.log_inclusion_prob_V))
    expected = 0.0
    for i, target in enumerate(np.asarray(targets_B)):
        expected -= np.log(odds_BxV[i, target] / (1 + odds_BxV[i, target]))
        for word in np.asarray(samples_S):
            expected -= np.log(1 / (1 + odds_BxV[i, word]))
    arguments = samples_S, proposal.log_inclusion_prob_V, terms, b_V, targets_B
    nce_loss, estimate = loss('nce', *arguments)
    assert float(nce_loss) == pytest.approx(expected / B, rel=1e-6)
    assert float(estimate) == float(loss('sampled', *arguments)[1])


@pytest.mark.parametrize('n,m,h,direct', [(4, 3, 5, True), (3, 7, 0, True)])
def test_updates_with_every_word_a_sample_are_those_of_the_full_loss(n, m, h, direct):
    """This includes rows that a batch reads several times. Decay once per chunk nearly equals decay at each step."""
    tokens_T = jnp.asarray(np.random.default_rng(2).integers(0, 23, 200), jnp.int32)
    positions_T = jnp.asarray(np.random.default_rng(3).permutation(200)[:192], jnp.int32)
    model = {'model.n': n, 'model.m': m, 'model.h': h, 'model.direct': direct, 'model.dropout': 0.0}
    changes = {**model, 'train.batch_size': 16, 'train.epochs': 1, 'output.samples': 23}

    def end(kind, decay):
        settings = small_settings({**changes, 'output.kind': kind, 'optimizer.decay': decay})
        program, state, inputs = start_training(settings, 23, 12)
        assert program.scatters_updates == (kind == 'sampled')
        inputs = inputs.replace(tokens_T=tokens_T, extras=program.network.output.make_extras(np.arange(23), 23))
        state, nll_S = step.execute_steps(program, state, positions_T, 0, 12, inputs)
        return np.concatenate([np.ravel(x) for x in (*jax.tree.leaves(state.params), nll_S)])

    np.testing.assert_allclose(end('sampled', 0.0), end('full', 0.0), rtol=1e-4, atol=1e-6)
    decayed = end('full', 1e-2)
    effect = np.linalg.norm(decayed - end('full', 0.0))
    assert np.linalg.norm(end('sampled', 1e-2) - decayed) < 0.15 * effect


def test_only_the_rows_of_the_batch_and_the_samples_move():
    model = {'model.n': 3, 'model.m': 4, 'model.dropout': 0.0, 'optimizer.decay': 0.0}
    settings = small_settings({**model, 'output.kind': 'sampled', 'output.samples': 2, 'train.batch_size': 2})
    program, before, _ = start_training(settings, V, 9)
    output = program.network.output
    batch = make_batch(jnp.asarray([[3, 4], [4, 5]]), jnp.asarray([7, 7]), output.make_extras(np.arange(V), V))
    train_step = jax.jit(step.train_step, static_argnames='program')
    after, _ = train_step(program, before, batch)

    def moved(name):
        rows = np.asarray(after.params[name] - before.params[name]).reshape(V, -1)
        return set(np.flatnonzero(np.abs(rows).max(1)).tolist())

    assert moved('C_VxM') == {3, 4, 5}
    assert 7 in moved('U_VxK') == moved('W_VxP') == moved('b_V') and len(moved('b_V')) == 3
    rows = output.rows(batch, jax.random.key(0))
    assert rows.examples_BxL.tolist() == [[7], [7]] and rows.shared_S.shape == (2,)


@pytest.mark.parametrize('kind', others_nightly(['sampled', 'nce', IMPORTANCE], ('nce',)))
def test_a_vocabulary_smaller_than_the_samples_is_trained_on_and_the_results_say_how_many_were_drawn(
    kind, tmp_path, lines
):
    config = config_lib.override(sentences.get_config(), {'output.kind': kind, 'train.epochs': 2})
    results = experiment.run(config, tmp_path / 'run')
    said, note = lines()[0], 'output.samples=1000: lowered to 10 to fit the vocabulary'
    if ':' in kind:  # samples are drawn with replacement, so any number is possible
        assert 'lowered' not in results and note not in said
    else:
        assert results['lowered'] == {'output.samples': 10} and said.count(note) == 1
        assert experiment.load(tmp_path / 'run').model.network.output.samples == 10
