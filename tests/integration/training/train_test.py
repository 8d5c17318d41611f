import contextlib
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    DATA,
    IMPORTANCE,
    SPARSE,
    RecordingReporter,
    numbers,
    others_nightly,
    same_bits,
    small_settings,
    train,
    train_in_parts,
)

from nplm_jax.inference.perplexity import evaluate, evaluate_sample
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting import figures
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.runs import evaluation
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import train as train_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.train import Interrupted, fit, restore_or_init
from nplm_jax.training.training_run import ChunkResult
from nplm_jax.utils.errors import NonFiniteError

BASE = small_settings()
LONG = {
    'model.h': 16,
    'model.m': 8,
    'model.dropout': 0.0,
    'train.epochs': 30,
    'train.patience': 30,
    'train.steps_per_execution': 31,
}


def validation_score(settings, params):
    network = network_from_settings(settings, len(DATA.vocabulary))
    return evaluate(NeuralLanguageModel(network, params), DATA.tokens_T, DATA.valid)


def train_unsaved(settings):
    """Trains to the end without checkpoints. Returns the best parameters, progress and reporter."""
    reporter = RecordingReporter()
    best, _, progress = fit(train_lib.train(prepare_run(settings, DATA), None, reporter))
    return best, progress, reporter


def test_training_learns():
    best, progress, reporter = train_unsaved(settings := small_settings({**LONG, 'optimizer.learning_rate': 0.1}))
    assert progress.step == 30 * (220 // 7) and progress.finished
    perplexity = validation_score(settings, best).perplexity
    assert perplexity < 5  # the source's own is 1.65; a unigram model reaches 17
    assert progress.best_valid_nll == pytest.approx(np.log(perplexity), rel=1e-6)
    assert len(reporter.valid) == 30 and min(reporter.valid) == progress.best_valid_nll


def test_a_validation_during_training_predicts_a_sample_and_the_last_evaluation_all_words():
    settings = small_settings({'train.valid_words': 20})
    best, scores, progress = fit(train_lib.train(prepare_run(settings, DATA), None, reporter := RecordingReporter()))
    model = NeuralLanguageModel(network_from_settings(settings, len(DATA.vocabulary)), best)
    sampled = evaluate_sample(model, DATA.tokens_T, DATA.valid, 20)
    assert reporter.sampled_words == sampled.words < len(DATA.valid)
    whole = RecordingReporter()
    next(train_lib.train(prepare_run(small_settings(), DATA), None, whole))
    assert whole.sampled_words == 0
    assert progress.best_valid_nll == pytest.approx(sampled.nll_per_word, rel=1e-6)
    valid = evaluation.measure(model, DATA, settings.eval, None, scores)['perplexity']['valid']
    assert valid == pytest.approx(validation_score(settings, best).perplexity, rel=1e-6)


@pytest.mark.parametrize('kind', others_nightly(['sampled', 'nce', 'two_level', IMPORTANCE], ('sampled', 'two_level')))
def test_sparse_gradients_learn(kind):
    settings = small_settings({**LONG, **SPARSE, 'output.kind': kind})
    best, progress, _ = train_unsaved(settings)
    perplexity = validation_score(settings, best).perplexity
    assert perplexity < 5 and progress.best_valid_nll == pytest.approx(np.log(perplexity), rel=1e-6)


def test_samples_are_logged_and_change_no_bit():
    best, _, silent = train_unsaved(BASE)
    sampled_best, _, reporter = train_unsaved(small_settings({'train.sample_words': 5}))
    assert same_bits(best, sampled_best) and reporter.nll == silent.nll and reporter.valid == silent.valid
    assert not silent.samples and len(reporter.samples) == len(reporter.valid)
    assert all(len(text.split()) == 5 for text in reporter.samples)


@pytest.mark.parametrize('kind', others_nightly(['full', 'sampled', 'two_level', 'nce'], ('full',)))
def test_stopped_anywhere_and_resumed_is_bit_for_bit_the_same(tmp_path, kind):
    rule = {'optimizer.name': 'adam', 'optimizer.learning_rate': 0.01} if kind == 'full' else {}
    settings = small_settings({**SPARSE, **rule, 'output.kind': kind})
    expected, progress, unbroken = train(settings, tmp_path / 'whole')
    (best, last_progress, last_reporter), looks = train_in_parts(settings, tmp_path / 'parts', 5)
    assert looks >= 24 + 5  # 24 chunks and five stops
    assert same_bits(best, expected)
    no_times = {'seconds': 0, 'train_seconds': 0}
    assert dataclasses.replace(last_progress, **no_times) == dataclasses.replace(progress, **no_times)
    assert last_reporter.nll == unbroken.nll[len(unbroken.nll) - len(last_reporter.nll) :]


def test_a_stop_during_the_last_validation_is_not_missed(tmp_path):
    signals = []

    class SignalAtTheEnd(RecordingReporter):
        def validated(self, progress):
            signals.append(2) if progress.finished else None

    with pytest.raises(Interrupted, match=r'\b93\b'):
        train(BASE, tmp_path, lambda: signals[0] if signals else 0, reporter=SignalAtTheEnd())
    with contextlib.closing(CheckpointStore(tmp_path)) as store:
        assert store.latest_step() == 93


def test_a_finished_run_is_not_trained_again(tmp_path):
    best, _, _ = train(BASE, tmp_path)
    again, progress, reporter = train(BASE, tmp_path)
    assert same_bits(best, again) and progress.finished and reporter.nll == []


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path):
    first, again, second = (
        train(small_settings({'seed': seed}), tmp_path / str(i))[0] for i, seed in enumerate((1, 1, 2))
    )
    assert same_bits(first, again) and not same_bits(first, second)


