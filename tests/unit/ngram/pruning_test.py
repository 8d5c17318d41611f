"""Tests tables from which rare n-grams have been removed."""

import numpy as np
import pytest
from helpers import DATA, default_settings, refuses

from nplm_jax.data.stream import Span
from nplm_jax.ngram import kneser_ney, pruning
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.scratch import Scratch
from nplm_jax.runs import estimation
from nplm_jax.runs.experiment import load_settings

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
TOKENS = np.minimum(np.random.default_rng(1).zipf(1.4, 4000), 49).astype(np.int32)
TRAIN, TEST = Span(10, 3500), Span(3500, 4000)


def fit(thresholds=()):
    return kneser_ney.fit_modified(count(TOKENS, TRAIN, 4, 50), thresholds)


@pytest.mark.parametrize('text, thresholds', [('0', (0, 0, 0, 0)), ('0 0 1', (0, 0, 1, 1)), ('0 1 2 3', (0, 1, 2, 3))])
def test_the_last_threshold_is_that_of_the_orders_above(text, thresholds):
    assert pruning.parse_thresholds(text, 4) == thresholds


@pytest.mark.parametrize('text', ['', '1', '0 2 1', '0 0 0 0 1', '0 -1', '0,1', '0 x', '0 99999999999'])
def test_other_thresholds_are_refused(text):
    with refuses('model.prune'):
        pruning.parse_thresholds(text, 4)


def test_thresholds_that_leave_no_ngram_of_an_order_are_refused():
    with refuses('model.prune'):
        fit((0, 9, 9, 9999))


def test_the_ngrams_that_stay_are_those_above_the_threshold():
    counts, model = count(TOKENS, TRAIN, 4, 50), fit((0, 0, 1, 2))
    assert [model.table.size(k) for k in (1, 2)] == [50, counts.table.size(2)]
    assert model.table.size(3) == (counts.counts[2] > 1).sum()
    assert model.table.size(4) == (counts.counts[3] > 2).sum() < counts.table.size(4)


def test_what_stays_keeps_its_contexts_of_all_orders():
    tokens_T = np.array([1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 8, 5, 6, 7, 8], np.int32)
    counts = count(tokens_T, Span(2, 15), 4, 9)  # 1 2 3 occurs twice, and 1 2 once: the first one precedes the span
    is_kept = pruning.keep_frequent(counts, (0, 1, 1, 1))
    assert is_kept[2].sum() == 3 and is_kept[3].sum() == 1
    for k in (2, 3, 4):
        for block in counts.table.blocks(k, counts.scratch.block):
            contexts = block.prefixes[is_kept[k - 1][block.nodes]] + block.contexts.start
            assert is_kept[k - 2][contexts].all()


def test_a_pruned_model_is_the_estimate_in_which_seldom_ngrams_have_no_mass(monkeypatch):
    pruned = fit((0, 0, 1, 2))
    monkeypatch.setattr(pruning, 'drop', lambda model, *_: model)
    full = fit((0, 0, 1, 2))
    assert full.table.size(4) > pruned.table.size(4)
    np.testing.assert_allclose(pruned.score(TOKENS, TEST), full.score(TOKENS, TEST), rtol=1e-6)


@pytest.mark.parametrize('thresholds', [(0, 0, 0, 0), (0, 1, 1, 1), (0, 0, 1, 3), (0, 9, 9, 9)])
def test_a_pruned_model_sums_to_one(thresholds):
    contexts_BxN = np.random.default_rng(0).integers(0, 50, (200, 3))
    contexts_BxN[:100] = np.lib.stride_tricks.sliding_window_view(TOKENS, 3)[:100]
    p_BxV = np.exp(fit(thresholds).next_word(contexts_BxN).astype(np.float64))
    np.testing.assert_allclose(p_BxV.sum(1), 1, atol=1e-6)


def test_thresholds_of_zero_change_nothing():
    np.testing.assert_array_equal(fit((0, 0, 0, 0)).score(TOKENS, TEST), fit().score(TOKENS, TEST))


def test_pruning_in_blocks_is_pruning_at_once():
    scratch = Scratch(block=150, in_memory=0)
    blocks = kneser_ney.fit_modified(count(TOKENS, TRAIN, 4, 50, scratch), (0, 0, 1, 1))
    at_once = fit((0, 0, 1, 1))
    for a, b in zip((*blocks.table.keys, *blocks.log_p), (*at_once.table.keys, *at_once.log_p), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_settings_reach_the_model(tmp_path):
    settings = default_settings({'model.family': 'modified_kneser_ney', 'model.n': 3, 'model.bits': 16})
    full = estimation.estimate(settings, DATA, tmp_path)
    assert full.log_p[1].codes.dtype == np.uint16
    settings = default_settings({'model.family': 'modified_kneser_ney', 'model.n': 3, 'model.prune': '0 1'})
    assert estimation.estimate(settings, DATA, tmp_path).table.size(3) < full.table.size(3)


@pytest.mark.parametrize(
    'family, key, value',
    [
        ('kneser_ney', 'model.prune', '0 1'),
        ('modified_kneser_ney', 'model.prune', '1'),
        ('interpolated', 'model.bits', 8),
        ('classes', 'model.bits', 16),
    ],
)
def test_a_model_that_cannot_be_smaller_says_so(family, key, value):
    with refuses(key):
        load_settings({'model.family': family, 'model.n': 3, key: value})
