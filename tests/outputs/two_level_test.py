"""The two-level softmax: one distribution, whichever way it is asked, and the gradients of the plain formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax.config import CorpusSettings, ModelSettings, OptimizerSettings, OutputSettings, Settings, TrainSettings
from nplm_jax.data.corpora import Span
from nplm_jax.models import nplm
from nplm_jax.models.language_model import NeuralLanguageModel
from nplm_jax.outputs import two_level
from nplm_jax.training import loop, objective, sparse_rows

V = 31
# head, classes asked for, classes made: of one size, the last one not full, one class, a class a word.
LAYOUTS = [(7, 4, 4), (10, 8, 7), (0, 1, 1), (5, 26, 26)]
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (9, 3)), jnp.int32)
TARGETS = jnp.asarray([0, 6, 7, 30, 12, 29, 5, 5, 18], jnp.int32)


def make(head, classes, direct=True, h=5):
    output = OutputSettings('two_level', num_shortlist=head, classes=classes)
    bias = np.linspace(-1, -3, V).astype(np.float32)
    return nplm.init(jax.random.key(3), ModelSettings(4, 3, h, direct), V, bias, output)


@jax.jit
def plain(params, contexts_BxN):
    """log P of all words, class by class. Returns: B x V."""
    y_VxB = nplm.scores(params, contexts_BxN)
    inputs = [x for _, x in nplm.output_parts(params, contexts_BxN)]
    classes = params.classes
    y_GxB = classes.b_G[:, None] + sum(w @ x.T for w, x in zip(classes.weights, inputs))
    log_top = jax.nn.log_softmax(jnp.concatenate([y_VxB[: classes.num_shortlist], y_GxB]), axis=0)
    found = [log_top[: classes.num_shortlist]]
    size = classes.size
    for g in range(len(classes.b_G)):
        words = y_VxB[classes.num_shortlist + g * size : min(classes.num_shortlist + (g + 1) * size, V)]
        assert len(words)
        found.append(jax.nn.log_softmax(words, axis=0) + log_top[classes.num_shortlist + g][None, :])
    return jnp.concatenate(found).T


SHAPES = [(*layout, True, 5) for layout in LAYOUTS] + [(7, 4, 4, False, 5), (7, 4, 4, True, 0)]


@pytest.mark.parametrize('head,classes,made,direct,h', SHAPES)
def test_it_is_one_distribution_and_score_agrees_with_next_word(head, classes, made, direct, h):
    params = make(head, classes, direct, h)
    assert len(params.classes.b_G) == made
    assert nplm.count(params) == ModelSettings(4, 3, h, direct).num_parameters(V, made)
    log_p_BxV = jax.jit(nplm.log_probabilities)(params, CONTEXTS)
    np.testing.assert_allclose(np.exp(np.asarray(log_p_BxV, np.float64)).sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(log_p_BxV, plain(params, CONTEXTS), atol=1e-5)
    tokens_T = np.asarray(TARGETS)
    model = NeuralLanguageModel(params, 4)
    scores = model.score(tokens_T, Span(3, 9))
    log_p = model.next_word(np.stack([tokens_T[t - 3 : t] for t in range(3, 9)]))
    np.testing.assert_allclose(scores, log_p[np.arange(6), tokens_T[3:9]], atol=1e-5)


@pytest.mark.parametrize('head,classes,made', LAYOUTS)
def test_an_update_is_that_of_the_plain_formulas_gradient(head, classes, made):
    settings = Settings(
        'x', CorpusSettings('sentences'), ModelSettings(4, 3, 5, True),
        OptimizerSettings('sgd', 0.5, 'constant', decay=0.0), TrainSettings(batch_size=9),
        output=OutputSettings('two_level', num_shortlist=head, classes=classes),
    )  # fmt: skip
    params = make(head, classes)

    def nll(params):
        return -jnp.mean(jnp.take_along_axis(plain(params, CONTEXTS), TARGETS[:, None], axis=1))

    expected, gradients = jax.jit(jax.value_and_grad(nll))(params)
    state = loop.init_state(settings, V, None, 9).replace(params=params)
    step = jax.jit(loop.train_step, static_argnums=(3, 4))
    state, found = step(state, CONTEXTS, TARGETS, settings, 9)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    for ours, before, gradient in zip(*map(jax.tree.leaves, (state.params, params, gradients)), strict=True):
        np.testing.assert_allclose(ours, before - 0.5 * gradient, rtol=1e-5, atol=1e-6)


def test_what_is_added_is_what_was_gathered():
    params = make(7, 4)
    rows = CONTEXTS, two_level.rows(params.classes, TARGETS), jnp.arange(7)
    shared, own = sparse_rows.gather(params, *rows)
    for name in ('U_VxK', 'W_VxP', 'b_V'):
        np.testing.assert_array_equal(getattr(shared, name), getattr(params, name)[:7])
        np.testing.assert_array_equal(getattr(own, name), getattr(params, name)[rows[1]])
    np.testing.assert_array_equal(own.C_VxM, params.C_VxM[CONTEXTS])
    ones = jax.tree.map(jnp.ones_like, (shared, own))
    after = sparse_rows.add(params, *ones, *rows)
    for name, ids in dict(C_VxM=[CONTEXTS], U_VxK=rows[1:], W_VxP=rows[1:], b_V=rows[1:]).items():
        times_V = sum(np.bincount(np.ravel(x), minlength=V) for x in ids)
        added = np.asarray(getattr(after, name) - getattr(params, name)).reshape(V, -1)
        np.testing.assert_allclose(added, np.broadcast_to(times_V[:, None], added.shape), atol=1e-5)
    np.testing.assert_allclose(after.classes.U_GxK, params.classes.U_GxK + 1)


def test_decay_spares_the_biases():
    params = jax.tree.map(jnp.ones_like, make(7, 4))
    halved = sparse_rows.shrink(params, 0.5)
    assert (halved.classes.U_GxK == 0.5).all() and (halved.classes.W_GxP == 0.5).all() and (halved.H_KxP == 0.5).all()
    assert (halved.classes.b_G == 1).all() and (halved.b_V == 1).all() and (halved.d_K == 1).all()
    assert objective.EXACT.num_classes(V) == 0


def test_the_first_biases_make_the_unigram_distribution():
    params = make(7, 4)
    quiet = jax.tree.map(jnp.zeros_like, params).replace(b_V=params.b_V)
    quiet = quiet.replace(classes=quiet.classes.replace(b_G=params.classes.b_G))
    expected = jax.nn.log_softmax(params.b_V)
    np.testing.assert_allclose(nplm.log_probabilities(quiet, CONTEXTS)[0], expected, atol=1e-5)
