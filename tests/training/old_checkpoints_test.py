"""Runs of the version before parameters became dictionaries: they load with the same numbers, and training goes on."""

import contextlib
import json
import pathlib
from typing import Any

import flax.struct
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from helpers import default_settings, same_bits, train

from nplm_jax import config as config_lib
from nplm_jax.config import Settings
from nplm_jax.runs import experiment, loading, workdir
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.loop import prepare_run
from nplm_jax.training.step import TrainState

SENTENCES = {
    'corpus.name': 'sentences',
    'model.n': 3,
    'model.m': 2,
    'model.h': 5,
    'optimizer.learning_rate': 0.1,
    'train.batch_size': 4,
    'train.epochs': 4,
    'train.checkpoint_every': 4,
    'train.steps_per_execution': 2,
    'train.bptt_length': 2,
}
WITH_W = {'model.direct': True}
MOMENTUM = {'optimizer.momentum': 0.9, 'optimizer.clip_norm': 1.0}
ADAM = {'optimizer.name': 'adam', 'optimizer.learning_rate': 0.01}
TWO_LEVEL = {'output.kind': 'two_level', 'output.num_shortlist': 3, 'output.classes': 3}
RUNS = {
    'nplm, sgd': {},
    'nplm with W, momentum and clipping': WITH_W | MOMENTUM,
    'nplm without hidden layer, adam': WITH_W | ADAM | {'model.h': 0},
    'nce': {'output.kind': 'nce', 'output.samples': 4},
    'two_level': TWO_LEVEL,
    'two_level with W': TWO_LEVEL | WITH_W,
    'rnn, momentum and clipping': {'model.family': 'rnn'} | MOMENTUM,
    'gru, sgd': {'model.family': 'gru'},
    'lstm, adam': {'model.family': 'lstm'} | ADAM,
}
# As the old version wrote them for configs/sentences.py.
OLD_CORPUS = {
    'words': {'train': 13, 'valid': 13, 'test': 13},
    'sha256': '7ffc642cebfd2dde1a84f88e37622b0fb1c93e6d8dc33f5bc03e33d889894937',
}
OLD_VOCABULARY = (
    '<rare>\t0\n<p>\t3\ni\t3\n<text>\t1\nlike\t1\ndog\t1\nlove\t1\ncoffee\t1\nhate\t1\nmilk\t1\n'  # word, count
)


@flax.struct.dataclass
class OldClassWeights:
    U_GxK: Any
    W_GxP: Any
    b_G: Any
    head: int = flax.struct.field(pytree_node=False)
    words: int = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class OldParams:
    C_VxM: Any
    H_KxP: Any
    d_K: Any
    U_VxK: Any
    W_VxP: Any
    b_V: Any
    classes: OldClassWeights | None = None


@flax.struct.dataclass
class OldCell:
    W_h_KxK: Any
    W_e_KxM: Any
    b_1_K: Any


@flax.struct.dataclass
class OldRecurrentParams:
    C_VxM: Any
    cell: OldCell | dict[str, Any]
    U_VxK: Any
    b_V: Any
    family: str = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class OldTrainState:
    params: Any
    opt_state: Any
    step: Any
    carry: Any = None


def old_params(params: Any, settings: Settings) -> Any:
    """Returns parameters as the old version held them: None for what a network lacks."""
    if (family := settings.model.family) != 'nplm':
        cell = OldCell(**params['cell']) if family == 'rnn' else params['cell']
        return OldRecurrentParams(params['C_VxM'], cell, params['U_VxK'], params['b_V'], family)
    names = ('C_VxM', 'H_KxP', 'd_K', 'U_VxK', 'W_VxP', 'b_V')
    classes = params.get('classes')
    if classes is not None:
        arrays = (classes.get(name) for name in ('U_GxK', 'W_GxP', 'b_G'))
        classes = OldClassWeights(*arrays, head=settings.output.num_shortlist, words=len(params['b_V']))
    return OldParams(*(params.get(name) for name in names), classes)


