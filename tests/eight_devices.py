"""Training over eight simulated devices against one; parallel_test.py runs this file in a process that has them."""

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import loop_test as one
import numpy as np
import pytest
from loop_test import DATA, same_bits

from experiments.parallel import counts, program
from nplm_jax.config import ModelSettings, OutputSettings, ParallelSettings
from nplm_jax.data import dataset, vocabulary
from nplm_jax.data.corpora import Corpus, Span
from nplm_jax.distributed import sharding
from nplm_jax.distributed.sharding import Layout, make_mesh
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import nplm
from nplm_jax.models.language_model import NeuralLanguageModel
from nplm_jax.outputs import sampled
from nplm_jax.training import checkpoints, loop, objective, replay
from nplm_jax.utils.errors import BadInput, NonFiniteError

MESHES = [(1, 1), (8, 1), (1, 8), (4, 2), (2, 4)]
LAYOUTS = [(*mesh, 'shard_map') for mesh in MESHES] + [(8, 1, 'pmap')]
V = len(DATA.vocabulary)
BASE = one.changed(train=dict(batch_size=16), optimizer=dict(learning_rate=0.05, clip_norm=1.0))
LOSSES = jax.jit(
    jax.value_and_grad(objective.penalised_nll, has_aux=True), static_argnames=('decay', 'dropout', 'output', 'layout')
)


def layout_of(data, model, mode='shard_map'):
    return Layout(make_mesh(data, model), mode)


@functools.cache
def losses_on_one_device(model, output):
    """(|V|, parameters, the rest of what LOSSES takes, what it gives)."""
    words, random = 101, np.random.default_rng(0)
    params = nplm.init(jax.random.key(1), model, words, random.normal(size=words).astype(np.float32))
    contexts_BxN, targets_B = (jnp.asarray(random.integers(0, words, s), jnp.int32) for s in ((24, model.n - 1), 24))
    batch = dict(contexts_BxN=contexts_BxN, targets_B=targets_B, key=jax.random.key(2))
    given = functools.partial(LOSSES, decay=1e-3, dropout=0.2, output=output, **batch)
    return words, params, given, given(params)


