"""Tests that quantized tables are smaller and that their probabilities still sum to one."""

import numpy as np
import pytest
from helpers import DATA

from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.ngram import arpa, counts, kneser_ney, storage, unsmoothed
from nplm_jax.ngram.quantization import QuantizedArray, compact, quantize
from nplm_jax.ngram.scratch import Scratch

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
TOKENS = np.minimum(np.random.default_rng(1).zipf(1.4, 4000), 299).astype(np.int32)
TRAIN, TEST, V = Span(10, 3500), Span(3500, 4000), 300
PRUNED = (0, 0, 1, 2)


def few_words():
    """Returns a stream in which every word follows every other."""
    return np.random.default_rng(2).integers(0, 4, 4000).astype(np.int32)


MODELS = {
    'modified': lambda: kneser_ney.fit_modified(counts.count(TOKENS, TRAIN, 4, V)),
    'pruned': lambda: kneser_ney.fit_modified(counts.count(TOKENS, TRAIN, 4, V), PRUNED),
    'back-off': lambda: kneser_ney.fit_backoff(counts.count(TOKENS, TRAIN, 4, V)),
    'add_delta': lambda: unsmoothed.add_delta(counts.count(TOKENS, TRAIN, 3, V), 0.1),
    'maximum_likelihood': lambda: unsmoothed.add_delta(counts.count(TOKENS, TRAIN, 3, V)),
    'unsmoothed': lambda: unsmoothed.unsmoothed_backoff(counts.count(TOKENS, TRAIN, 4, V)),
    'all words follow': lambda: kneser_ney.fit_modified(counts.count(few_words(), TRAIN, 4, 4)),
    'all words follow, back-off': lambda: kneser_ney.fit_backoff(counts.count(few_words(), TRAIN, 6, 4)),
    'unigram': lambda: kneser_ney.fit_modified(counts.count(TOKENS, TRAIN, 1, V)),
}


def contexts(size, tokens_T):
    """Returns contexts that occur in training, and others."""
    contexts_BxN = np.random.default_rng(0).integers(0, size, (800, 4))
    contexts_BxN[:600] = np.lib.stride_tricks.sliding_window_view(tokens_T, 4)[:600]
    return contexts_BxN


@pytest.mark.parametrize('bits', [8, 16])
@pytest.mark.parametrize('name', MODELS)
def test_a_quantized_model_sums_to_one_after_every_context(name, bits):
    model = quantize(MODELS[name](), bits)
    size = model.table.vocabulary_size
    tokens_T = TOKENS if size == V else few_words()
    p_BxV = np.exp(model.next_word(contexts(size, tokens_T)).astype(np.float64))
    np.testing.assert_allclose(p_BxV.sum(1), 1, atol=1e-6)


def test_a_quantized_model_sums_to_one_where_rounded_probabilities_exceed_one():
    model = MODELS['modified']()
    rounded = QuantizedArray.of(model.log_p[2], 8, Scratch())
    sums = np.bincount(model.table.prefixes(3), np.exp(np.asarray(rounded)))
    high = np.argsort(sums)[-20:]
    # Give the seen words after these contexts nearly all probability, more than remains after rounding.
    scale = np.ones(len(sums))
    exact = np.bincount(model.table.prefixes(3), np.exp(model.log_p[2]))
    scale[high] = 0.9999 / exact[high]
    model.log_p[2] = model.log_p[2] + np.log(scale)[model.table.prefixes(3)]
    rounded = QuantizedArray.of(model.log_p[2], 8, Scratch())
    assert np.bincount(model.table.prefixes(3), np.exp(np.asarray(rounded))).max() > 1
    words, firsts = model.table.keys[1][high] % V, model.table.keys[1][high] // V
    p_BxV = np.exp(quantize(model, 8).next_word(np.stack([firsts, words], 1)).astype(np.float64))
    np.testing.assert_allclose(p_BxV.sum(1), 1, atol=1e-6)


def test_the_probability_of_words_that_do_not_follow_is_not_lost_to_rounding():
    model, quantized = MODELS['modified'](), quantize(MODELS['modified'](), 8)
    for k in range(2, 5):
        left = [
            1 - np.bincount(model.table.prefixes(k), np.exp(np.asarray(m.log_p[k - 1]))) for m in (model, quantized)
        ]
        assert (left[1] >= left[0] / 2 - 1e-12).all()


@pytest.mark.parametrize('name', ['maximum_likelihood', 'unsmoothed', 'all words follow'])
def test_an_order_that_leaves_nothing_to_other_words_stays_exact(name):
    model = MODELS[name]()
    tokens_T = TOKENS if model.table.vocabulary_size == V else few_words()
    contexts_BxN = contexts(model.table.vocabulary_size, tokens_T)[:, -1:]
    expected = np.isneginf(model.next_word(contexts_BxN))
    np.testing.assert_array_equal(np.isneginf(quantize(model, 8).next_word(contexts_BxN)), expected)