def old_state(state: TrainState, settings: Settings) -> OldTrainState:
    """Returns a training state as the old version held it."""
    is_params = lambda node: isinstance(node, dict) and 'C_VxM' in node  # noqa: E731
    to_old = lambda node: old_params(node, settings) if is_params(node) else node  # noqa: E731
    opt_state = jax.tree.map(to_old, state.opt_state, is_leaf=is_params)
    return OldTrainState(old_params(state.params, settings), opt_state, state.step, state.carry)


def old_config(settings: Settings) -> dict[str, Any]:
    """Returns what the old version wrote as config.json."""
    config = config_lib.to_dict(settings)
    config['corpus']['marks'] = config['corpus'].pop('boundary_tokens')
    config['output']['head'] = config['output'].pop('num_shortlist')
    config['train']['steps_per_dispatch'] = config['train'].pop('steps_per_execution')
    config['train']['unroll'] = config['train'].pop('bptt_length')
    if config['output']['kind'] == 'two_level':
        config['output']['kind'] = 'classes'
    return config


def write_old_folder(
    folder: pathlib.Path, settings: Settings, state: TrainState, best: Any, progress: dict[str, Any]
) -> None:
    """Writes what the old version left of a run that was stopped after this state."""
    folder.mkdir()
    (folder / workdir.CONFIG).write_text(json.dumps(old_config(settings), indent=2) + '\n')
    (folder / workdir.CORPUS).write_text(json.dumps(OLD_CORPUS, indent=2) + '\n')
    (folder / workdir.VOCABULARY).write_text(OLD_VOCABULARY)
    options = ocp.CheckpointManagerOptions(max_to_keep=3, create=True, enable_async_checkpointing=False)
    names = ('state', 'best', 'progress')
    arrays = jax.tree.map(np.asarray, (old_state(state, settings), old_params(best, settings)))
    items = ocp.args.Composite(
        state=ocp.args.StandardSave(arrays[0]),
        best=ocp.args.StandardSave(arrays[1]),
        progress=ocp.args.JsonSave({**progress, 'checksum': 2349190296}),
    )
    with ocp.CheckpointManager(folder / 'checkpoints', item_names=names, options=options) as manager:
        assert manager.save(progress['step'], args=items)


@pytest.mark.parametrize('changes', RUNS.values(), ids=RUNS.keys())
def test_an_old_run_loads_with_the_same_numbers_and_goes_on_bit_for_bit(tmp_path, changes):
    settings = default_settings({**SENTENCES, **changes})
    data = loading.load_dataset(settings)
    expected, progress, _ = train(settings, tmp_path / 'whole', data=data)
    initial = prepare_run(settings, data).init_state()
    with contextlib.closing(CheckpointStore(tmp_path / 'whole')) as store:
        state, best, saved = store.restore(initial, initial.params, before=progress.step)
    write_old_folder(tmp_path / 'old', settings, state, best, saved)

    loaded, vocabulary, model = experiment.load(tmp_path / 'old')
    assert loaded == settings and vocabulary.words == data.vocabulary.words
    assert model.params.keys() == best.keys() and same_bits(model.params, best)
    resumed, ended, reporter = train(loaded, tmp_path / 'old' / 'checkpoints', data=data)
    assert reporter.started_at == saved['step'] == 8 and ended.step == progress.step == 12
    assert same_bits(resumed, expected)


def test_launching_an_old_run_again_finishes_it_with_the_results_of_an_unbroken_one(tmp_path):
    settings = default_settings({**SENTENCES, **TWO_LEVEL, **WITH_W})
    expected = experiment.run(config_lib.to_dict(settings), tmp_path / 'whole')
    initial = prepare_run(settings, loading.load_dataset(settings)).init_state()
    with contextlib.closing(CheckpointStore(tmp_path / 'whole' / 'checkpoints', read_only=True)) as store:
        state, best, saved = store.restore(initial, initial.params, before=12)
    write_old_folder(tmp_path / 'old', settings, state, best, saved)
    results = experiment.run(old_config(settings), tmp_path / 'old')
    assert results['perplexity'] == expected['perplexity'] and results['updates'] == expected['updates'] == 12
