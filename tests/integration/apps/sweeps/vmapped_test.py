"""Tests that runs trained together give the same results and files as separate runs."""

import contextlib
import functools
import json
import shutil
import signal

import jax
import numpy as np
import pytest
from helpers import (
    IMPORTANCE,
    fitted,
    launch,
    launch_process,
    numbers,
    one_line,
    others_nightly,
    register,
    run_chunk,
    same_bits,
)

from configs import sentences
from nplm_jax.apps.sweeps import sweep_points, sweeps, together
from nplm_jax.apps.sweeps.together import run_many
from nplm_jax.config import settings as config_lib
from nplm_jax.reporting import figures
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import vmapped
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.step import execute_steps, train_steps
from nplm_jax.training.train import Interrupted
from nplm_jax.utils.errors import NonFiniteError

SPARSE = {'output.samples': 7, 'output.num_shortlist': 2, 'output.classes': 3}
POINTS = ({'seed': 1}, {'seed': 2}, {'seed': 1, 'optimizer.learning_rate': 0.1, 'optimizer.decay': 1e-2})


def make(points=POINTS, changes=None):
    """Returns points of a sweep on three sentences; an epoch has three updates, two chunks and one validation."""
    base = {'model.dropout': 0.1, 'train.epochs': 12, 'train.steps_per_execution': 2, 'train.evaluate_every': 0}
    base |= {'train.patience': 99, 'train.checkpoint_every': 6, **(changes or {})}
    config, made = sentences.get_config(), []
    for point in points:
        made.append(sweep_points.apply(fitted(config, {**base, **point}), {'name': str(point)}))
    return made


def train(points, folder, together=True):
    """Returns the outcome of each point."""
    groups = [points] if together else [[point] for point in points]
    return [
        outcome
        for group in groups
        for outcome in run_many([p.settings for p in group], [folder / p.name for p in group], 'x')
    ]


