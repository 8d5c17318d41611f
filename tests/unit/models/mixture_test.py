"""Tests mixtures of models with known probabilities."""

import dataclasses

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.config.settings import Settings
from nplm_jax.data import vocabulary
from nplm_jax.data.stream import Span
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.models import mixture, mixture_fit
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture_fit import fit_weights
from nplm_jax.runs.remote_scoring import RemoteModel
from nplm_jax.utils.errors import BadInput, NonFiniteError

V = 3


class Fixed(LanguageModel):
    """A model that predicts the same distribution after every context."""

    n = 1

    def __init__(self, p_V):
        with np.errstate(divide='ignore'):
            self.log_p_V = np.log(np.array(p_V, np.float32))
        self.vocabulary_size = len(p_V)

    def score_span(self, tokens_T, span):
        return self.log_p_V[np.asarray(tokens_T)[span.start : span.stop]]

    def next_word(self, contexts_BxN):
        return np.tile(self.log_p_V, (len(contexts_BxN), 1))


class LastWordBins(mixture.ContextBins):
    """Bins that are determined by the last word of the context."""

    num_bins = V
    num_context = 1

    def of_contexts(self, contexts_BxN):
        return contexts_BxN[:, -1]


A, B = Fixed([0.5, 0.25, 0.25]), Fixed([0.125, 0.125, 0.75])
ALL_ZERO = Fixed([0, 0.5, 0.5]), Fixed([0, 0.25, 0.75])


def test_equal_weights_by_hand():
    model = mixture.equal([A, B])
    expected = np.log([0.3125, 0.1875, 0.5])
    np.testing.assert_allclose(model.next_word(np.array([[1], [2]])), [expected, expected], rtol=1e-6)
    np.testing.assert_allclose(model.score(np.array([0, 2, 1]), Span(1, 3)), expected[[2, 1]], rtol=1e-6)


MIXED = {
    'equal': mixture.equal,
    'fit': lambda models: mixture.fit(models, np.array([0, 1, 0, 1]), Span(0, 4)),
    'given': lambda models: mixture.Mixture(models, np.array([[0.5, 0.5]]), mixture.ContextBins()),
}
WORDS = vocabulary.Vocabulary(('<rare>', 'a', 'b'), (0, 1, 1))


def of_words(words, p_V=(0.5, 0.25, 0.25)):
    """Returns the model of a run over these words."""
    return LoadedModel(Settings(), words, Fixed(p_V)).model


@pytest.mark.parametrize('mix', MIXED.values(), ids=MIXED)
def test_models_of_other_words_are_refused(mix):
    smaller, others = Fixed([0.5, 0.5]), dataclasses.replace(WORDS, words=('<rare>', 'b', 'a'))
    cut_otherwise = dataclasses.replace(WORDS, tokenizer=ByteTokenizer())
    for models, key in (
        ([A, smaller], 'models'),
        ([A, mixture.equal([smaller])], 'models'),
        ([of_words(WORDS), mixture.CachedScores(smaller)], 'models'),
        ([of_words(WORDS), of_words(others)], 'models[1]'),
        ([of_words(WORDS), mixture.equal([A, of_words(others)])], 'models[1]'),
        ([of_words(WORDS), mixture.CachedScores(of_words(cut_otherwise))], 'models[1]'),
        ([A, 'runs/a'], 'models[1]'),
        ([], 'models'),
    ):
        with pytest.raises(BadInput) as caught:
            mix(models)
        assert caught.value.key == key
    assert (
        mix([of_words(WORDS), of_words(dataclasses.replace(WORDS, counts=(0, 9, 9)))]).vocabulary.words == WORDS.words
    )
    assert mix([A, of_words(WORDS)]).vocabulary_size == V  # a model that does not know its words


WEIGHTS = [[1.0]], [[0.5, 0.4]], [[1.5, -0.5]], [[np.nan, 1.0]], [[0.5, 0.5], [0.5, 0.5]], [0.5, 0.5], [[0.2, 0.3, 0.5]]


@pytest.mark.parametrize('weights', WEIGHTS)
def test_weights_that_do_not_fit_the_models_are_refused(weights):
    with refuses('weights'):
        mixture.Mixture([A, B], np.array(weights), mixture.ContextBins())


