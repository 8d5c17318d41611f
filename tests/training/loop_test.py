import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from nplm_jax.config import CorpusSettings, ModelSettings, OptimizerSettings, PaperSettings, Settings, TrainSettings
from nplm_jax.data import dataset, vocabulary
from nplm_jax.data.corpora import Corpus, Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models.language_model import NeuralLanguageModel
from nplm_jax.outputs import sampled
from nplm_jax.runs import reporting
from nplm_jax.training import checkpoints, loop, optimizers
from nplm_jax.training.schedule import Progress, make_schedule
from nplm_jax.utils import finite
from nplm_jax.utils.errors import BadInput

BASE = Settings(
    'x',
    CorpusSettings('text'),
    ModelSettings(4, 3, 5, True, unigram_bias=True, dropout=0.1),
    OptimizerSettings('sgd', 0.5, momentum=0.9, decay=1e-4),
    TrainSettings(batch_size=7, epochs=3, checkpoint_every=11, log_every=5, steps_per_execution=4),
)


def changed(**sections):
    parts = {k: dataclasses.replace(getattr(BASE, k), **v) for k, v in sections.items()}
    return dataclasses.replace(BASE, **parts)


def text(words=300, kinds=17):
    """A stream in which each word all but decides the next."""
    rng = np.random.default_rng(0)
    ids = np.cumsum(1 + (rng.random(words) < 0.2)) % kinds
    return Corpus('made up', [f'w{i}' for i in ids], Span(0, 220), Span(220, 260), Span(260, words))


DATA = dataset.from_corpus(text(), vocabulary.build(text().words))


class Silent:
    """A reporter that only remembers."""

    def __init__(self):
        self.nll, self.valid = [], []

    def start(self, progress, plan, batch_size):
        self.started_at = progress.step

    def trained(self, progress, nll_S):
        self.nll.extend(nll_S.tolist())

    def validated(self, progress):
        self.valid.append(progress.valid_nll)


def fit(settings, folder, interrupted=lambda: 0):
    reporter = Silent()
    store = checkpoints.CheckpointStore(folder)
    try:
        return *loop.fit(settings, DATA, store, reporter, interrupted), reporter
    finally:
        store.close()


def fit_in_parts(settings, folder, every):
    """What `fit` returns at last when it is stopped at every n-th look for a signal, and how many looks it took."""
    looks = iter(range(1000))
    while True:
        try:
            return fit(settings, folder, lambda: 15 if next(looks) % every == every - 1 else 0), next(looks)
        except loop.Interrupted as stop:
            assert stop.signal_number == 15


