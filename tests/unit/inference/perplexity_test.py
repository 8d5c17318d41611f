"""Tests exact perplexity: every word counts once, sums are precise, and invalid models give no number."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_model, numbers, refuses

from nplm_jax.data.batches import stream_epoch_size, stream_positions
from nplm_jax.data.dataset import TextSize
from nplm_jax.data.stream import Span
from nplm_jax.inference import generation, perplexity
from nplm_jax.inference.induction import induce
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.unsmoothed import add_delta
from nplm_jax.utils.errors import BadInput, NonFiniteError

V = 13
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, V, 1000), jnp.int32)


class Constant(LanguageModel):
    n = 1

    def score_span(self, tokens_T, span):
        return np.full(len(span), math.log(0.25), np.float32)

    def next_word(self, contexts_BxN):
        return np.full((len(contexts_BxN), 4), math.log(0.25), np.float32)


def test_perplexity_of_a_constant_probability():
    score = perplexity.evaluate(Constant(), TOKENS, Span(3, 10))
    assert score.words == 7
    assert score.perplexity == pytest.approx(4, rel=1e-7)


def test_the_perplexity_of_a_model_is_that_of_the_words_of_the_span_or_of_all():
    assert perplexity.perplexity(Constant(), TOKENS) == pytest.approx(4, rel=1e-7)
    model = make_model(V)
    assert perplexity.perplexity(model, TOKENS) == perplexity.evaluate(model, TOKENS, Span(0, 1000)).perplexity
    log_p_T = model.score(TOKENS, Span(3, 10)).astype(np.float64)
    assert perplexity.perplexity(model, TOKENS, Span(3, 10)) == pytest.approx(np.exp(-log_p_T.mean()), rel=1e-12)


def test_no_word_has_no_perplexity():
    for tokens_T, span in ((TOKENS[:0], None), (TOKENS, Span(5, 5)), (TOKENS, Span(5, 3)), (TOKENS, slice(0, 5))):
        with refuses('span'):
            perplexity.perplexity(Constant(), tokens_T, span)


MODELS = {
    'network': lambda: make_model(V),
    'counts': lambda: add_delta(count(np.asarray(TOKENS), Span(0, 1000), 3, V), 1.0),
    'mixture': lambda: mixture.equal([make_model(V), mixture.CachedScores(make_model(V))]),
}
CALLS = {
    'tokens': [lambda model, ids: perplexity.perplexity(model, ids), lambda model, ids: model.score(ids, slice(0, 2))],
    'lines': [lambda model, ids: model.score_lines([np.array([], int), ids])],
    'contexts': [
        lambda model, ids: model.next_word([ids]),
        lambda model, ids: model.prefill([ids]),
        lambda model, ids: generation.sample(model, ids, 1, 1),
    ],
}


@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('key', CALLS)
def test_only_ids_of_words_are_scored(name, key):
    model = MODELS[name]()
    for call in CALLS[key]:
        for ids, value in (([1, 1.5], 'float64'), (['a', 'b'], '<U1'), ([1, V], V), ([-1, 2], -1)):
            with pytest.raises(BadInput) as caught:
                call(model, np.array(ids))
            assert (caught.value.key, caught.value.value) == (key, value)
    with pytest.raises(BadInput) as caught:
        perplexity.perplexity(model, TOKENS[None])
    assert (caught.value.key, caught.value.value) == ('tokens', (1, 1000))


@pytest.mark.parametrize('model', ['runs/a', None, [Constant()]])
def test_only_models_are_taken(model):
    calls = {
        'model': [
            lambda: perplexity.perplexity(model, TOKENS),
            lambda: generation.sample(model, TOKENS, 1, 1),
            lambda: generation.encode_prompt(['a'], model),
        ],
        'run': [lambda: induce(model, 'a', [['a']])],
    }
    for key, call in ((key, call) for key, those in calls.items() for call in those):
        with pytest.raises(BadInput) as caught:
            call()
        assert caught.value.key == key


def test_an_infinite_loss_is_an_infinite_perplexity():
    assert perplexity.Score(3, math.inf).perplexity == math.inf
    assert perplexity.Score(3, 1e5).perplexity == math.inf


@pytest.mark.parametrize('span', [Span(0, 1), Span(0, 2), Span(2, 259), Span(100, 612), Span(999, 1000)])
def test_every_word_once_given_the_words_before_it(span):
    model = make_model(V)
    log_p = model.score(TOKENS, span)
    assert log_p.shape == (len(span),) and log_p.dtype == np.float32
    for t in (span.start, (span.start + span.stop) // 2, span.stop - 1):
        context = np.asarray(TOKENS[max(0, t - 3) : t])[None]
        assert log_p[t - span.start] == pytest.approx(model.next_word(context)[0, TOKENS[t]], abs=1e-5)


def test_splitting_a_span_changes_nothing():
    model = make_model(V)
    parts = [perplexity.evaluate(model, TOKENS, s) for s in (Span(0, 1000), Span(0, 333), Span(333, 1000))]
    assert parts[0].nll == pytest.approx(parts[1].nll + parts[2].nll, rel=1e-7)


class Uneven:
    """A model with fixed log-probabilities of every size, the last of which are small compared with the sum so far."""

    def score(self, tokens_T, span):
        p = np.random.default_rng(span.start).exponential(5.0, len(span)).astype(np.float32)
        return -np.sort(p)[::-1]


def test_ten_million_words_lose_nothing():
    words = 10_000_019
    score = perplexity.evaluate(Uneven(), TOKENS, Span(0, words))
    exactly = math.fsum(Uneven().score(TOKENS, Span(0, words)).tolist())
    assert score.nll == pytest.approx(-exactly, rel=1e-12)
    assert score.perplexity == pytest.approx(math.exp(-exactly / words), rel=1e-9)
    in_float32 = -float(np.cumsum(Uneven().score(TOKENS, Span(0, words)))[-1])  # so float32 would fail
    assert abs(math.exp(in_float32 / words) / score.perplexity - 1) > 1e-6


def test_a_log_probability_that_is_not_a_number_is_no_perplexity():
    class Broken:
        def score(self, tokens_T, span):
            return np.where(np.arange(span.start, span.stop) % 4 == 3, np.nan, -1.0).astype(np.float32)

    with pytest.raises(NonFiniteError) as caught:
        perplexity.evaluate(Broken(), TOKENS, Span(4, 12))
    assert numbers(str(caught.value)) == ['2', '7']  # so many words, and the first of them


@pytest.mark.parametrize('changes', [{}, {'model.family': 'gru', 'model.direct': False, 'train.batch_size': 16}])
def test_cached_scores_are_the_models_and_tell_of_every_word(changes, monkeypatch):
    monkeypatch.setattr(mixture, 'CHUNK_SIZE', 300)
    model, told, span = make_model(V, changes), [], Span(7, 1000)
    watched = mixture.CachedScores(model, scored=told.append)
    np.testing.assert_allclose(watched.score(TOKENS, span), model.score(TOKENS, span), rtol=1e-6)
    assert told == ([300, 300, 300, 93] if watched.n else [993]) and watched.n == model.n
    contexts = np.asarray(TOKENS[:6]).reshape(2, 3)
    np.testing.assert_array_equal(watched.next_word(contexts), model.next_word(contexts))
    assert watched.score(TOKENS, Span(5, 5)).shape == (0,)


def test_a_sample_is_spread_over_the_span():
    class Position:
        asked = []

        def score(self, tokens_T, span):
            self.asked.append((span.start, len(span)))
            return np.full(len(span), -span.start, np.float32)

    score = perplexity.evaluate_sample(Position(), TOKENS, Span(100, 1350), 270)
    assert Position.asked == [(100 + 50 * part, 10) for part in range(25)]
    assert score.words == 250 and score.nll == sum(10.0 * start for start, _ in Position.asked)
    assert perplexity.evaluate_sample(Position(), TOKENS, Span(0, 9), 3).words == 3
    for every in (0, 9, 10):
        Position.asked.clear()
        assert perplexity.evaluate_sample(Position(), TOKENS, Span(0, 9), every).words == 9 and len(Position.asked) == 1


@pytest.mark.parametrize('num_streams', [1, 8, 16, 32, 64, 256])
def test_a_sample_of_training_words_is_read_throughout_an_epoch_over_streams(num_streams):
    train, updates_T = Span(5, 100_005), np.full(100_005, np.inf)
    positions = stream_positions(1, 0, train, num_streams, 4, np.arange(stream_epoch_size(train, num_streams, 4)))
    updates_T[positions] = np.arange(len(positions)) / len(positions)  # the share of the epoch before each word is read
    times = [updates_T[span.start : span.stop].min() for span in perplexity.sample_spans(train, 250)]
    assert max(np.diff(sorted([0, *times, 1]))) < 3 / len(times)


def test_one_total_has_three_denominators():
    size = TextSize(tokens=5, words=2, characters=6, utf8_bytes=8)
    numbers = perplexity.per_unit(12 * math.log(2), size)
    assert numbers == pytest.approx({'perplexity_per_word': 64, 'bits_per_character': 2, 'bits_per_byte': 1.5})
    assert math.isinf(perplexity.per_unit(math.inf, size)['perplexity_per_word'])
    assert all(map(math.isnan, perplexity.per_unit(1.0, TextSize(1, 0, 0, 0)).values()))


def test_a_text_without_blanks_has_bits_per_character_and_no_perplexity_per_word():
    numbers = perplexity.per_unit(400.0, TextSize(tokens=200, words=1, characters=200, utf8_bytes=600))
    assert math.isnan(numbers['perplexity_per_word']) and numbers['bits_per_character'] == pytest.approx(
        2 / math.log(2)
    )