def check_loss_and_gradients(layout, network, output, tolerance):
    words, params, losses, (expected, gradients) = losses_on_one_device(network, output)
    (penalised, (nll, _)), ours = losses(layout.put(params), layout=layout)
    np.testing.assert_allclose((penalised, nll), (expected[0], expected[1][0]), rtol=tolerance)
    for a, b in zip(jax.tree.leaves(layout.get(ours, words)), jax.tree.leaves(gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(jnp.abs(b).max()))


@pytest.mark.parametrize('data,model,mode', LAYOUTS)
@pytest.mark.parametrize('h,direct', [(5, False), (0, True), (5, True)])
def test_loss_and_every_gradient_equal_one_devices(data, model, mode, h, direct):
    layout = layout_of(data, model, mode)
    check_loss_and_gradients(layout, ModelSettings(4, 3, h, direct), OutputSettings(block_size=7), 1e-5)


def test_in_bfloat16_they_differ_by_its_rounding():
    check_loss_and_gradients(
        layout_of(2, 4), ModelSettings(4, 3, 5, True), OutputSettings(precision='bfloat16', block_size=7), 1e-2
    )


def train(settings, layout, steps, dispatch=50):
    """The state after so many updates on batches of one epoch's order, repeated, as on one device."""
    bias = dataset.unigram_log_probabilities(DATA)
    state = layout.put(loop.init_state(settings, V, bias, 10_000))
    tokens_T = layout.everywhere(DATA.tokens_T)
    order_T = layout.everywhere(jnp.tile(dataset.epoch_order(1, 0, DATA.train), 8))
    for _ in range(steps // dispatch):
        state, nll_S = loop.train_steps(state, tokens_T, order_T, 0, settings, 10_000, dispatch, layout=layout)
        assert np.isfinite(np.asarray(nll_S)).all()  # waits: simulated devices must not run ahead
    return state


def perplexity(params):
    return evaluate(NeuralLanguageModel(params, BASE.model.n), DATA.tokens_T, DATA.valid).perplexity


@functools.cache
def trained_on_one_device(settings):
    return perplexity(train(settings, sharding.ONE_DEVICE, 200).params)


@pytest.mark.parametrize('data,model,mode', LAYOUTS)
def test_two_hundred_updates_end_at_one_devices_perplexity(data, model, mode):
    layout = layout_of(data, model, mode)
    state = layout.get(train(BASE, layout, 200), V)
    assert perplexity(state.params) == pytest.approx(trained_on_one_device(BASE), abs=1e-4)
    assert nplm.count(state.params) == BASE.model.num_parameters(V)


@pytest.mark.parametrize('data,model,mode', [(2, 4, 'shard_map'), (8, 1, 'pmap')])
def test_recurrent_networks_train_as_on_one_device(data, model, mode):
    shape = dict(family='lstm', direct=False, h=5, m=3, dropout=0.1)
    how = one.changed(
        train=dict(batch_size=32, bptt_length=4), optimizer=dict(learning_rate=0.1, clip_norm=1.0), model=shape
    )

    def updates(layout):
        state = layout.put(loop.init_state(how, V, None, 10_000))
        order_T = layout.everywhere(jnp.tile(dataset.stream_order(1, 0, DATA.train, how.streams, 4), 8))
        words = layout.everywhere(DATA.tokens_T)
        return layout.get(loop.train_steps(state, words, order_T, 0, how, 10_000, 40, layout=layout)[0], V)

    found, expected = updates(layout_of(data, model, mode)), updates(sharding.ONE_DEVICE)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('name', ['adam', 'adagrad'])
def test_the_words_that_pad_the_vocabulary_never_move(name):
    settings = one.changed(train=dict(batch_size=16), optimizer=dict(name=name, learning_rate=0.01))
    state = train(settings, layout := layout_of(2, 4), 200)
    params = state.params
    assert params.U_VxK.shape == (20, 5) and not np.any(params.U_VxK[V:]) and not np.any(params.W_VxP[V:])
    assert np.all(params.b_V[V:] == sharding.PADDING_BIAS)
    assert perplexity(layout.get(params, V)) == pytest.approx(trained_on_one_device(settings), abs=1e-4)


def test_three_thousand_updates_end():
    layout = layout_of(2, 4)
    assert int(train(BASE, layout, 3000).step) == 3000


# --- from one topology to another ------------------------------------------------------------------------


class CachedScores(checkpoints.CheckpointStore):
    """A store that keeps what was last saved and restored."""

    def save(self, step, state, best, progress):
        self.saved = jax.tree.map(np.array, state)  # training will donate what it was given
        super().save(step, state, best, progress)

    def restore(self, state, best, before=None):
        found = super().restore(state, best, before)
        self.restored = found and jax.tree.map(np.array, found[0])
        return found


def test_any_topology_resumes_on_any_other_bit_for_bit(tmp_path):
    def fit(parallel_settings, folder, stop_at=None):
        looks = iter(range(10**6))
        store = CachedScores(folder)
        settings = dataclasses.replace(
            BASE, parallel=parallel_settings, train=dataclasses.replace(BASE.train, steps_per_execution=13)
        )
        try:
            best, _ = loop.fit(settings, DATA, store, one.Silent(), lambda: 15 if next(looks) == stop_at else 0)
        except loop.Interrupted:
            best = None
        finally:
            store.close()
        return store, best

    first, _ = fit(ParallelSettings(8, 1), tmp_path / 'chain', 1)
    second, _ = fit(ParallelSettings(2, -1), tmp_path / 'chain', 1)
    third, best = fit(ParallelSettings(), tmp_path / 'chain')
    assert int(first.saved.step) == 13 and int(second.saved.step) == 26
    assert same_bits(first.saved, second.restored) and same_bits(second.saved, third.restored)
    layout = layout_of(2, 4)
    assert same_bits(layout.get(layout.put(first.saved), V), first.saved)
    _, unbroken = fit(ParallelSettings(), tmp_path / 'unbroken')
    for a, b in zip(jax.tree.leaves(best), jax.tree.leaves(unbroken), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize('kind,shape', [('full', (2, 4)), pytest.param('nce', (4, 2), marks=pytest.mark.slow)])
def test_an_update_whose_numbers_are_not_finite_is_found(tmp_path, kind, shape):
    climb = dict(learning_rate=100.0, schedule='linear', warmup=30, momentum=0.0, clip_norm=0.0, decay=1.0)
    settings = one.changed(train=dict(batch_size=16, checkpoint_every=8), optimizer=climb, output=dict(kind=kind))
    settings = dataclasses.replace(settings, parallel=ParallelSettings(*shape))
    store = checkpoints.CheckpointStore(tmp_path)
    with pytest.raises(NonFiniteError) as raised:
        loop.fit(settings, DATA, store, one.Silent())
    text = str(replay.explain(raised.value, settings, DATA, store, tmp_path))
    store.close()
    found = json.loads((tmp_path / replay.FILE).read_text())
    assert text.startswith(f'update {found["number"]}: {found["not_finite"]} is not finite; ')
    assert 8 < found['number'] <= raised.value.seen_at and len(found['positions']) == 16
    assert all(norm < 1e38 for norm in found['norms'].values())  # of b, without the words that pad it


# --- what parallel.* may be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'data,model,mode,message',
    [
        (9, 1, 'shard_map', r'^parallel.data=9: times parallel.model=1 must be 8 or less, the devices there are$'),
        (-1, 9, 'shard_map', '^parallel.model=9: must be 8 or less'),
        (9, -1, 'shard_map', '^parallel.data=9: must be 8 or less'),
        (5, 1, 'shard_map', '^train.batch_size=16: must be a multiple of 5, the devices that share it$'),
        (2, 2, 'pmap', '^parallel.model=2: must be 1 with parallel.mode=pmap'),
    ],
)
def test_what_the_devices_cannot_do_is_one_line(data, model, mode, message):
    with pytest.raises(BadInput, match=message):
        sharding.build(dataclasses.replace(BASE, parallel=ParallelSettings(data, model, mode)))


def test_with_a_cheap_gradient_all_devices_share_the_batch():
    settings = one.changed(train=dict(batch_size=12), optimizer=dict(momentum=0.0), output=dict(kind='nce'))
    spread = lambda *shape: dataclasses.replace(settings, parallel=ParallelSettings(*shape))  # noqa: E731
    with pytest.raises(BadInput, match='^train.batch_size=12: must be a multiple of 8, the devices that share it$'):
        sharding.build(spread(2, 4))
    assert sharding.build(spread(2, 3)).mesh.shape == {'data': 2, 'model': 3}


def test_all_that_is_left():
    for given, shape in [((-1, 2), (4, 2)), ((2, -1), (2, 4)), ((-1, 1), (8,)), ((3, 2), (3, 2))]:
        settings = dataclasses.replace(one.changed(train=dict(batch_size=12 * 4)), parallel=ParallelSettings(*given))
        assert tuple(sharding.build(settings).mesh.shape.values()) == shape
    assert sharding.build(BASE) is sharding.ONE_DEVICE


# --- what is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize('data,model', MESHES)
@pytest.mark.parametrize('h,direct', [(5, True), (7, False), (0, True)])
def test_the_compiled_update_sends_what_the_formula_says(data, model, h, direct):
    network = ModelSettings(4, 3, h, direct, dropout=0.1)
    compiled = program.compile_update(network, 101, 24, data, model)
    assert program.all_reduced_bytes(compiled.as_text()) == counts.sent(network, 101, 24, data, model)


# --- gradients that need a few rows only -----------------------------------------------------------------


@functools.cache
def many_words():
    """A corpus of 8,011 words, each of them in it."""
    random = np.random.default_rng(4)
    ids = np.concatenate([random.permutation(8011), np.minimum(random.zipf(1.3, 2000), 8011) - 1])
    words = [f'w{i}' for i in ids]
    corpus = Corpus('made up', words, Span(0, 9800), Span(9800, 9900), Span(9900, 10011))
    return dataset.from_corpus(corpus, vocabulary.build(words))


def compile_and_train(settings, layout, data):
    """(the text of the program of 50 updates, the state after 200)."""
    num_words, bias = len(data.vocabulary), dataset.unigram_log_probabilities(data)
    noise = layout.everywhere(sampled.for_data(data, settings.output))
    state = layout.put(loop.init_state(settings, num_words, bias, 1000))
    tokens_T, order_T = layout.everywhere((data.tokens_T, dataset.epoch_order(1, 0, data.train)))
    lowered = loop.train_steps.lower(state, tokens_T, order_T, 0, settings, 1000, 50, noise, layout)
    compiled = lowered.compile(compiler_options={'xla_backend_optimization_level': 0})  # takes less time
    for first in range(0, 200, 50):
        state, nll_S = compiled(state, tokens_T, order_T, first, noise)
        assert np.isfinite(np.asarray(nll_S)).all()
    return compiled.as_text(), state


@functools.cache
def cheap_on_one_device(settings):
    data = many_words()
    params = compile_and_train(settings, sharding.ONE_DEVICE, data)[1].params
    score = evaluate(NeuralLanguageModel(params, settings.model.n), data.tokens_T, data.valid)
    return params, score.perplexity


CHEAP = [(*mesh, 'shard_map') for mesh in ((8, 1), (1, 8), (2, 4))] + [(8, 1, 'pmap')]
QUICK = [('sampled', False, 1, 8, 'shard_map'), ('nce', True, 8, 1, 'pmap'), ('two_level', True, 2, 4, 'shard_map')]
CASES = [(*how, *layout) for how in (('sampled', False), ('nce', True), ('two_level', True)) for layout in CHEAP]


@pytest.mark.parametrize(
    'kind,direct,data,model,mode', [c if c in QUICK else pytest.param(*c, marks=pytest.mark.slow) for c in CASES]
)
def test_cheap_gradients_train_as_on_one_device_and_send_nothing_of_the_vocabulary(kind, direct, data, model, mode):
    settings = dataclasses.replace(
        one.changed(train=dict(batch_size=8), optimizer=dict(momentum=0.0)),
        model=ModelSettings(3, 1, 2, direct, dropout=0.1),
        output=OutputSettings(kind, samples=50, num_shortlist=12, classes=160),  # the last class is not full
    )
    corpus, layout = many_words(), layout_of(data, model, mode)
    num_words = len(corpus.vocabulary)
    text, state = compile_and_train(settings, layout, corpus)
    params = layout.get(state.params, num_words)
    expected, perplexity = cheap_on_one_device(settings)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(jnp.abs(b).max()))
    score = evaluate(NeuralLanguageModel(params, 3), corpus.tokens_T, corpus.valid)
    assert score.perplexity == pytest.approx(perplexity, rel=1e-4)
    rows = state.params.b_V.addressable_data(0)
    assert len(rows) == -(-num_words // model) and np.all(state.params.b_V[num_words:] == sharding.PADDING_BIAS)
    sent = [math.prod(shape) for _, shape in program.sent_arrays(text)]
    assert 0 < max(sent) < num_words // 8  # the least that a device may hold of |V|: its rows of b