def test_early_stopping_keeps_the_best():
    changes = {'optimizer.learning_rate': 3.0, 'optimizer.schedule': 'constant'}
    shape = {'model.h': 64, 'model.m': 16, 'model.dropout': 0.0, 'train.epochs': 60, 'train.patience': 3}
    settings = small_settings({**changes, **shape})
    best, progress, reporter = train_unsaved(settings)
    assert progress.step < 60 * 31 and len(reporter.valid) == progress.step // 31
    assert progress.evaluations_since_best == 3
    assert np.argmin(reporter.valid) == len(reporter.valid) - 4
    assert validation_score(settings, best).nll_per_word == pytest.approx(min(reporter.valid), rel=1e-6)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    # The rate grows: the first updates are finite and saved, and the loss then explodes.
    climb = {'optimizer.learning_rate': 1e9, 'optimizer.schedule': 'linear', 'optimizer.warmup': 90}
    often = {'train.checkpoint_every': 1, 'train.steps_per_execution': 1}
    settings = small_settings({**climb, **often})
    with pytest.raises(NonFiniteError) as raised:
        train(settings, tmp_path)
    with contextlib.closing(CheckpointStore(tmp_path)) as store:
        assert store.latest_step() < int(numbers(str(raised.value))[0])
        state, _, progress = restore_or_init(prepare_run(settings, DATA), store)
    assert progress.step >= 1 and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


def test_what_is_not_finite_is_never_saved(tmp_path):
    settings = small_settings({'train.checkpoint_every': 4, 'train.log_every': 50})  # no other check is due at update 4
    run = prepare_run(settings, DATA)
    state = run.init_state()
    broken = state.replace(params={**state.params, 'd_K': state.params['d_K'].at[1].set(jnp.inf)})
    with contextlib.closing(CheckpointStore(tmp_path)) as store:
        next(training := train_lib.train(run, store, Reporter()))
        with pytest.raises(NonFiniteError, match=r'^params\.d_K .*\b4\b'):
            training.send(ChunkResult(broken, np.ones(4), seconds=1.0))
        assert store.latest_step() is None


def test_a_run_without_a_store_and_a_reporter_trains_the_same(tmp_path):
    expected, _, _ = train(BASE, tmp_path)
    best, _, progress = fit(train_lib.train(prepare_run(BASE, DATA), None, Reporter()))
    assert same_bits(best, expected) and progress.finished


def test_metrics_never_hold_an_update_twice(tmp_path):
    def train_and_write(folder, stop_at=None):
        looks = iter(range(10**6))
        with contextlib.closing(reporting.Reporter(folder)) as reporter:
            train(BASE, folder / 'c', lambda: 15 if next(looks) == stop_at else 0, reporter=reporter)

    for name, stops in (('whole', [None]), ('parts', [9, 4, None])):
        (tmp_path / name).mkdir()
        for stop in stops:
            try:
                train_and_write(tmp_path / name, stop)
            except Interrupted:
                with (tmp_path / name / 'metrics.jsonl').open('a') as file:  # a later update, then half a line
                    later = {'step': 10**6, 'epoch': 1, 'seconds': 9, 'train_perplexity': 1.0}
                    file.write(json.dumps(later) + '\n{"step": 3, "ep')
    whole, parts = (reporting.read_metrics(tmp_path / n / 'metrics.jsonl') for n in ('whole', 'parts'))
    keys = lambda rows: [(row['step'], sorted(set(row) - {'step'})) for row in rows]  # noqa: E731
    assert keys(whole) == keys(parts)
    perplexities = [[row['valid_perplexity'] for row in rows if 'valid_perplexity' in row] for rows in (whole, parts)]
    assert perplexities[0] == perplexities[1]
    figure = figures.draw_learning_curve(tmp_path / 'parts', 'x', 3.0)
    assert figure.read_bytes().startswith(b'\x89PNG') and figure.name == 'learning_curve.png'
    assert any(p.name.startswith('events') for p in (tmp_path / 'parts' / 'tensorboard').iterdir())