def same_bits(a, b):
    return all(
        (np.asarray(x) == np.asarray(y)).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def test_training_learns(tmp_path):
    settings = changed(
        optimizer=dict(learning_rate=0.1), train=dict(epochs=30, patience=30), model=dict(h=16, m=8, dropout=0.0)
    )
    best, progress, reporter = fit(settings, tmp_path)
    assert progress.step == 30 * (220 // 7) and progress.finished
    model = NeuralLanguageModel(best, 4)
    perplexity = evaluate(model, DATA.tokens_T, DATA.valid).perplexity
    assert perplexity < 5  # the source's own is 1.65; a unigram model reaches 17
    assert progress.best_valid_nll == pytest.approx(np.log(perplexity), rel=1e-6)
    assert len(reporter.valid) == 30 and min(reporter.valid) == progress.best_valid_nll


CHEAP = dict(samples=9, num_shortlist=5, classes=4)


@pytest.mark.parametrize('kind', ['sampled', 'nce', 'two_level'])
def test_cheap_gradients_learn(tmp_path, kind):
    settings = changed(
        optimizer=dict(learning_rate=0.5, momentum=0.0),
        train=dict(epochs=30, patience=30),
        model=dict(h=16, m=8, dropout=0.0),
        output=dict(kind=kind, **CHEAP),
    )
    best, progress, _ = fit(settings, tmp_path)
    perplexity = evaluate(NeuralLanguageModel(best, 4), DATA.tokens_T, DATA.valid).perplexity
    assert perplexity < 5 and progress.best_valid_nll == pytest.approx(np.log(perplexity), rel=1e-6)


SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ('sampled', 'two_level', 'nce')]


@pytest.mark.parametrize('kind', ['full', *SLOW_KINDS])
def test_stopped_anywhere_and_resumed_is_bit_for_bit_the_same(tmp_path, kind):
    settings = changed(output=dict(kind=kind, **CHEAP), optimizer=dict(momentum=0.9 if kind == 'full' else 0.0))
    expected, progress, whole = fit(settings, tmp_path / 'whole')
    done, looks = fit_in_parts(settings, tmp_path / 'parts', 5)
    assert looks >= 24 + 5  # 24 dispatches and five stops
    assert same_bits(done[0], expected)
    drop = dict(seconds=0, train_seconds=0)
    assert dataclasses.replace(done[1], **drop) == dataclasses.replace(progress, **drop)
    assert done[2].nll == whole.nll[len(whole.nll) - len(done[2].nll) :]


def test_a_stop_during_the_last_validation_is_not_missed(tmp_path):
    asked = []

    class Late(Silent):
        def validated(self, progress):
            asked.append(2) if progress.finished else None

    store = checkpoints.CheckpointStore(tmp_path)
    with pytest.raises(loop.Interrupted, match='stopped after update 93, which is saved'):
        loop.fit(BASE, DATA, store, Late(), lambda: asked[0] if asked else 0)
    assert store.latest_step() == 93
    store.close()


def test_a_finished_run_is_not_trained_again(tmp_path):
    best, _, _ = fit(BASE, tmp_path)
    again, progress, reporter = fit(BASE, tmp_path)
    assert same_bits(best, again) and progress.finished and reporter.nll == []


def test_seeds_differ_and_repeat(tmp_path):
    first, second, other = (
        fit(dataclasses.replace(BASE, seed=s), tmp_path / str(i))[0] for i, s in enumerate((1, 1, 2))
    )
    assert same_bits(first, second) and not same_bits(first, other)


def test_early_stopping_keeps_the_best(tmp_path):
    settings = changed(
        optimizer=dict(learning_rate=3.0, schedule='constant', momentum=0.0),
        model=dict(h=64, m=16, dropout=0.0),
        train=dict(epochs=60, patience=3),
    )
    best, progress, reporter = fit(settings, tmp_path)
    assert progress.step < 60 * 31 and len(reporter.valid) == progress.step // 31
    assert progress.evaluations_since_best == 3
    assert np.argmin(reporter.valid) == len(reporter.valid) - 4
    score = evaluate(NeuralLanguageModel(best, 4), DATA.tokens_T, DATA.valid)
    assert score.mean_nll == pytest.approx(min(reporter.valid), rel=1e-6)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    # The rate climbs: the first updates are sound and saved, then it explodes.
    rate = dict(learning_rate=1e9, schedule='linear', warmup=90, momentum=0.0)
    settings = changed(optimizer=rate, train=dict(checkpoint_every=1, steps_per_execution=1))
    with pytest.raises(finite.NonFiniteError, match=r'^(the loss of|.* after) update \d+ is ') as e:
        fit(settings, tmp_path)
    store = checkpoints.CheckpointStore(tmp_path)
    assert store.latest_step() < e.value.seen_at
    state = loop.init_state(settings, len(DATA.vocabulary), None, 93)
    restored = store.restore(state, state.params)[0]
    store.close()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(restored.params))


def test_what_is_not_finite_is_never_saved(tmp_path):
    state = loop.init_state(BASE, len(DATA.vocabulary), None, 93)
    broken = state.replace(params=state.params.replace(d_K=state.params.d_K.at[1].set(jnp.inf)))
    store = checkpoints.CheckpointStore(tmp_path)
    with pytest.raises(finite.NonFiniteError, match='^params.d_K after update 7 is not finite$'):
        loop._save(store, broken, state.params, Progress(step=7))
    assert store.latest_step() is None
    store.close()


def test_a_batch_larger_than_the_corpus_is_refused():
    with pytest.raises(BadInput, match=r'^train.batch_size=221: must be 220 or less, the training words'):
        make_schedule(changed(train=dict(batch_size=221)), DATA.train)
    assert make_schedule(changed(train=dict(batch_size=220)), DATA.train).steps_per_epoch == 1
    with pytest.raises(BadInput, match='^optimizer.warmup=93: must be below 93, all updates of the run$'):
        make_schedule(changed(optimizer=dict(warmup=93)), DATA.train)


def test_the_plan_dispatches_in_two_lengths_only():
    plan = make_schedule(changed(train=dict(steps_per_execution=12)), DATA.train)  # 31 updates an epoch
    pauses = [0]
    while pauses[-1] < plan.total_steps:
        pauses.append(plan.next_boundary(pauses[-1]))
    assert pauses == [0, 12, 24, 31, 43, 55, 62, 74, 86, 93]
    due = [now for before, now in zip(pauses, pauses[1:]) if plan.is_due(20, before, now)]
    assert due == [24, 43, 62, 86, 93]  # at the first pause after 20, 40, 60 and 80, and at the end


