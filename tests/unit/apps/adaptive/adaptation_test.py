"""Tests the choice of an adaptive model."""

import math

import numpy as np

from nplm_jax.apps.adaptive import adaptation
from nplm_jax.apps.adaptive.adaptation import TunedModel
from nplm_jax.data.stream import Span
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import NonFiniteError

TOKENS_T = np.arange(6, dtype=np.int32)


class Fixed(LanguageModel):
    """A model with the same probability for every word. None means probability zero."""

    n = 1

    def __init__(self, probability):
        self.probability = probability

    def score_span(self, tokens_T, span):
        if self.probability is None:
            raise NonFiniteError('too large a rate')
        return np.full(len(span), math.log(self.probability))

    def next_word(self, contexts_BxN):
        raise NotImplementedError


def test_the_likeliest_is_chosen_and_a_rate_that_is_too_large_is_not():
    candidates = [TunedModel(Fixed(p), {'rate': i}) for i, p in enumerate((None, 0.2, 0.5, 0.3))]
    assert adaptation.choose(iter(candidates), TOKENS_T, Span(1, 6)).values == {'rate': 2}


def test_all_combinations_are_tried():
    made = adaptation._grid(lambda rate, decay: Fixed(rate + decay), {'rate': (0.25, 0.5), 'decay': (0.0, 0.125, 0.25)})
    scored = [(choice.values, float(choice.model.score(TOKENS_T, Span(1, 2))[0])) for choice in made]
    assert scored == [
        ({'rate': rate, 'decay': decay}, math.log(rate + decay)) for rate in (0.25, 0.5) for decay in (0.0, 0.125, 0.25)
    ]


def test_the_values_that_are_tried_rise():
    caches = (*adaptation.NGRAM_CACHE.values(), *adaptation.NEURAL_CACHE.values())
    for values in (*caches, adaptation.RATES, adaptation.DECAYS):
        assert 0 < values[0] and all(a < b for a, b in zip(values, values[1:]))
