"""Tests importance sampling with one proposal per context: estimate, effective sample size and training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, IMPORTANCE, features_of, make_batch, same_bits, small_settings, train, train_in_parts
from softmax_reference import named

from experiments.paper.section5.plugins import bigram_proposal, importance
from experiments.paper.section5.plugins.importance import ImportanceSampling
from nplm_jax.data import batches
from nplm_jax.outputs import softmax
from nplm_jax.outputs.output_layer import View, view_rows
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step
from nplm_jax.training.checkpoints import CheckpointStore

V, B = 31, 7
TRAIN = np.minimum(np.random.default_rng(0).geometric(0.2, 900) - 1, V - 1)
SETTINGS = {
    'output.kind': IMPORTANCE,
    'output.samples': 8,
}


def problem(widths=(5, 11)):
    """Returns the terms of y, b, contexts and targets. Some targets are likely after the last context word."""
    random = np.random.default_rng(1)
    terms = tuple(
        (jnp.asarray(random.normal(size=(V, d)) * d**-0.5, jnp.float32), jnp.asarray(random.normal(size=(B, d)), 'f4'))
        for d in widths
    )
    b_V = jnp.asarray(np.log(np.bincount(TRAIN, minlength=V) + 1), jnp.float32)
    contexts_BxN, targets_B = batches.examples(TRAIN.astype(np.int32), jnp.arange(100, 100 + B), 3)
    return terms, b_V, contexts_BxN, targets_B


def estimated(layer, rows, terms, b_V, targets_B):
    """Returns the loss that the layer computes from gathered rows."""
    params, features = named(terms, b_V)
    return layer.loss(view_rows(params, params, rows), features, make_batch(targets_B, targets_B))[0]


def draw(layer, contexts_BxN, targets_B, seed):
    """Returns the rows that a batch reads, and the proposal."""
    proposal = layer.make_extras(TRAIN, V)
    return jax.jit(layer.rows)(make_batch(contexts_BxN, targets_B, proposal), jax.random.key(seed)), proposal


def exact(terms, b_V, targets_B):
    return softmax.cross_entropy(softmax.scores(*named(terms, b_V)), targets_B).mean()


@pytest.mark.parametrize('exact_target', [True, False])
def test_the_loss_and_its_gradient_equal_the_formula_in_float64(exact_target):
    terms, b_V, contexts_BxN, targets_B = problem()
    layer = ImportanceSampling(samples=12, exact_target=exact_target, adaptation=0.0)
    rows, proposal = draw(layer, contexts_BxN, targets_B, 0)
    words_BxL = np.asarray(rows[0])
    np.testing.assert_array_equal(words_BxL[:, 0], targets_B)
    assert words_BxL.shape == (B, 13) and any(target in draws for target, *draws in words_BxL.tolist())
    q_BxV = np.exp(np.float64(jax.jit(bigram_proposal.look_up)(proposal, contexts_BxN[:, -1], words_of(B)).log_q_BxL))
    y_BxV = sum(np.float64(x) @ np.float64(w).T for w, x in terms) + np.float64(b_V)
    loss, gradient_BxV = 0.0, np.zeros((B, V))
    for i, (target, *samples) in enumerate(words_BxL.tolist()):
        term_V = np.zeros(V)  # of the normalizer
        for word in samples:
            term_V[word] += np.exp(y_BxV[i, word]) / q_BxV[i, word] / 12
        if exact_target:
            term_V[target] = np.exp(y_BxV[i, target])
        loss += (np.log(term_V.sum()) - y_BxV[i, target]) / B
        gradient_BxV[i] = (term_V / term_V.sum() - np.eye(V)[target]) / B
    loss_and_gradients = jax.jit(jax.value_and_grad(lambda *a: estimated(layer, rows, *a, targets_B), (0, 1)))
    value, grads = loss_and_gradients(terms, b_V)
    assert float(value) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(grads[1], gradient_BxV.sum(0), atol=1e-6)
    for (dw, dx), (w, x) in zip(grads[0], terms):
        np.testing.assert_allclose(dw, gradient_BxV.T @ np.float64(x), atol=1e-6)
        np.testing.assert_allclose(dx, gradient_BxV @ np.float64(w), atol=1e-6)


def words_of(batch):
    return jnp.broadcast_to(jnp.arange(V), (batch, V))


@pytest.mark.parametrize('exact_target', [True, False])
def test_the_gradient_of_many_samples_is_the_exact_one(exact_target):
    terms, b_V, contexts_BxN, targets_B = problem()
    expected = jax.tree.leaves(jax.jit(jax.grad(exact, (0, 1)))(terms, b_V, targets_B))
    distances = []
    for samples in (20, 2_000, 200_000):
        layer = ImportanceSampling(samples=samples, exact_target=exact_target, adaptation=0.0)
        rows, _ = draw(layer, contexts_BxN, targets_B, 4)
        gradients = jax.jit(jax.grad(lambda rows, *a: estimated(layer, rows, *a, targets_B), (1, 2)))  # noqa: B023
        grads = jax.tree.leaves(gradients(rows, terms, b_V))
        scale = max(float(jnp.abs(e).max()) for e in expected)
        distances.append(max(float(jnp.abs(g - e).max()) for g, e in zip(grads, expected)) / scale)
    assert distances[2] < distances[1] < distances[0] and distances[2] < 5e-3


def test_the_normaliser_is_without_bias_and_a_proposal_of_the_networks_own_has_the_largest_sample_size():
    """With Q = P, all weights are equal."""
    np.testing.assert_allclose(importance.effective_sample_size(jnp.full((2, 6), 0.3)), [6, 6], rtol=1e-6)
    terms, b_V, contexts_BxN, targets_B = problem()
    layer = ImportanceSampling(samples=9, exact_target=True, adaptation=0.0)
    proposal = layer.make_extras(TRAIN, V)
    y_VxB = softmax.scores(*named(terms, b_V))

    def ratio(key):  # ratio of the estimated to the exact normalizer, from the loss log Z - y
        rows = layer.rows(make_batch(contexts_BxN, targets_B, proposal), key)
        single = [
            estimated(
                layer,
                jax.tree.map(lambda x: x[i : i + 1] if len(x) else x, rows),  # noqa: B023
                tuple((w, x[i : i + 1]) for w, x in terms),
                b_V,
                targets_B[i : i + 1],
            )
            for i in range(2)
        ]
        exact_B = softmax.cross_entropy(y_VxB, targets_B)[:2]
        return jnp.exp(jnp.stack(single) - exact_B)

    ratios = np.asarray(jax.jit(jax.vmap(ratio))(jax.random.split(jax.random.key(0), 4000)))
    assert (np.abs(ratios.mean(0) - 1) < 4 * ratios.std(0) / 4000**0.5).all()


def test_effective_sample_size_by_hand():
    weights = jnp.asarray([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1]])
    np.testing.assert_allclose(importance.effective_sample_size(weights), [2, 1, 0, 1 / 0.3], rtol=1e-6)


def test_the_weights_of_a_batch_are_the_estimated_probabilities():
    """The layer derives the weights from the gradient; the test, from the scores, with all words as samples."""
    terms, b_V, contexts_BxN, targets_B = problem()
    layer = ImportanceSampling(samples=12, exact_target=True, adaptation=0.0)
    rows, _ = draw(layer, contexts_BxN, targets_B, 0)
    draws, (params, features) = rows.sample_info, named(terms, b_V)
    per_example = {name: table[rows.examples_BxL] for name, table in params.items()}

    def loss(bias_BxL):
        view = View(params, per_example | {'b_V': bias_BxL}, rows)
        return layer.loss(view, features, make_batch(targets_B, targets_B))[0]

    weights_BxL = importance.normalised_weights(jax.jit(jax.grad(loss))(per_example['b_V']))
    y_BxL = np.float64(softmax.gathered_scores(per_example, features))
    terms_BxL = np.exp(y_BxL) / np.exp(np.float64(draws.log_q_BxL)) / 12
    terms_BxL[np.asarray(draws.word_BxL) == np.asarray(targets_B)[:, None]] = 0
    terms_BxL[:, 0] = np.exp(y_BxL[:, 0])
    np.testing.assert_allclose(weights_BxL, terms_BxL / terms_BxL.sum(1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(weights_BxL.sum(1), 1, atol=1e-5)


def test_training_adapts_the_proposal_to_the_network_at_any_number_of_updates_per_execution(monkeypatch):
    """The divergence from Q falls below the divergence from the initial counts of the training words."""
    monkeypatch.setattr(importance, 'REFRESH_EVERY', 5)
    ends = []
    for size in (4, 7):
        changes = {
            'output.samples': 64,
            'output.adaptation': 30.0,
            'train.batch_size': 22,
            'optimizer.decay': 0.0,
        }
        run = prepare_run(small_settings({**SETTINGS, **changes, 'train.steps_per_execution': size}), DATA)
        network, state = run.program.network, run.init_state()
        while int(state.step) < run.schedule.total_steps:
            state, _ = step.execute_steps(*run.chunk(state, int(state.step)))
        ends.append(state)
    np.testing.assert_allclose(ends[0].output_state.added_G, ends[1].output_state.added_G, rtol=1e-4)
    contexts_BxN, _ = batches.examples(DATA.tokens_T, jnp.arange(10, 210), network.body.reach)
    features, _ = features_of(network, state.params, contexts_BxN)
    log_p_BxV = network.output.log_probabilities(state.params, features)

    def divergence(proposal):
        words_BxV = jnp.broadcast_to(jnp.arange(len(DATA.vocabulary)), log_p_BxV.shape)
        log_q_BxV = bigram_proposal.look_up(proposal, contexts_BxN[:, -1], words_BxV).log_q_BxL
        return float(jnp.mean(jnp.sum(jnp.exp(log_p_BxV) * (log_p_BxV - log_q_BxV), axis=1)))

    adapted = importance.adapted(run.inputs.extras, state.output_state)
    assert divergence(adapted) < 0.6 * divergence(run.inputs.extras)
    samples = state.step * run.program.batch_size  # weights of an example sum to one; the unigram gets a part
    assert 30 * samples * 0.999 < float(state.output_state.added_G.sum()) < 60 * samples


def test_a_run_that_stops_and_resumes_ends_at_the_same_bits(tmp_path):
    settings = small_settings(SETTINGS)
    unbroken = train(settings, tmp_path / 'unbroken')
    (best, progress, _), looks = train_in_parts(settings, tmp_path / 'parts', 3)
    assert looks > 10 and progress.step == unbroken[1].step
    run = prepare_run(settings, DATA)
    assert same_bits(best, unbroken[0])
    states = []
    for folder in ('unbroken', 'parts'):
        store, initial = CheckpointStore(tmp_path / folder, read_only=True), run.init_state()
        states.append(store.restore(initial, initial.params)[0])
        store.close()
    assert same_bits(*states) and float(states[0].output_state.ess_per_sample) > 0
    assert np.abs(states[0].output_state.added_G).max() > 0