def test_many_steps_in_one_dispatch_equal_one_at_a_time():
    order = dataset.epoch_order(1, 0, DATA.train)
    start = lambda: loop.init_state(BASE, len(DATA.vocabulary), None, 93)  # noqa: E731 (donated: one each)
    together, nll = loop.train_steps(start(), DATA.tokens_T, order, 3, BASE, 93, 6)
    state, one_by_one = start(), []
    for first in range(3, 9):
        state, one = loop.train_steps(state, DATA.tokens_T, order, first, BASE, 93, 1)
        one_by_one.extend(one.tolist())
    np.testing.assert_allclose(nll, one_by_one, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(state)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('kind', ['full', 'sampled'])
def test_output_weights_and_their_momentum_keep_the_words_last_in_memory(kind):
    """Read from the compiled loop over updates; where rows are gathered they stay as they are."""
    momentum = 0.9 if kind == 'full' else 0.0
    settings = changed(output={'kind': kind, 'samples': 5}, optimizer={'momentum': momentum})
    V, K, P = len(DATA.vocabulary), settings.model.h, 3 * settings.model.m
    state = loop.init_state(settings, V, None, 9)
    order_T, noise = jnp.arange(100, dtype=jnp.int32), sampled.for_data(DATA, settings.output)
    compiled = loop.train_steps.lower(state, DATA.tokens_T, order_T, 0, settings, 9, 3, noise).compile()
    (carried,) = [
        line.split(' while(')[0]
        for line in compiled.as_text().splitlines()
        if ' while(' in line and f'f32[{V},{K}]' in line and f'f32[{V},{P}]' in line
    ]
    for shape in (f'f32[{V},{K}]', f'f32[{V},{P}]'):
        assert carried.count(f'{shape}{{0,1}}') == (2 if kind == 'full' else 0)
        assert carried.count(f'{shape}{{1,0}}') == (0 if kind == 'full' else 1)


# --- the schedules ---------------------------------------------------------------------------------------


def test_the_papers_schedule_counts_words():
    rate = optimizers.paper_schedule(PaperSettings(1e-3, 1e-8, 0.0), 1)
    assert float(rate(0)) == pytest.approx(1e-3)
    assert float(rate(10**8)) == pytest.approx(5e-4)
    assert float(optimizers.paper_schedule(PaperSettings(1e-3, 1e-8, 0.0), 50)(2 * 10**6)) == pytest.approx(50 * 5e-4)


def test_schedules_end_at_zero_and_warm_up():
    ends = dict(constant=2.0, linear=0.0, cosine=0.0)
    for name, end in ends.items():
        rate = optimizers.schedule(OptimizerSettings('sgd', 2.0, name), 100, 8)
        assert float(rate(0)) == 2 and float(rate(100)) == pytest.approx(end, abs=1e-6)
        rate = optimizers.schedule(OptimizerSettings('sgd', 2.0, name, warmup=10), 100, 8)
        assert [float(rate(s)) for s in (0, 5, 10)] == pytest.approx([0, 1, 2])


@pytest.mark.parametrize('name', ['sgd', 'adam', 'adagrad'])
def test_every_optimizer_lowers_a_loss_and_clips(name):
    loss = lambda p: jnp.sum(jnp.square(p - 3.0))  # noqa: E731
    optimizer = optimizers.build(OptimizerSettings(name, 0.1, 'constant', clip_norm=1e-3), 100, 1)
    params = jnp.zeros(4)
    state = optimizer.init(params)
    moved = []
    for _ in range(20):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
        moved.append(float(loss(params)))
    assert moved == sorted(moved, reverse=True)
    if name == 'sgd':
        assert float(jnp.linalg.norm(params)) == pytest.approx(20 * 0.1 * 1e-3, rel=1e-4)


# --- what is written -------------------------------------------------------------------------------------


def test_metrics_never_hold_an_update_twice(tmp_path):
    def go(store_folder, stop_at=None):
        looks = iter(range(10**6))
        store, reporter = checkpoints.CheckpointStore(store_folder / 'c'), reporting.Reporter(store_folder)
        try:
            loop.fit(BASE, DATA, store, reporter, lambda: 15 if next(looks) == stop_at else 0)
        finally:
            store.close()
            reporter.close()

    for name, stops in (('whole', [None]), ('parts', [9, 4, None])):
        (tmp_path / name).mkdir()
        for stop in stops:
            try:
                go(tmp_path / name, stop)
            except loop.Interrupted:
                with (tmp_path / name / 'metrics.jsonl').open('a') as file:  # a later update, then half a line
                    file.write(
                        json.dumps({'step': 10**6, 'epoch': 1, 'seconds': 9, 'train_perplexity': 1.0})
                        + '\n{"step": 3, "ep'
                    )
    whole, parts = (reporting.read_metrics(tmp_path / n / 'metrics.jsonl') for n in ('whole', 'parts'))
    key = lambda rows: [(r['step'], sorted(set(r) - {'step'})) for r in rows]  # noqa: E731
    assert key(whole) == key(parts)
    assert [r['valid_perplexity'] for r in whole if 'valid_perplexity' in r] == [
        r['valid_perplexity'] for r in parts if 'valid_perplexity' in r
    ]
    figure = reporting.draw_learning_curve(tmp_path / 'parts', 'x', 3.0)
    assert figure.read_bytes().startswith(b'\x89PNG') and figure.name == 'learning_curve.png'
    assert any(p.name.startswith('events') for p in (tmp_path / 'parts' / 'tensorboard').iterdir())
