"""Tests that every program of a run can be lowered for GPUs and TPUs on a machine without them."""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, covering_pairs, others_nightly, small_settings
from jax import export

from nplm_jax.config.registry import KINDS, NETWORKS
from nplm_jax.data.batches import Batch
from nplm_jax.data.stream import Span
from nplm_jax.distributed.sharding import MeshSharding
from nplm_jax.models import network_reading, neural
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import vmapped
from nplm_jax.training.step import execute_steps, train_step

PLATFORMS = ('cuda', 'rocm', 'tpu')
NUM_STEPS = 11
V = len(DATA.vocabulary)
KINDS_OF_OUTPUT = tuple(KINDS['output.kind'].paths)
OUTPUTS = {kind: {'output.kind': kind} for kind in KINDS_OF_OUTPUT}
OUTPUTS['full bfloat16'] = {'output.kind': 'full', 'output.precision': 'bfloat16'}
SHAPE = {'model.n': 3, 'model.m': 3, 'model.h': 5, 'train.batch_size': 8, 'model.bptt_length': 4, 'train.epochs': 9}
SHAPE |= {'train.steps_per_execution': NUM_STEPS, 'train.unigram_bias': False, 'model.heads': 1}
KINDS = {family: KINDS_OF_OUTPUT for family in NETWORKS}
WITH_ALL = ('nplm', 'lstm')  # a window, and a body with a state

HALF = [(family, 'full bfloat16') for family in WITH_ALL]


def name_of(changes):
    return ' '.join(str(value) for value in changes.values())


@pytest.fixture
def no_cpu(monkeypatch):
    """Disables the code that runs only on CPUs."""
    monkeypatch.setattr(MeshSharding, 'platform', 'gpu')


def run_of(changes):
    is_window = changes.get('model.family', 'nplm') == 'nplm'
    return prepare_run(small_settings({**SPARSE, **SHAPE, 'model.direct': is_window, **changes}), DATA)


def lower(function, *arguments, static=()):
    """Traces a function again, and returns the text of a single program for all platforms."""
    traced = jax.jit(lambda *arguments: function(*arguments), static_argnums=static).trace(*arguments)
    return traced.lower(lowering_platforms=PLATFORMS).as_text()


def lower_updates(run):
    chunk = run.chunk(jax.eval_shape(run.init_state), 0)
    assert chunk.num_steps == NUM_STEPS
    return lower(execute_steps.__wrapped__, *chunk, static=(0, 4))


def products(text):
    """Returns, for each matrix product of a program, the type of its factors and whether it is exact."""
    found = re.findall(r'stablehlo.dot_general .*? : \(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\)', text)
    lines = [line for line in text.splitlines() if 'stablehlo.dot_general' in line]
    assert len(found) == len(lines)
    return {(min(types), 'HIGHEST' in line) for types, line in zip(found, lines)}


def check_types(text, precision='float32'):
    """Checks that nothing has more bits than float32, and that lower precision is used only where it was chosen."""
    assert 'f64' not in text and ('bf16' in text) == (precision == 'bfloat16')


@pytest.mark.usefixtures('no_cpu')
@pytest.mark.parametrize(
    'family,output',
    others_nightly(
        [*covering_pairs(KINDS, WITH_ALL, always='full'), *((family, 'full bfloat16') for family in WITH_ALL)],
        ('nplm',),
    ),
)
def test_updates_lower_for_every_platform_as_one_loop(family, output):
    run = run_of({**OUTPUTS[output], 'model.family': family})
    text = lower_updates(run)
    # The loop over updates ends at their number.
    assert 'stablehlo.while' in text and f'dense<{NUM_STEPS}> : tensor<i32>' in text
    check_types(text, OUTPUTS[output].get('output.precision'))
    has_all_scores = re.search(rf'tensor<(8x{V}|{V}x8)x', text) is not None
    assert has_all_scores == (OUTPUTS[output].get('output.kind', 'full') == 'full')


@pytest.mark.usefixtures('no_cpu')
@pytest.mark.parametrize('family', others_nightly(NETWORKS, ('lstm',)))
def test_an_update_of_every_network_is_one_program_for_cpus_gpus_and_tpus(family):
    """A call of a library that exists on only one platform, such as LAPACK, would be a custom call."""
    for kind in KINDS_OF_OUTPUT:
        run = run_of({'model.family': family, 'output.kind': kind, 'model.precision': 'bfloat16'})
        body, extras = run.program.network.body, run.inputs.extras
        S, T = body.layout.num_streams(run.program.batch_size), body.layout.bptt_length
        ids, targets = (jax.ShapeDtypeStruct((S, L), jnp.int32) for L in (body.layout.lookback + T, T))
        update = export.export(jax.jit(train_step, static_argnames='program'), platforms=('cpu', 'cuda', 'tpu'))
        state, streams = jax.eval_shape(run.init_state), jax.ShapeDtypeStruct((S,), jnp.int32)
        text = update(run.program, state, Batch(ids, targets, streams, extras=extras)).mlir_module()
        assert 'custom_call' not in text and ('bf16' in text) == hasattr(body, 'precision')


