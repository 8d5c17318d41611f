"""Tests the calibration of the output bias on the validation words."""

import math

import numpy as np
import pytest
from helpers import (
    DATA,
    ENERGY,
    SPARSE,
    RecordingReporter,
    assert_close,
    check_resumed,
    make_model,
    refuses,
    small_settings,
    train,
)

from nplm_jax.inference import perplexity
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS
from nplm_jax.runs import experiment
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import calibration, vmapped
from nplm_jax.training import train as train_lib
from nplm_jax.training.train import fit
from nplm_jax.utils.errors import NonFiniteError

V = len(DATA.vocabulary)
TIED_LSTM = {
    **SPARSE, 'model.family': 'lstm', 'model.h': 3, 'model.tied': True, 'model.direct': False, 'output.kind': 'nce',
    'train.batch_size': 8, 'model.bptt_length': 4,
}  # fmt: skip
CALIBRATE = {'train.calibrate': True}
FAMILIES = {
    'nplm': {},
    'lstm': TIED_LSTM,
    'energy': {
        **SPARSE,
        'model.family': ENERGY,
        'model.direct': False,
        'output.kind': 'nce',
    },
}


def numpy_nll(d_G, probabilities_TxG, groups_T):
    """Returns the mean NLL of the words' groups relative to d = 0, including the Gaussian prior."""
    log_sums_T = np.log(probabilities_TxG @ np.exp(d_G))
    return np.mean(log_sums_T - d_G[groups_T]) + 0.5 * (d_G**2).sum() / len(groups_T)


def test_there_are_two_groups_per_doubling_of_the_count():
    counts_V = np.arange(1, 5000)
    groups_V = calibration.group_by_count(counts_V)
    expected = [1 + math.floor(2 * math.log2(count)) for count in counts_V.tolist()]
    np.testing.assert_array_equal(groups_V, expected)
    assert calibration.group_by_count(np.array([0])) == 0


def test_offsets_minimise_the_nll():
    rng = np.random.default_rng(0)
    probabilities_TxG = rng.dirichlet(np.ones(5), 400)
    groups_T = rng.choice(5, 400, p=[0.5, 0.2, 0.2, 0.1, 0])
    d_G = calibration.fit_offsets(probabilities_TxG.astype(np.float32), groups_T)
    least = numpy_nll(d_G, probabilities_TxG, groups_T)
    for direction in (*np.eye(5), *rng.normal(size=(20, 5))):
        for size in (-0.01, 0.01):
            assert numpy_nll(d_G + size * direction, probabilities_TxG, groups_T) > least
    assert np.isfinite(d_G).all() and d_G[4] == d_G.min()  # no word belongs to the last group


def test_a_model_without_context_gets_the_shares_of_the_groups():
    groups_T = np.repeat([0, 1, 2], [100_000, 300_000, 600_000])
    P_G = np.array([0.7, 0.2, 0.1])
    d_G = calibration.fit_offsets(np.tile(P_G, (len(groups_T), 1)), groups_T)
    calibrated_G = P_G * np.exp(d_G)
    np.testing.assert_allclose(calibrated_G / calibrated_G.sum(), [0.1, 0.3, 0.6], rtol=1e-3)


def test_probabilities_that_float32_rounds_to_zero_give_finite_offsets():
    probabilities_TxG = np.tile(np.array([1, 0], np.float32), (2000, 1))
    d_G = calibration.fit_offsets(probabilities_TxG, np.repeat([0, 1], [1200, 800]))
    assert np.isfinite(d_G).all() and d_G[1] - d_G[0] > 10
    with pytest.raises(NonFiniteError):
        calibration.fit_offsets(np.full((5, 2), np.nan), np.zeros(5, int))


@pytest.mark.parametrize('family', FAMILIES)
def test_group_probabilities_are_sums_of_the_next_words_probabilities(family):
    model, groups_V = make_model(V, FAMILIES[family]), np.arange(V) % 3
    probabilities_TxG = model.group_probabilities(DATA.tokens_T, DATA.valid, groups_V)
    assert probabilities_TxG.shape == (len(DATA.valid), 3)
    np.testing.assert_allclose(probabilities_TxG.sum(axis=1), 1, rtol=1e-5)
    for t in (0, 1, 17, len(DATA.valid) - 1):
        P_V = np.exp(model.next_word(np.asarray(DATA.tokens_T[: DATA.valid.start + t])[None])[0].astype(np.float64))
        np.testing.assert_allclose(probabilities_TxG[t], [P_V[groups_V == g].sum() for g in range(3)], rtol=1e-4)


