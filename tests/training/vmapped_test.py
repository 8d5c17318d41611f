"""Runs that train together: what each leaves is what it leaves alone."""

import dataclasses
import functools
import json
import shutil
import signal

import jax
import numpy as np
import pytest
from helpers import launch

from configs import sentences
from nplm_jax import config as config_lib
from nplm_jax.data import dataset
from nplm_jax.distributed import sharding
from nplm_jax.outputs import sampled
from nplm_jax.runs import experiment, loading, reporting, sweeps
from nplm_jax.training import loop, replay, vmapped
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.utils.errors import NonFiniteError

CHEAP = {'output.samples': 7, 'output.num_shortlist': 2, 'output.classes': 3}
NUMBERS = ({'seed': 1}, {'seed': 2}, {'seed': 1, 'optimizer.learning_rate': 0.1, 'optimizer.decay': 1e-2})


def make(numbers=NUMBERS, **changes):
    """Points of three sentences: two dispatches and a validation an epoch of three updates."""
    base = {'model.dropout': 0.1, 'train.epochs': 12, 'train.steps_per_execution': 2, 'train.evaluate_every': 0}
    base |= {'train.patience': 99, 'train.checkpoint_every': 6}
    changes = {key.replace('__', '.'): value for key, value in changes.items()}
    return [sweeps.apply(sentences.get_config(), {**base, **changes, **n, 'name': str(n)}) for n in numbers]


def train(points, folder, together=True):
    outcomes = [
        outcome
        for group in ([points] if together else [[p] for p in points])
        for outcome in vmapped.run([p.config for p in group], [folder / p.name for p in group], 'x')
    ]
    return outcomes


