"""Tests that networks, count-based models and mixtures answer the same calls in the same way."""

import numpy as np
import pytest
from helpers import DATA, make_model, refuses

from nplm_jax.data.stream import Span
from nplm_jax.models import mixture
from nplm_jax.ngram import class_ngram, interpolated, kneser_ney
from nplm_jax.ngram.counts import count

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

V = len(DATA.vocabulary)
TEXT = np.asarray(DATA.tokens_T[:9])


def network(family):
    return make_model(V, {'model.family': family, 'model.direct': False, 'train.batch_size': 16})


def classes():
    classes_V = class_ngram.exchange(DATA.tokens_T, DATA.train, 3, V)
    return class_ngram.ClassNgram.fit(DATA.tokens_T, DATA.train, 3, classes_V)


def mixed():
    trigram = interpolated.fit(DATA.tokens_T, DATA.train, DATA.valid, V)
    models = [network('lstm'), network('nplm'), trigram]
    return mixture.fit(models, DATA.tokens_T, DATA.valid, trigram.bins, 2)  # weights that depend on the last two words


MODELS = {
    'network of a window': lambda: network('nplm'),
    'recurrent network': lambda: network('lstm'),
    'n-gram': lambda: kneser_ney.fit_modified(count(DATA.tokens_T, DATA.train, 4, V)),
    'class n-gram': classes,
    'mixture': mixed,
    'scores kept': lambda: mixture.CachedScores(network('nplm')),
}


@pytest.fixture(scope='module', params=MODELS)
def model(request):
    return MODELS[request.param]()


def test_a_slice_a_span_and_nothing_choose_the_words_that_are_scored(model):
    log_p_T = model.score(TEXT)
    assert log_p_T.shape == (9,) and log_p_T.dtype == np.float32
    for span, chosen in (
        (slice(0, 3), slice(0, 3)),
        (slice(2, None), slice(2, 9)),
        (slice(-4, -1), slice(5, 8)),
        (slice(5, 100), slice(5, 9)),
        (Span(2, 6), slice(2, 6)),
        (slice(7, 7), slice(0, 0)),
    ):
        np.testing.assert_allclose(model.score(TEXT, span), log_p_T[chosen], atol=1e-5)
    for span in (slice(0, 6, 2), Span(5, 10), Span(9, 12), Span(-3, 4), Span(6, 2), 0, (0, 6)):
        with refuses('span'):
            model.score(TEXT, span)


def test_a_decoder_that_advances_readers_sees_what_score_and_next_word_say(model):
    log_p_T = model.score(TEXT)
    for read in (0, 3):
        state = model.prefill(TEXT[None, :read])
        for t in range(read, len(TEXT)):
            log_p_V = np.asarray(model.predict(state))[0]
            np.testing.assert_allclose(log_p_V, model.next_word(TEXT[None, :t])[0], atol=1e-5)
            assert log_p_V[TEXT[t]] == pytest.approx(log_p_T[t], abs=1e-5)
            state = model.advance(state, TEXT[t : t + 1])


@pytest.mark.parametrize('family', ['nplm', 'lstm'])
@pytest.mark.parametrize('word', [-1, V])
def test_a_network_refuses_to_read_an_id_that_is_not_in_its_vocabulary(family, word):
    model = network(family)
    state = model.prefill(TEXT[None, :3])
    with refuses('words'):
        model.advance(state, np.array([word]))
    with refuses('words'):
        model.read(state, np.array([[1, word]]))
