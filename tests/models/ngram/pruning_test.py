"""Tables without seldom n-grams, and with few bits a number."""

import numpy as np
import pytest
from helpers import DATA, default_settings

from nplm_jax.data.corpora import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models.ngram import arpa, factory, kneser_ney, pruning, storage
from nplm_jax.models.ngram.counts import count
from nplm_jax.models.ngram.quantization import QuantizedArray, quantize
from nplm_jax.models.ngram.scratch import Scratch
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.models.ngram.kneser_ney.DiscountWarning')
TOKENS = np.minimum(np.random.default_rng(1).zipf(1.4, 4000), 49).astype(np.int32)
TRAIN, TEST = Span(10, 3500), Span(3500, 4000)


def fit(thresholds=()):
    return kneser_ney.fit_modified(TOKENS, TRAIN, 4, 50, thresholds)


@pytest.mark.parametrize('text, thresholds', [('0', (0, 0, 0, 0)), ('0 0 1', (0, 0, 1, 1)), ('0 1 2 3', (0, 1, 2, 3))])
def test_the_last_threshold_is_that_of_the_orders_above(text, thresholds):
    assert pruning.parse_thresholds('ngram.prune', text, 4) == thresholds


@pytest.mark.parametrize('text', ['', '1', '0 2 1', '0 0 0 0 1', '0 -1', '0,1', '0 x', '0 99999999999'])
def test_other_thresholds_are_refused(text):
    with pytest.raises(BadInput, match=f'ngram.prune={text!r}: must be 1 to 4 numbers'):
        pruning.parse_thresholds('ngram.prune', text, 4)


def test_thresholds_that_leave_no_ngram_of_an_order_are_refused():
    with pytest.raises(BadInput, match="ngram.prune='0 9 9 9999': leaves no n-gram of order 4; give smaller numbers"):
        fit((0, 9, 9, 9999))


def test_the_ngrams_that_stay_are_those_above_the_threshold():
    counts, model = count(TOKENS, TRAIN, 4, 50), fit((0, 0, 1, 2))
    assert [model.table.size(k) for k in (1, 2)] == [50, counts.table.size(2)]
    assert model.table.size(3) == (counts.counts[2] > 1).sum()
    assert model.table.size(4) == (counts.counts[3] > 2).sum() < counts.table.size(4)


def test_what_stays_keeps_its_contexts_of_all_orders():
    tokens_T = np.array([1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 8, 5, 6, 7, 8], np.int32)
    counts = count(tokens_T, Span(2, 15), 4, 9)  # 1 2 3 occurs twice, and 1 2 once: the first one is before the span
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
    blocks = kneser_ney.fit_modified(TOKENS, TRAIN, 4, 50, (0, 0, 1, 1), scratch)
    at_once = fit((0, 0, 1, 1))
    for a, b in zip((*blocks.table.keys, *blocks.log_p), (*at_once.table.keys, *at_once.log_p), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('bits, tolerance', [(8, 0.02), (16, 1e-6)])
def test_few_bits_give_nearly_the_same_perplexity(bits, tolerance):
    full = evaluate(fit(), TOKENS, TEST).perplexity
    assert evaluate(quantize(fit(), bits), TOKENS, TEST).perplexity == pytest.approx(full, rel=tolerance)


def test_each_number_becomes_the_nearest_mean_of_bins_of_equally_many():
    values = np.concatenate([-np.random.default_rng(0).exponential(size=5000), np.zeros(50), np.full(50, -np.inf)])
    array = quantize_values(values, 8)
    read = np.asarray(array)
    assert array.codes.dtype == np.uint8 and array.nbytes < values.nbytes / 5
    np.testing.assert_array_equal(read[-100:], values[-100:])
    sizes = np.bincount(array.codes[:-100])[2:]
    assert len(sizes) == 254 and sizes.max() < 4 * 5000 / 254
    finite = values < 0
    finite[-50:] = False
    nearest = np.abs(values[finite, None] - array.values[2:]).min(1)
    np.testing.assert_array_equal(np.abs(read[finite] - values[finite]), nearest)
    np.testing.assert_array_equal(array[np.array([3, 5001])], read[[3, 5001]])


def test_few_different_numbers_stay_exact():
    values = np.log(np.random.default_rng(0).integers(1, 200, 3000) / 200)
    np.testing.assert_array_equal(np.asarray(quantize_values(values, 8)), values)


def quantize_values(values, bits):
    model = fit()
    model.log_p[1] = values
    return quantize(model, bits).log_p[1]


def test_a_quantized_model_comes_back_from_its_file_and_exports(tmp_path):
    model = quantize(kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 3, len(DATA.vocabulary)), 8)
    storage.save(model, path := tmp_path / 'model.npz')
    loaded = storage.load(path, len(DATA.vocabulary))
    assert isinstance(loaded.log_p[2], QuantizedArray) and loaded.log_p[2].codes.dtype == np.uint8
    np.testing.assert_array_equal(loaded.score(DATA.tokens_T, DATA.test), model.score(DATA.tokens_T, DATA.test))
    arpa.write(loaded, DATA.vocabulary, tmp_path / 'model.arpa')
    read, _ = arpa.read(tmp_path / 'model.arpa')
    scores = (m.score(DATA.tokens_T, DATA.test) for m in (read, model))
    np.testing.assert_allclose(*scores, rtol=1e-4)


def test_the_settings_reach_the_model(tmp_path):
    settings = default_settings({'model.family': 'modified_kneser_ney', 'model.n': 3, 'ngram.bits': 16})
    full = factory.estimate(settings, DATA, tmp_path)
    assert full.log_p[1].codes.dtype == np.uint16
    settings = default_settings({'model.family': 'modified_kneser_ney', 'model.n': 3, 'ngram.prune': '0 1'})
    assert factory.estimate(settings, DATA, tmp_path).table.size(3) < full.table.size(3)


@pytest.mark.parametrize(
    'family, key, value',
    [
        ('kneser_ney', 'ngram.prune', '0 1'),
        ('modified_kneser_ney', 'ngram.prune', '1'),
        ('interpolated', 'ngram.bits', 8),
        ('classes', 'ngram.bits', 16),
    ],
)
def test_a_model_that_cannot_be_smaller_says_so(family, key, value):
    settings = default_settings({'model.family': family, 'model.n': 3, key: value})
    with pytest.raises(BadInput, match=f'^{key}='):
        factory.check_settings(settings)