@pytest.mark.parametrize('name', ['modified', 'pruned'])
def test_quantizing_in_blocks_is_quantizing_at_once(name):
    blocks, at_once = quantize(MODELS[name](), 8, Scratch(block=150, in_memory=0)), quantize(MODELS[name](), 8)
    for a, b in zip((*blocks.log_p, *blocks.log_b), (*at_once.log_p, *at_once.log_b), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize('bits, tolerance', [(8, 0.02), (16, 1e-4)])
def test_few_bits_give_nearly_the_same_perplexity(bits, tolerance):
    full = evaluate(MODELS['modified'](), TOKENS, TEST).perplexity
    assert evaluate(quantize(MODELS['modified'](), bits), TOKENS, TEST).perplexity == pytest.approx(full, rel=tolerance)


def test_each_number_becomes_the_nearest_mean_of_bins_of_equally_many():
    values = np.concatenate([-np.random.default_rng(0).exponential(size=5000), np.full(50, -np.inf)])
    array = QuantizedArray.of(values, 8, Scratch())
    read = np.asarray(array)
    assert array.codes.dtype == np.uint8 and array.nbytes < values.nbytes / 5
    np.testing.assert_array_equal(read[-50:], values[-50:])
    assert read.min(where=np.isfinite(read), initial=0) == values.min(where=np.isfinite(values), initial=0)
    sizes = np.bincount(array.codes[:-50])[1:]
    assert len(sizes) == 255 and sizes.max() < 4 * 5000 / 254
    finite = values[:-50]
    nearest = np.abs(finite[:, None] - array.values[1:]).min(1)
    np.testing.assert_array_equal(np.abs(read[:-50] - finite), nearest)
    np.testing.assert_array_equal(array[np.array([3, 5001])], read[[3, 5001]])


def test_few_different_numbers_stay_exact():
    values = np.log(np.random.default_rng(0).integers(1, 200, 3000) / 200)
    np.testing.assert_array_equal(np.asarray(QuantizedArray.of(values, 8, Scratch())), values)


def test_a_quantized_model_comes_back_from_its_file_and_exports(tmp_path):
    model = quantize(kneser_ney.fit_modified(counts.count(DATA.tokens_T, DATA.train, 3, len(DATA.vocabulary))), 8)
    storage.save(model, path := tmp_path / storage.MODEL_FILE)
    loaded = storage.load(path, len(DATA.vocabulary))
    assert isinstance(loaded.log_p[2], QuantizedArray) and loaded.log_p[2].codes.dtype == np.uint8
    np.testing.assert_array_equal(loaded.score(DATA.tokens_T, DATA.test), model.score(DATA.tokens_T, DATA.test))
    arpa.write(loaded, DATA.vocabulary, tmp_path / 'model.arpa')
    read, _ = arpa.read(tmp_path / 'model.arpa')
    scores = (m.score(DATA.tokens_T, DATA.test) for m in (read, model))
    np.testing.assert_allclose(*scores, rtol=1e-4)


@pytest.mark.parametrize('bits, dtype', [(8, np.uint8), (16, np.uint16)])
def test_a_quantized_model_takes_as_few_bits_after_its_arpa_file(tmp_path, bits, dtype):
    tokens_T = np.minimum(np.random.default_rng(1).zipf(1.2, 60000), 2999).astype(np.int32)
    model = quantize(kneser_ney.fit_modified(counts.count(tokens_T, Span(0, 60000), 3, 3000)), bits)
    arpa.write(model, vocabulary(3000), tmp_path / 'model.arpa')
    read = compact(arpa.read(tmp_path / 'model.arpa')[0])
    assert [x.codes.dtype for x in read.log_p[1:]] == [x.codes.dtype for x in model.log_p[1:]] == [dtype] * 2
    assert [x.dtype for x in read.log_b] == [np.float32] * 2
    sizes = [sum(x.nbytes for x in (*m.log_p, *m.log_b)) for m in (read, model)]
    assert sizes[0] <= sizes[1]
    contexts_BxN = contexts(3000, tokens_T)[::20]
    np.testing.assert_allclose(read.next_word(contexts_BxN), model.next_word(contexts_BxN), atol=5e-6)


def test_an_exact_model_stays_exact_after_its_arpa_file(tmp_path):
    model = MODELS['modified']()
    arpa.write(model, vocabulary(V), tmp_path / 'model.arpa')
    read, _ = arpa.read(tmp_path / 'model.arpa')
    for a, b in zip(read.log_p, compact(read).log_p):
        np.testing.assert_array_equal(np.asarray(b), a)


def vocabulary(size):
    return Vocabulary((RARE, *(f'w{i}' for i in range(1, size))), (0,) * size)