@pytest.mark.parametrize('family', FAMILIES)
def test_the_calibrated_network_scales_each_words_probability_by_its_groups_factor(family):
    model = make_model(V, FAMILIES[family])
    params = calibration.calibrate(model, DATA)
    calibrated = NeuralLanguageModel(model.network, params)
    d_V = np.asarray(params[BIAS] - model.params[BIAS], np.float64)
    groups_V = calibration.group_by_count(np.bincount(DATA.train_words, minlength=V))
    assert np.ptp(d_V) > 0.1
    for group in np.unique(groups_V):
        np.testing.assert_allclose(d_V[groups_V == group], d_V[groups_V == group][0], atol=1e-6)
    contexts = np.asarray(DATA.tokens_T[:40]).reshape(4, 10)
    scaled_BxV = np.exp(model.next_word(contexts).astype(np.float64) + d_V[None, :])
    expected_BxV = np.log(scaled_BxV / scaled_BxV.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(calibrated.next_word(contexts), expected_BxV, atol=1e-4)
    before, after = (perplexity.perplexity(m, DATA.tokens_T, DATA.valid) for m in (model, calibrated))
    assert after < before


def test_training_ends_with_calibration_which_changes_only_b(tmp_path):
    plain, progress, _ = train(small_settings(), tmp_path / 'plain')
    best, calibrated_progress, reporter = train(small_settings(CALIBRATE), tmp_path / 'calibrated')
    assert calibrated_progress.best_valid_nll == progress.best_valid_nll  # the value before calibration
    network = prepare_run(small_settings(), DATA).program.network
    expected = calibration.calibrate(NeuralLanguageModel(network, plain), DATA)
    for name, value in expected.items():
        np.testing.assert_array_equal(best[name], value, err_msg=name)
        assert (name == BIAS) != (np.asarray(value) == np.asarray(plain[name])).all()
    assert reporter.changes == [
        (
            f'calibration on all {len(DATA.valid)} validation words',
            progress.best_valid_nll,
            pytest.approx(np.log(perplexity.perplexity(NeuralLanguageModel(network, best), DATA.tokens_T, DATA.valid))),
        )
    ]
    again, _, reporter = train(small_settings(CALIBRATE), tmp_path / 'calibrated')  # not applied twice
    assert not reporter.nll and not reporter.changes
    np.testing.assert_array_equal(again[BIAS], best[BIAS])


@pytest.mark.nightly
@pytest.mark.parametrize('family', ('nplm', 'lstm'))
def test_a_stopped_training_ends_with_the_same_bits(family, tmp_path):
    check_resumed(small_settings({**FAMILIES[family], **CALIBRATE}), tmp_path)


def test_runs_that_train_together_are_each_calibrated():
    runs = [prepare_run(small_settings({'seed': seed, **CALIBRATE}), DATA) for seed in (1, 2)]
    together = vmapped.fit_many([train_lib.train(run, None, RecordingReporter()) for run in runs])
    for run, trained in zip(runs, together, strict=True):
        alone = fit(train_lib.train(run, None, RecordingReporter()))
        np.testing.assert_allclose(trained.params[BIAS], alone.params[BIAS], atol=1e-3)


@pytest.mark.eight_devices
def test_on_eight_devices_it_is_that_of_one(tmp_path):
    changes = {'train.batch_size': 8, **CALIBRATE}
    mesh = {'parallel.data': 2, 'parallel.model': 4}  # which does not divide the number of words
    alone, on_mesh = (train(small_settings({**changes, **keys}), tmp_path / str(len(keys)))[0] for keys in ({}, mesh))
    assert V % 4 and on_mesh[BIAS].shape == (V + -V % 4,)
    on_mesh = prepare_run(small_settings({**changes, **mesh}), DATA).program.unshard(on_mesh)
    assert_close(on_mesh, alone, rtol=1e-3, atol=1e-3)


def test_an_output_layer_that_is_no_softmax_over_all_words_is_refused():
    with refuses('train.calibrate'):
        experiment.load_settings({'train.calibrate': True, 'output.kind': 'tree'})
