"""Tests smoothing of the rows of rare words with the rows of words that have the same suffix."""

import dataclasses

import numpy as np
import pytest
from helpers import DATA, SPARSE, check_resumed, make_model, refuses, small_settings, train

from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING
from nplm_jax.runs import experiment
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import calibration, suffix_smoothing

V = len(DATA.vocabulary)
WORDS = ['<rare>', 'the', 'walking', 'talking', 'sing', 'morning', 'cat', 'bat', 'at', 'g', 'smirking', 'zzz']
COUNTS_V = np.array([50, 900, 30, 7, 12, 3, 20, 0, 40, 1, 0, 0])
TIED_LSTM = {
    **SPARSE, 'model.family': 'lstm', 'model.h': 3, 'model.tied': True, 'model.direct': False, 'output.kind': 'nce',
    'train.batch_size': 8, 'model.bptt_length': 4,
}  # fmt: skip
SMOOTHED = {'train.suffix_smoothing': 2.0, 'train.calibrate': True}


def mean_of_ending(rows, k, ending):
    """Computes the formula of the module's docstring by recursion, in plain Python."""
    total, weights = np.zeros(rows.shape[1]), 0.0
    for word, count, row in zip(WORDS, COUNTS_V, rows):
        if word[-len(ending) or len(word) :] == ending or not ending:
            total, weights = total + count / (count + k) * row, weights + count / (count + k)
    if not ending:
        return total / weights
    return (total + k * mean_of_ending(rows, k, ending[1:])) / (weights + k)


@pytest.mark.parametrize('k', [0.5, 3.0])
def test_rows_are_those_of_the_formula(k):
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 3)).astype(np.float32)
    smoothed = suffix_smoothing.smooth_rows(rows, WORDS, COUNTS_V, k)
    assert smoothed.dtype == np.float32
    for word, count, row, actual in zip(WORDS, COUNTS_V, rows, smoothed):
        share = count / (count + k)
        expected = share * row + (1 - share) * mean_of_ending(rows, k, word[-4:])
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6, err_msg=word)


def test_a_word_without_occurrences_takes_after_words_with_its_ending():
    rows = np.where([[word.endswith('king')] for word in WORDS], 1.0, -1.0)
    smoothed = dict(zip(WORDS, suffix_smoothing.smooth_rows(rows, WORDS, COUNTS_V, 0.1)))
    assert smoothed['smirking'] > 0.8 and smoothed['zzz'] < -0.4 and smoothed['the'] == pytest.approx(-1, abs=1e-3)


@pytest.mark.parametrize('changes,smoothed', [({}, {EMBEDDING, 'U_VxK', 'W_VxP'}), (TIED_LSTM, {EMBEDDING})])
def test_the_tables_with_a_row_per_word_are_smoothed(changes, smoothed):
    model = make_model(V, changes)
    params = suffix_smoothing.smooth(model.network, model.params, DATA, 2.0)
    changed = {name for name, value in params.items() if value is not model.params[name]}
    assert changed == smoothed and BIAS not in changed
    for name in changed:
        assert params[name].shape == model.params[name].shape and params[name].dtype == model.params[name].dtype
        assert (np.asarray(params[name]) != np.asarray(model.params[name])).any()


def test_training_ends_with_smoothing_and_then_calibration(tmp_path):
    rule = {'optimizer.name': 'adam', 'optimizer.learning_rate': 0.1}  # so smoothing lowers the perplexity
    plain, progress, _ = train(small_settings(rule), tmp_path / 'plain')
    best, smoothed_progress, _ = train(small_settings({**rule, **SMOOTHED}), tmp_path / 'smoothed')
    network = prepare_run(small_settings(), DATA).program.network
    smoothed = suffix_smoothing.smooth(network, plain, DATA, 2.0)
    expected = calibration.calibrate(NeuralLanguageModel(network, smoothed), DATA)
    for name, value in expected.items():
        np.testing.assert_array_equal(best[name], value, err_msg=name)
    assert np.isfinite(smoothed_progress.postprocessed_nll) and np.isinf(progress.postprocessed_nll)
    same = {'seconds': 0.0, 'train_seconds': 0.0, 'postprocessed_nll': 0.0}
    assert dataclasses.replace(smoothed_progress, **same) == dataclasses.replace(progress, **same)


def test_smoothing_that_raises_the_validation_perplexity_is_left_out(tmp_path):
    plain, _, _ = train(small_settings({'train.calibrate': True}), tmp_path / 'plain')
    best, progress, _ = train(small_settings({**SMOOTHED, 'train.suffix_smoothing': 1e9}), tmp_path / 'smoothed')
    for name, value in plain.items():
        np.testing.assert_array_equal(best[name], value, err_msg=name)
    assert np.isfinite(progress.postprocessed_nll)
    _, progress, _ = train(small_settings({'train.suffix_smoothing': 1e9}), tmp_path / 'uncalibrated')
    assert np.isinf(progress.postprocessed_nll)


@pytest.mark.nightly
@pytest.mark.parametrize('changes', [{}, TIED_LSTM], ids=['nplm', 'tied lstm'])
def test_a_stopped_training_ends_with_the_same_bits(changes, tmp_path):
    check_resumed(small_settings({**changes, **SMOOTHED}), tmp_path)


def test_an_output_layer_that_is_no_softmax_over_all_words_is_refused():
    with refuses('train.suffix_smoothing'):
        experiment.load_settings({'train.suffix_smoothing': 2.0, 'output.kind': 'two_level'})