def assert_same(points, folder, expected_folder):
    """Checks that each point has the same results, parameters, metrics and files in both folders."""
    for point in points:
        one, two = folder / point.name, expected_folder / point.name
        assert {p.name for p in one.iterdir()} == {p.name for p in two.iterdir()}
        for name in ('config.json', 'vocabulary.txt', 'corpus.json'):
            assert (one / name).read_bytes() == (two / name).read_bytes()
        first, second = (json.loads((f / 'results.json').read_text()) for f in (one, two))
        for split, perplexity in first['perplexity'].items():
            assert perplexity == pytest.approx(second['perplexity'][split], rel=1e-5)
        for key in ('name', 'seed', 'updates', 'best_update', 'epochs', 'parameters', 'words'):
            assert first[key] == second[key]
        params = [experiment.load(f).model.params for f in (one, two)]
        for a, b in zip(*map(jax.tree.leaves, params), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        rows = [reporting.read_metrics(f / 'metrics.jsonl') for f in (one, two)]
        assert [(r['step'], sorted(r)) for r in rows[0]] == [(r['step'], sorted(r)) for r in rows[1]]


LSTM = {'model.family': 'lstm', 'model.bptt_length': 2}


@pytest.mark.nightly
@pytest.mark.parametrize(
    'changes',
    [
        {'output.kind': 'full', 'optimizer.name': 'adam'},
        {'output.kind': 'nce', 'optimizer.name': 'paper'},
        {'output.kind': 'two_level', 'optimizer.name': 'sgd'},
        {'output.kind': IMPORTANCE, 'optimizer.name': 'sgd'},
        {'output.kind': 'sampled', 'optimizer.name': 'adam', **LSTM},
        {'output.kind': 'nce', 'optimizer.name': 'rowwise_adam'},
    ],
    ids=lambda changes: ' '.join(changes[key] for key in ('output.kind', 'optimizer.name')),
)
def test_updates_together_are_those_alone(changes):
    rates = ({'optimizer.r': 1e-2}, {'optimizer.decay': 1e-2})
    common = {'model.dropout': 0.1, 'train.epochs': 12, 'train.steps_per_execution': 2, **SPARSE, **changes}
    points = [{**common, **point, **rate} for point, rate in zip(POINTS[-2:], rates)]
    settings = [config_lib.from_config(fitted(sentences.get_config(), point)) for point in points]
    data = loading.load_dataset(settings[0])
    runs = [prepare_run(s, data) for s in settings]
    chunks = [run.chunk(run.init_state(), 1) for run in runs]
    together = vmapped.run_chunks(chunks, 3)  # one place is padding
    assert len(together) == 2
    for (state, nll_S, _), chunk in zip(together, chunks):
        expected, expected_nll_S = run_chunk(chunk)
        np.testing.assert_allclose(nll_S, expected_nll_S, rtol=1e-5)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_each_point_gets_what_it_gets_alone_and_stops_early_alone(tmp_path):
    changes = {'train.patience': 1, 'optimizer.schedule': 'constant', 'train.steps_per_execution': 3}
    diverging = {'optimizer.learning_rate': 1e30}
    points = make(({'seed': 2, 'optimizer.learning_rate': 30.0}, *POINTS[-2:], diverging), changes)
    together, alone = train(points, tmp_path / 'together'), train(points, tmp_path / 'alone', together=False)
    for folder, diverged in (('together', together.pop()), ('alone', alone.pop())):
        assert isinstance(diverged, NonFiniteError)
        assert numbers(str(diverged))[0] in ('2', '3')  # sums in another order overflow one update later
        assert not (tmp_path / folder / points[-1].name / 'results.json').exists()
    assert_same(points[:-1], tmp_path / 'together', tmp_path / 'alone')
    assert [r.get('trained_together') for r in together + alone] == [4] * 3 + [None] * 3
    updates = [r['updates'] for r in together]
    assert updates[0] < max(updates) == 36


def test_stopped_by_a_signal_and_resumed_it_ends_the_same(tmp_path, monkeypatch):
    points = make()
    train(points, tmp_path / 'whole')
    validated = reporting.Reporter.validated

    def stop(self, progress):
        validated(self, progress)
        if progress.step == 15 and self._label.startswith(points[1].name):
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(reporting.Reporter, 'validated', stop)
        with pytest.raises(Interrupted, match=r'\b15\b'):
            train(points, tmp_path / 'parts')
    saved = []
    for point in points:
        folder = tmp_path / 'parts' / point.name / 'checkpoints'
        if point is points[0]:  # as if the process had been killed before the save
            shutil.rmtree(folder / '15')
        with contextlib.closing(CheckpointStore(folder, read_only=True)) as store:
            saved.append(store.latest_step())
    assert saved == [12, 15, 15]
    train(points, tmp_path / 'parts')
    assert_same(points, tmp_path / 'parts', tmp_path / 'whole')
    written = lambda: [(tmp_path / 'parts' / p.name / 'results.json').stat().st_mtime_ns for p in points]  # noqa: E731
    before = written()
    sweeps.run(points, tmp_path / 'parts', 'x')  # an ordinary sweep recognizes that they are finished
    assert written() == before


def test_a_signal_after_the_last_update_is_not_lost(tmp_path, monkeypatch):
    points = make(POINTS[:2], {'train.epochs': 1})
    drawn = []

    def draw(folder, *_):
        drawn.append(folder)
        if len(drawn) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(figures, 'draw_learning_curve', draw)
    with pytest.raises(KeyboardInterrupt):
        train(points, tmp_path)
    assert all((tmp_path / p.name / 'results.json').exists() for p in points)


def test_only_runs_that_differ_in_hyperparameters_are_grouped():
    changes = [
        {'seed': 1},
        {'model.h': 3},
        {'seed': 2, 'optimizer.learning_rate': 3.0},
        {'parallel.data': -1},
        {'model.h': 3, 'seed': 5},
        {'parallel.data': -1, 'seed': 2},
        {'model.dropout': 0.2},
        {'optimizer.clip_norm': 0.9},
    ]
    points = [sweep_points.apply(sentences.get_config(), {'name': str(i), **c}) for i, c in enumerate(changes)]
    settings = [point.settings for point in points]
    assert together.group_compatible(settings) == [[0, 2], [1, 4], [3], [5], [6], [7]]


@pytest.mark.parametrize(
    'rule,output',
    others_nightly(
        [('sgd', 'full'), ('sgd', 'nce'), ('paper', 'nce'), ('optax:lion', 'full')], ('paper', 'optax:lion')
    ),
)
def test_runs_that_differ_in_traced_values_share_a_program_and_each_has_its_own_values(rule, output):
    rate = {'optimizer.epsilon_0': 0.1} if rule == 'paper' else {}
    base = {'train.epochs': 1, 'optimizer.name': rule, 'output.kind': output, **rate}
    first = config_lib.from_config(fitted(sentences.get_config(), base))
    changes = {'seed': 7, **{f'optimizer.{name}': 0.05 for name in first.optimizer.traced}}
    settings = [first, *(config_lib.replace(first, {key: value}) for key, value in changes.items())]
    assert together.group_compatible(settings) == [list(range(len(settings)))]
    data = loading.load_dataset(first)
    runs = [prepare_run(s, data) for s in settings]
    assert len({run.program for run in runs}) == 1
    execute_steps.clear_cache()  # another test may have compiled the program
    ends = [run_chunk(run.chunk(run.init_state(), 0))[0] for run in runs]
    assert execute_steps._cache_size() == 1
    for s, run, end in zip(settings, runs, ends):
        compiled_anew = jax.jit(functools.partial(train_steps), static_argnums=(0, 4))
        assert same_bits(compiled_anew(*run.chunk(run.init_state(), 0))[0], end)
        assert end.opt_state.hyperparams == {k: np.float32(v) for k, v in s.optimizer.hyperparams.items()}
        assert end.seed == s.seed and (run is runs[0] or not same_bits(end.params, ends[0].params))


@pytest.mark.nightly
def test_the_command_line(tmp_path):
    process = launch('--config=configs/sentences.py', '--vectorize', f'--workdir={tmp_path / "none"}')
    one_line(process.stderr, '--vectorize')
    assert process.returncode == 2 and not (tmp_path / 'none').exists()
    (tmp_path / 'study.py').write_text(
        'from configs.sentences import get_config\n'
        'def sweep():\n'
        '    for seed in (1, 2):\n'
        '        yield {"seed": seed, "train.epochs": 3}\n'
        '    yield {"model.family": "add_delta", "name": "counts"}\n'
        '    yield {"train.batch_size": 14}\n'
    )
    flags = [f'--config={tmp_path / "study.py"}', '--sweep', '--vectorize', f'--workdir={tmp_path / "runs"}']
    process = launch_process(*flags)  # each core is a device
    assert process.returncode == 0, process.stderr
    assert process.stderr.startswith('batch_size_14: train.batch_size=14: ')
    table, figure = (tmp_path / 'runs' / 'table.md').read_text(), tmp_path / 'runs' / 'table.png'
    best, last = process.stdout.splitlines()[-2:]
    assert process.stdout.endswith(f'{table}{best}\n{last}\n') and best.startswith('Best on validation: ')
    assert last == f'Figure: {figure}' and figure.exists()
    assert [line.split('|')[1].strip() for line in table.splitlines()[-4:]] == [
        'seed_1__epochs_3', 'seed_2__epochs_3', 'counts', 'batch_size_14',
    ]  # fmt: skip


def test_a_sweep_over_rate_and_decay_compiles_its_updates_once(tmp_path):
    rates = [
        {'optimizer.learning_rate': rate, 'optimizer.decay': decay} for rate in (0.1, 0.2, 0.5) for decay in (0.0, 1e-3)
    ]
    points = make(rates, {'train.epochs': 2, 'train.steps_per_execution': 3, 'model.h': 6})  # one chunk per epoch
    execute_steps.clear_cache()  # as above
    sweeps.run(points, tmp_path, 'x')
    assert len(points) == 6 and execute_steps._cache_size() == 1


def test_runs_of_a_new_body_that_train_together_end_as_each_alone(monkeypatch, tmp_path):
    register(monkeypatch, 'model.family', 'bag', 'bag_of_features:BagOfFeatures')
    config = config_lib.override(sentences.get_config(), {'model.family': 'bag', 'train.epochs': 2})
    sampled = {'output.kind': 'nce', 'output.samples': 5}
    changes = [{'seed': 1}, {'seed': 2}, {'seed': 1, 'optimizer.learning_rate': 0.1}]
    configs = [experiment.load_settings(config_lib.override(config, sampled | change)) for change in changes]
    results = run_many(configs, [tmp_path / f'together{i}' for i in range(3)], 'x')
    assert [result['trained_together'] for result in results] == [3, 3, 3]
    perplexities = [result['perplexity']['test'] for result in results]
    assert len(set(perplexities)) == 3
    alone = experiment.run(configs[2], tmp_path / 'alone')
    assert perplexities[2] == pytest.approx(alone['perplexity']['test'], rel=1e-5)