@pytest.mark.usefixtures('no_cpu')
@pytest.mark.parametrize(
    'family,kind',
    others_nightly(itertools.product(NETWORKS, ('full', 'sampled')), [('nplm', 'sampled'), ('transformer', 'full')]),
)
def test_updates_multiply_float32_in_float32_on_every_platform_and_leave_bfloat16(family, kind):
    halves = {'output.precision': 'bfloat16', 'model.precision': 'bfloat16'}
    of_float32, of_halves = (
        products(lower_updates(run_of({'model.family': family, 'output.kind': kind, **precisions})))
        for precisions in ({}, halves)
    )
    assert of_float32 and {exact for _, exact in of_float32} == {True}
    assert ('bf16', False) in of_halves and ('bf16', True) not in of_halves
    with jax.default_matmul_precision('tensorfloat32'):  # the user's choice is not changed
        text = lower_updates(run_of({'model.family': family, 'output.kind': kind}))
    assert products(text) == {('f32', False)}


@pytest.mark.usefixtures('no_cpu')
@pytest.mark.parametrize(
    'optimizer',
    [
        {'optimizer.name': 'adam', 'optimizer.clip_norm': 1.0, 'output.kind': 'nce'},
        {'optimizer.name': 'adagrad', 'optimizer.schedule': 'linear', 'optimizer.warmup': 3},
        {'optimizer.name': 'paper'},
        {'optimizer.clip_norm': 0.9, 'optimizer.schedule': 'constant'},
    ],
    ids=name_of,
)
def test_every_optimizer_lowers_for_every_platform(optimizer):
    text = lower_updates(run_of(optimizer))
    assert f'dense<{NUM_STEPS}> : tensor<i32>' in text
    check_types(text)


@pytest.mark.usefixtures('no_cpu')
@pytest.mark.parametrize('family,kind', covering_pairs(KINDS, WITH_ALL))
def test_evaluation_lowers_for_every_platform_in_float32(family, kind):
    network = run_of({'model.family': family, 'output.kind': kind}).program.network
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    blocks = network_reading.stream_blocks(network, np.zeros(15, np.int32), Span(0, 15), 3)
    text = lower(neural._read_stream.__wrapped__, network, params, *blocks, None, static=(0,))
    assert 'tensor<5x3xf32>' in text
    check_types(text)
    # An accelerator would round to fewer bits by default.
    assert 'DEFAULT' not in text and 'HIGHEST' in text


@pytest.mark.usefixtures('no_cpu')
def test_runs_that_train_together_lower_for_every_platform():
    run = run_of({'output.kind': 'nce'})
    stack = lambda tree: jax.tree.map(lambda x: jax.ShapeDtypeStruct((3, *x.shape), x.dtype), tree)  # noqa: E731
    state = stack(jax.eval_shape(run.init_state))
    positions_RxT = jnp.zeros((3, NUM_STEPS * 8), jnp.int32)
    inputs = run.chunk(jax.eval_shape(run.init_state), 0).inputs
    execute = functools.partial(vmapped._execute.__wrapped__, run.program, vmapped._mesh(1), NUM_STEPS)
    text = lower(execute, state, positions_RxT, inputs)
    assert f'dense<{NUM_STEPS}> : tensor<i32>' in text and f'tensor<3x{V}x5xf32>' in text
    check_types(text)


@pytest.mark.usefixtures('no_cpu')
@pytest.mark.eight_devices
@pytest.mark.parametrize(
    'output,data,model',
    # A mesh with both axes for every output layer; other meshes for one layer of each way to gather rows.
    [(output, 4, 2) for output in OUTPUTS]
    + [(output, *mesh) for output, mesh in itertools.product(('full', 'sampled', 'two_level'), [(8, 1), (1, 8)])],
)
def test_updates_over_a_mesh_lower_for_every_platform(output, data, model):
    run = run_of({**OUTPUTS[output], 'parallel.data': data, 'parallel.model': model})
    state = run.init_state()
    text = lower(execute_steps.__wrapped__, *run.chunk(state, 0), static=(0, 4))
    assert 'num_partitions = 8' in text and 'stablehlo.all_reduce' in text
    assert f'dense<{NUM_STEPS}> : tensor<i32>' in text
    check_types(text, OUTPUTS[output].get('output.precision'))
    # Each device holds its share of the words of the output matrices, padded for the mesh.
    assert f'tensor<{-(-V // model) * model}x5xf32>' in text