def test_one_weight_vector_is_the_maximum_likelihood():
    # Of 100 words 30 are word 0: w * 0.5 + (1 - w) * 0.125 = 0.3 for the other two at 0.2 and 0.5.
    tokens_T = np.repeat([0, 1, 2], [30, 20, 50])
    model = mixture.fit([A, B], tokens_T, Span(0, 100))
    grid = np.linspace(0, 1, 10_001)
    likelihood = sum(
        n * np.log(grid * a + (1 - grid) * b) for n, a, b in [(30, 0.5, 0.125), (20, 0.25, 0.125), (50, 0.25, 0.75)]
    )
    assert model.weights_QxM[0, 0] == pytest.approx(grid[likelihood.argmax()], abs=2e-4)
    assert model.weights_QxM.sum() == pytest.approx(1)


@pytest.mark.parametrize('seed', range(4))
def test_learned_weights_are_the_optimum_to_the_duality_gap(seed):
    rng = np.random.default_rng(seed)
    common_T = rng.normal(size=3000)
    log_p_MxT = common_T + rng.normal(size=(5, 3000)) * np.array([[0.02, 0.05, 0.3, 1, 2]]).T - 5
    log_p_MxT[3, rng.random(3000) < 0.1] = -np.inf
    log_p_MxT[4] = log_p_MxT[0] + 1e-3 * rng.normal(size=3000)  # nearly the same model
    bins_T = np.repeat([0, 2], [2500, 500])
    weights_QxM = fit_weights(log_p_MxT, bins_T, 3)
    everything = np.ones(3000, bool)
    for weights_M, words_T in zip(weights_QxM, (bins_T == 0, everything, bins_T == 2)):
        assert weights_M.min() >= 0 and weights_M.sum() == pytest.approx(1, abs=1e-12)
        p_MxT = np.exp(log_p_MxT[:, words_T])
        assert (p_MxT / (weights_M @ p_MxT)).mean(1).max() <= 1 + 1e-8


def test_the_optimum_takes_a_few_steps(monkeypatch):
    steps, newton = [], mixture_fit._newton
    monkeypatch.setattr(mixture_fit, '_newton', lambda *arrays: steps.append(1) or newton(*arrays))
    for seed in range(12):  # near the optimum, likelihoods are equal except for rounding
        rng = np.random.default_rng(seed)
        log_p_MxT = rng.normal(-5, 3, 2000) + rng.normal([[0], [-1]], 1, (2, 2000))
        steps.clear()
        fit_weights(log_p_MxT.astype(np.float32), np.zeros(2000, int), 1)
        assert len(steps) < 20


def test_the_same_model_twice_shares_its_weight():
    weights = mixture.fit([A, A, B], np.repeat([0, 1, 2], [30, 20, 50]), Span(0, 100)).weights_QxM[0]
    assert weights[0] == pytest.approx(weights[1], abs=1e-6)


def test_one_step_of_em_by_hand():
    weights = mixture.fit([A, B], np.array([0, 2]), Span(0, 2), iterations=1).weights_QxM
    np.testing.assert_allclose(weights, [[(0.8 + 0.25) / 2, (0.2 + 0.75) / 2]], rtol=1e-6)


def test_each_bin_learns_its_own_weights_and_an_empty_one_shares():
    tokens_T = np.array([0] * 20 + [1, 2] * 15)  # after 0 mostly 0; after 1 always 2
    model = mixture.fit([A, B], tokens_T, Span(0, 50), LastWordBins(), 100)
    assert model.weights_QxM[0, 0] > 0.9 and model.weights_QxM[1, 1] > 0.9
    by_context = np.exp(model.next_word(np.array([[0], [1]])))
    np.testing.assert_allclose(by_context, model.weights_QxM[:2] @ np.exp([A.log_p_V, B.log_p_V]), rtol=1e-5)
    np.testing.assert_allclose(np.exp(model.score(tokens_T, Span(21, 22))), by_context[1, 2], rtol=1e-5)
    before_any_one = mixture.fit([A, B], tokens_T, Span(0, 21), LastWordBins(), 3).weights_QxM
    shared = mixture.fit([A, B], tokens_T, Span(0, 21), None, 3).weights_QxM
    np.testing.assert_allclose(before_any_one, np.repeat(shared, 3, 0))


def test_a_mixture_reads_an_empty_prompt_and_refuses_one_that_is_no_matrix():
    model = mixture.Mixture([A, B], np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]), LastWordBins())
    after_nothing = model.predict(model.prefill(np.asarray([])[None]))
    np.testing.assert_array_equal(after_nothing, model.next_word(np.array([[0]])))  # the rare-word symbol
    with refuses('contexts'):
        model.prefill(np.array([1, 2]))


