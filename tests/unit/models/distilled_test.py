"""Compares losses with teachers with float64 formulas, with finite differences and with each other."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, make_batch
from jax.test_util import check_grads
from softmax_reference import problem

from nplm_jax.models.distilled import Teachers, word_scores
from nplm_jax.outputs.blockwise import blockwise_cross_entropy, blockwise_distillation
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.outputs.output_layer import BIAS, Rows, view_rows
from nplm_jax.outputs.sampled import SampledSoftmax
from nplm_jax.outputs.softmax import probabilities

V, B = 23, 7
U = 'U_VxK'
TERMS, B_V, TARGETS_B = problem(V, B, (3,))
FEATURES, PARAMS = {U: TERMS[0][1]}, {U: TERMS[0][0], BIAS: B_V}
LAYER = FullSoftmax(precision='float32', block_size=3, teacher_weight=0.3)


def make_teachers(layer=LAYER) -> Teachers:
    rng = np.random.default_rng(1)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    params, features = zip(*(({U: draw(V, k), BIAS: draw(V)}, {U: draw(B, k)}) for k in (4, 5)))
    return Teachers((layer,) * 2, ((U, BIAS),) * 2, params, features)


def softmax64(params, features):
    y_BxV = np.float64(features[U]) @ np.float64(params[U]).T + np.float64(params[BIAS])
    E_BxV = np.exp(y_BxV - y_BxV.max(1, keepdims=True))
    return E_BxV / E_BxV.sum(1, keepdims=True)


def reference(weight, teachers):
    """Returns the cross-entropy, the mean NLL and the gradients with respect to U, x and b, in float64."""
    p_BxV, onehot_BxV = softmax64(PARAMS, FEATURES), np.eye(V)[TARGETS_B]
    learned_BxV = (1 - weight) * onehot_BxV + weight * np.mean(
        list(map(softmax64, teachers.params, teachers.features)), 0
    )
    loss, nll = (-(q * np.log(p_BxV)).sum(1).mean() for q in (learned_BxV, onehot_BxV))
    G_BxV = (p_BxV - learned_BxV) / B
    return (loss, nll), (G_BxV.T @ np.float64(FEATURES[U]), G_BxV @ np.float64(PARAMS[U]), G_BxV.sum(0))


@pytest.mark.nightly
@pytest.mark.parametrize('weight', [0.0, 0.3, 1.0])
@pytest.mark.parametrize('block_size', [1, 3, 128])
@pytest.mark.parametrize('precision,tolerance', [('float32', 1e-5), ('bfloat16', 2e-2)])
def test_loss_and_gradients_are_those_of_the_mixed_distribution(weight, block_size, precision, tolerance):
    teachers = make_teachers()

    def loss(U_VxK, x_BxK, b_V):
        return blockwise_distillation(((U_VxK, x_BxK),), b_V, TARGETS_B, teachers, weight, precision, block_size)

    value, pullback, nll = jax.vjp(loss, *TERMS[0], B_V, has_aux=True)
    (expected, expected_nll), gradients = reference(weight, teachers)
    assert_close((value, nll), (expected, expected_nll), rtol=tolerance)
    assert_close(pullback(jnp.ones(())), gradients, rtol=tolerance, atol=tolerance / 10)


def test_gradients_equal_finite_differences():
    teachers = make_teachers()
    loss = jax.jit(lambda t, b: blockwise_distillation(t, b, TARGETS_B, teachers, 0.7, 'float32', 3)[0])
    check_grads(loss, (TERMS, B_V), 1, ['rev'], 2e-2, 2e-2)


def test_without_weight_a_teacher_changes_nothing():
    arguments = make_teachers(), 0.0, 'float32', 3
    taught = jax.value_and_grad(lambda t: blockwise_distillation(t, B_V, TARGETS_B, *arguments)[0])
    alone = jax.value_and_grad(lambda t: blockwise_cross_entropy(t, B_V, TARGETS_B, 'float32', 3))
    assert_close(taught(TERMS), alone(TERMS), rtol=1e-6, atol=1e-7)


def sampled_loss(params, features, samples_S, weight, teachers):
    """Returns the loss and the mean NLL of a sampled layer that draws these samples."""
    sampled = SampledSoftmax(samples=len(samples_S), precision='float32', teacher_weight=weight)
    batch = make_batch(jnp.zeros((B, 1), int), TARGETS_B, sampled.make_extras(np.arange(V), V))
    view = view_rows(params, (U, BIAS), Rows(TARGETS_B[:, None], samples_S))
    return sampled.loss(view, features, batch, teachers=teachers)


class Opaque(FullSoftmax):
    """A softmax whose teaching uses its log-probabilities, as with `tree` and `two_level`."""

    def log_probabilities(self, params, features):
        """See `OutputLayer.log_probabilities`."""
        return super().log_probabilities(params, features)


def test_when_all_words_are_samples_the_sampled_loss_is_the_exact_one():
    teachers = make_teachers()
    loss = jax.value_and_grad(lambda *args: sampled_loss(*args, jnp.arange(V), 0.3, teachers), (0, 1), has_aux=True)
    (value, nll), (params, features) = loss(PARAMS, FEATURES)
    (expected, expected_nll), (grad_U, grad_x, grad_b) = reference(0.3, teachers)
    assert_close((value, nll), (expected, expected_nll), rtol=1e-5)
    assert_close((params[U], features[U], params[BIAS]), (grad_U, grad_x, grad_b), rtol=1e-4, atol=1e-6)


def test_a_teacher_that_is_the_student_has_no_gradient_whatever_the_samples():
    student, samples_S = Teachers((LAYER,), ((U, BIAS),), (PARAMS,), (FEATURES,)), jnp.array([1, 4, 5, 22])
    loss = jax.grad(lambda params: sampled_loss(params, FEATURES, samples_S, 1.0, student)[0])
    assert_close(loss(PARAMS), jax.tree.map(jnp.zeros_like, PARAMS), atol=1e-6)
    other = jax.grad(lambda params: sampled_loss(params, FEATURES, samples_S, 1.0, make_teachers())[0])
    assert jnp.abs(other(PARAMS)[U]).max() > 1e-2


def test_a_layer_with_log_probabilities_alone_teaches_as_a_softmax():
    samples_S, opaque = jnp.array([1, 4, 5, 22]), Opaque(**dataclasses.asdict(LAYER))
    softmax, alone = make_teachers(), make_teachers(opaque)
    assert_close(
        sampled_loss(PARAMS, FEATURES, samples_S, 0.5, alone), sampled_loss(PARAMS, FEATURES, samples_S, 0.5, softmax)
    )
    assert_close(*(teachers.probabilities('float32') for teachers in (alone, softmax)), rtol=1e-5)


def test_a_softmax_with_a_distribution_of_its_own_teaches_that_one():
    class Offset(FullSoftmax):
        def log_probabilities(self, params, features):
            moved = params | {BIAS: params[BIAS] + jnp.arange(V) / V}
            return super().log_probabilities(moved, features)

    layer, samples_S = Offset(**dataclasses.asdict(LAYER)), jnp.array([1, 4, 5, 22])
    log_p_BxV = layer.log_probabilities(PARAMS, FEATURES)
    assert_close(probabilities(layer, PARAMS, FEATURES, 'float32'), jnp.exp(log_p_BxV), rtol=1e-5)
    target_B, scores_SxB = word_scores(layer, (U, BIAS), PARAMS, FEATURES, TARGETS_B, samples_S, 'float32')
    expected_SxB = log_p_BxV[jnp.arange(B), TARGETS_B][None] - log_p_BxV[:, samples_S].T
    assert_close(target_B[None] - scores_SxB, expected_SxB, atol=1e-5)
