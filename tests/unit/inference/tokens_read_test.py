"""Tests that networks read each token of a context only once in generation, search and scoring."""

import numpy as np
import pytest
from helpers import make_model

from nplm_jax.inference import beam_search, generation, scoring
from nplm_jax.models import mixture, neural

V = 30
CONTEXT = np.random.default_rng(0).integers(1, V, 40).astype(np.int32)
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 16}
RESIDUAL = {**LSTM, 'model.family': 'residual', 'model.n': 3, 'model.averages': 1}
FAMILIES = {'nplm': {}, 'lstm': LSTM, 'residual': RESIDUAL}
# After CONTEXT: one window; the last 4 words, the reach of the residual network; all words and the one before them.
PREFILLED = {'nplm': 1, 'lstm': 1 + 40, 'residual': 4}


@pytest.fixture
def read(monkeypatch):
    """Returns a list that records how many tokens, or windows that end in them, networks read in each call."""
    sizes = []

    def count(function):
        return lambda network, params, state, ids_SxL: (
            sizes.append(ids_SxL.size) or function(network, params, state, ids_SxL)
        )

    for name in ('_advance', 'compiled_read'):
        monkeypatch.setattr(neural, name, count(getattr(neural, name)))
    return sizes


@pytest.mark.parametrize('family', FAMILIES)
def test_samples_and_beams_read_the_prompt_once_and_then_each_word_that_they_write(family, read):
    model = make_model(V, FAMILIES[family])
    generation.sample(model, CONTEXT, words=6, samples=3)
    assert sum(read) == PREFILLED[family] + 5 * 3  # the last word is not read
    read.clear()
    beam_search.beam(model, CONTEXT, words=6, width=3)
    assert sum(read) == PREFILLED[family] + 5 * 3


def test_each_part_of_a_mixture_reads_the_prompt_once(read):
    mixed = mixture.equal([make_model(V, FAMILIES[family]) for family in FAMILIES])
    beam_search.beam(mixed, CONTEXT, words=6, width=3)
    assert sum(read) == sum(PREFILLED.values()) + 3 * 5 * 3


@pytest.mark.parametrize('family', FAMILIES)
def test_alternatives_of_an_nbest_list_are_read_once(family, read, monkeypatch):
    monkeypatch.setattr(neural, 'MIN_LINES', 4)
    model = make_model(V, FAMILIES[family])
    scoring.score(model, [np.append(CONTEXT[:15], word) for word in (1, 2, 3, 4)])
    assert sum(read) == 4 * 16