def test_three_models_and_words_that_all_of_them_exclude():
    tokens_T = np.array([0, 1, 2, 1, 0])
    model = mixture.fit([*ALL_ZERO, Fixed([0, 1, 0])], tokens_T, Span(0, 5))
    np.testing.assert_allclose(model.weights_QxM.sum(1), 1)
    assert np.isneginf(model.score(tokens_T, Span(0, 5))).tolist() == [True, False, False, False, True]


def test_weights_are_not_fitted_to_the_words_that_a_model_gives_a_number():
    with pytest.raises(NonFiniteError):
        mixture.fit([A, Fixed([np.nan, 0.5, 0.5])], np.array([0, 1, 2]), Span(0, 3))


def test_no_usable_validation_word_leaves_equal_weights():
    for span in (Span(0, 0), Span(0, 1)):
        weights = mixture.fit(ALL_ZERO, np.array([0, 1]), span).weights_QxM
        np.testing.assert_allclose(weights, [[0.5, 0.5]])


def test_tiny_probabilities_do_not_vanish():
    class Tiny(Fixed):
        def score(self, tokens_T, span):
            return super().score(tokens_T, span) - np.float32(2000)

    tokens_T = np.array([0, 2])
    weights = mixture.fit(
        [Tiny([0.5, 0.25, 0.25]), Tiny([0.125, 0.125, 0.75])], tokens_T, Span(0, 2), None, 1
    ).weights_QxM
    np.testing.assert_allclose(weights, [[(0.8 + 0.25) / 2, (0.2 + 0.75) / 2]], rtol=1e-3)


class FirstWords(LanguageModel):
    """Scores each word by the first word of the stream."""

    n = None
    calls = 0

    def score_span(self, tokens_T, span):
        self.calls += 1
        return np.full(len(span), tokens_T[0], np.float32)

    def next_word(self, contexts_BxN):
        raise NotImplementedError


@pytest.mark.parametrize('is_writeable', [True, False])
def test_cached_scores_follow_changes_of_the_stream(is_writeable):
    model, span = FirstWords(), Span(1, 3)
    cached = mixture.CachedScores(model)
    streams = [np.array(words, dtype) for words in ([1, 7, 8], [2, 7, 8]) for dtype in (np.int32, np.int64)]
    shown = [stream.view() for stream in streams]
    for view in shown:
        view.flags.writeable = is_writeable
    for _ in range(2):
        for view in shown:
            assert cached.score(view, span).tolist() == [view[0]] * 2
    assert model.calls == len(streams)
    streams[-1][0] = 5  # also changes its view, which is the last stream whose digest is known
    assert cached.score(shown[-1], span).tolist() == [5, 5]


def test_a_mapped_stream_is_read_once_for_its_digest(tmp_path, monkeypatch):
    np.array([1, 7, 8], np.int32).tofile(tmp_path / 'stream')
    mapped, read = np.memmap(tmp_path / 'stream', np.int32, 'r'), []
    monkeypatch.setattr(mixture.mapped_arrays, 'chunks', lambda array: read.append(array) or [np.array(array)])
    cached = mixture.CachedScores(FirstWords())
    assert [cached.score(mapped, Span(1, stop)).tolist() for stop in (2, 3)] == [[1], [1, 1]]
    assert len(read) == 1


@pytest.mark.parametrize('wrap', [mixture.CachedScores, lambda model: RemoteModel(model, lambda: None)])
def test_a_wrapper_decodes_with_the_states_of_its_model(wrap):
    class Stateful(FirstWords):
        n = 3

        def prefill(self, ids_SxL):
            return 'state of', ids_SxL

    assert wrap(Stateful()).prefill([[5]]) == ('state of', [[5]])


def test_scores_that_are_added_are_not_computed():
    model, stream = FirstWords(), np.array([1, 7, 8])
    cached = mixture.CachedScores(model)
    cached.add(stream, Span(1, 3), known := np.array([-1, -2], np.float32))
    for again in (cached, mixture.CachedScores(model, cached.scores)):
        np.testing.assert_array_equal(again.score(stream.copy(), Span(1, 3)), known)
    assert not model.calls


def test_a_change_of_returned_scores_does_not_change_those_that_are_kept():
    cached, stream = mixture.CachedScores(FirstWords()), np.array([1, 7, 8])
    for score in (lambda: cached.score(stream, Span(1, 3)), lambda: cached.score_lines([stream])[0]):
        first = score()
        expected = first.tolist()
        first += 5
        assert score().tolist() == expected


def test_a_mixture_of_nothing_is_refused():
    with refuses('models'):
        mixture.fit([], np.array([0, 1]), Span(0, 2))