def assert_same(points, folder, other):
    """Of each point the same results, parameters, metrics and files."""
    for point in points:
        one, two = folder / point.name, other / point.name
        assert {p.name for p in one.iterdir()} == {p.name for p in two.iterdir()}
        for name in ('config.json', 'vocabulary.txt', 'corpus.json'):
            assert (one / name).read_bytes() == (two / name).read_bytes()
        first, second = (json.loads((f / 'results.json').read_text()) for f in (one, two))
        for split, perplexity in first['perplexity'].items():
            assert perplexity == pytest.approx(second['perplexity'][split], rel=1e-5)
        for key in ('name', 'seed', 'updates', 'best_update', 'epochs', 'parameters', 'words'):
            assert first[key] == second[key]
        params = [experiment.load(f)[2].params for f in (one, two)]
        for a, b in zip(*map(jax.tree.leaves, params), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        rows = [reporting.read_metrics(f / 'metrics.jsonl') for f in (one, two)]
        assert [(r['step'], sorted(r)) for r in rows[0]] == [(r['step'], sorted(r)) for r in rows[1]]


@pytest.mark.parametrize('kind,optimizer', [('full', 'adam'), ('nce', 'paper'), ('two_level', 'sgd')])
def test_updates_together_are_those_alone(kind, optimizer):
    rates = ({'optimizer.paper.epsilon_0': 0.1}, {'optimizer.paper.r': 1e-2}, {'optimizer.paper.decay': 1e-2})
    numbers = [{**n, **rate} for n, rate in zip(NUMBERS, rates)][-2:]
    points = [
        config_lib.from_config(p.config) for p in make(numbers, output__kind=kind, optimizer__name=optimizer, **CHEAP)
    ]
    data = loading.prepare(points[0])

    def dispatches():
        noise = sampled.for_data(data, points[0].output)
        for wanted in points:
            state = loop.init_state(wanted, len(data.vocabulary), None, 36)
            order_T = dataset.epoch_order(wanted.seed, 0, data.train)
            yield functools.partial(
                loop.train_steps, state, data.tokens_T, order_T, 1, wanted, 36, 2, noise, sharding.ONE_DEVICE
            )

    together = vmapped._make(list(dispatches()), 3)  # one place is filled
    assert len(together) == 2
    for (state, nll_S, _), dispatch in zip(together, dispatches()):
        expected, expected_nll_S = dispatch()
        np.testing.assert_allclose(nll_S, expected_nll_S, rtol=1e-5)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_each_point_gets_what_it_gets_alone_and_stops_early_on_its_own(tmp_path):
    numbers = ({'seed': 2, 'optimizer.learning_rate': 30.0}, *NUMBERS[-2:], {'optimizer.learning_rate': 1e30})
    points = make(numbers, train__patience=1, optimizer__schedule='constant', train__steps_per_dispatch=3)
    together, alone = train(points, tmp_path / 'together'), train(points, tmp_path / 'alone', together=False)
    for folder, diverged in (('together', together.pop()), ('alone', alone.pop())):
        assert isinstance(diverged, NonFiniteError)
        assert str(diverged).startswith('update 2: ') and (tmp_path / folder / points[-1].name / replay.FILE).exists()
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
        with pytest.raises(loop.Interrupted, match='stopped after update 17, which is saved'):
            train(points, tmp_path / 'parts')
    saved = []
    for point in points:
        folder = tmp_path / 'parts' / point.name / 'checkpoints'
        if point is points[0]:  # as if a kill had come before it was saved; it had been given one dispatch more
            shutil.rmtree(folder / '17')
        store = CheckpointStore(folder, read_only=True)
        saved.append(store.latest_step())
        store.close()
    assert saved == [12, 15, 15]
    train(points, tmp_path / 'parts')
    assert_same(points, tmp_path / 'parts', tmp_path / 'whole')
    before = [(tmp_path / 'parts' / p.name / 'results.json').stat().st_mtime_ns for p in points]
    sweeps.run(points, tmp_path / 'parts', 'x')  # a plain sweep sees them finished
    assert before == [(tmp_path / 'parts' / p.name / 'results.json').stat().st_mtime_ns for p in points]


def test_a_signal_after_the_last_update_is_not_lost(tmp_path, monkeypatch, request):
    points = make(NUMBERS[:2], train__epochs=1)
    drawn = []

    def draw(folder, *_):
        drawn.append(folder)
        if len(drawn) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(reporting, 'draw_learning_curve', draw)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with pytest.raises(KeyboardInterrupt):
        train(points, tmp_path)
    assert all((tmp_path / p.name / 'results.json').exists() for p in points)


def test_only_what_differs_in_numbers_goes_together():
    changes = [
        {'seed': 1},
        {'model.h': 3},
        {'seed': 2, 'optimizer.learning_rate': 3.0},
        {'parallel.data': -1},
        {'model.h': 3, 'seed': 5},
        {'parallel.data': -1, 'seed': 2},
        {'model.dropout': 0.2},
    ]
    points = [sweeps.apply(sentences.get_config(), {'name': str(i), **c}) for i, c in enumerate(changes)]
    groups = vmapped.groups([p.config for p in points])
    assert [[c.name for c in group] for group in groups] == [['0', '2'], ['1', '4'], ['3'], ['5'], ['6']]


def test_every_number_is_one_that_does_not_shape_the_program():
    base = config_lib.from_config(sentences.get_config())
    for key in vmapped.NUMBERS:
        changed = vmapped._replaced(base, {key: 7})
        assert changed != base and vmapped._common(changed) == vmapped._common(base)
    assert base == dataclasses.replace(base)  # untouched


def test_the_command_line(tmp_path):
    done = launch('--config=configs/sentences.py', '--vectorize', f'--workdir={tmp_path / "none"}')
    assert (done.returncode, done.stderr) == (
        2,
        '--vectorize: needs --sweep, and not --launcher, which gives each point a process\n',
    ) and not (tmp_path / 'none').exists()
    (tmp_path / 'study.py').write_text(
        'from configs.sentences import get_config\n'
        'def sweep():\n'
        '    for seed in (1, 2):\n'
        '        yield {"seed": seed, "train.epochs": 3}\n'
        '    yield {"model.family": "add_delta", "name": "counts"}\n'
        '    yield {"train.batch_size": 14}\n'
    )
    flags = [f'--config={tmp_path / "study.py"}', '--sweep', '--vectorize', f'--workdir={tmp_path / "runs"}']
    done = launch(*flags)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith('batch_size=14: train.batch_size=14: must be 13 or less')
    assert done.stdout.endswith((tmp_path / 'runs' / 'table.md').read_text())
    assert [line.split('|')[1].strip() for line in done.stdout.splitlines()[-4:]] == [
        'seed=1,epochs=3', 'seed=2,epochs=3', 'counts', 'batch_size=14',
    ]  # fmt: skip
