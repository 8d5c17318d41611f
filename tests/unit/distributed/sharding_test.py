import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, refuses, small_settings
from jax.sharding import AbstractMesh, PartitionSpec

from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import to_record
from nplm_jax.config.sections import ParallelSettings
from nplm_jax.distributed.constraints import constrain, constrain_examples, constrain_replicated, vocab_minor_layout
from nplm_jax.distributed.mapping import map_loss
from nplm_jax.distributed.sharding import DATA as DATA_AXIS
from nplm_jax.distributed.sharding import MODEL, ONE_DEVICE, MeshSharding, pad
from nplm_jax.distributed.sharding_from_settings import make_sharding
from nplm_jax.runs import workdir
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.utils.errors import BadInput

MESH = AbstractMesh((2, 4), (DATA_AXIS, MODEL))
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}


def axes_by_name(changes, mesh=MESH):
    """Returns the axes over which the arrays of a training state are divided, by the arrays' names."""
    run = prepare_run(small_settings({**SPARSE, **changes}), DATA)
    specs = dataclasses.replace(run.program.sharding, mesh=mesh).partition_specs(run.init_state())
    named = jax.tree_util.tree_leaves_with_path(specs, is_leaf=lambda x: isinstance(x, PartitionSpec))
    return {jax.tree_util.keystr(path, simple=True, separator='.'): tuple(spec) for path, spec in named}


@pytest.mark.parametrize('kind', ['full', 'nce', 'two_level'])
def test_the_output_words_rows_are_divided_over_the_model_axis_and_nothing_else(kind):
    axes = axes_by_name({'output.kind': kind, 'optimizer.name': 'adam'})
    divided = {name for name, spec in axes.items() if spec == (MODEL,)}
    assert {name for name in divided if name.startswith('params.')} == {'params.U_VxK', 'params.W_VxP', 'params.b_V'}
    assert all(spec == () for name, spec in axes.items() if name not in divided)


@pytest.mark.parametrize('rule', ['adam', 'adagrad'])
def test_optimizer_state_lies_as_its_parameters_do(rule):
    axes = axes_by_name({'output.kind': 'two_level', 'optimizer.name': rule})
    own = 'opt_state.inner_state.'
    kept = {name: spec for name, spec in axes.items() if name.startswith(own) and not name.endswith('count')}
    assert kept
    for name, spec in kept.items():
        (parameter,) = [p for p in axes if p.startswith('params.') and name.endswith(p.removeprefix('params'))]
        assert spec == axes[parameter], name


def test_what_streams_carry_is_divided_over_the_batch():
    axes = axes_by_name(LSTM)
    assert axes['carry.0.0'] == axes['carry.0.1'] == (DATA_AXIS,)
    assert axes['params.U_VxK'] == (MODEL,) and axes['params.C_VxM'] == axes['params.cell.hi.kernel'] == ()


def test_over_an_axis_that_the_mesh_lacks_nothing_is_divided():
    axes = axes_by_name(LSTM, AbstractMesh((8,), (DATA_AXIS,)))
    assert {name for name, spec in axes.items() if spec} == {'carry.0.0', 'carry.0.1'}


def test_the_platform_is_that_of_the_meshs_devices_and_decides_layout_precision_and_block_size():
    of_tpus = MeshSharding(
        SimpleNamespace(devices=np.array([[SimpleNamespace(platform='tpu')]])), paddings=(('U', 0.0),)
    )
    assert (of_tpus.platform, ONE_DEVICE.platform) == ('tpu', jax.devices()[0].platform)
    tree = {'U': jnp.zeros((4, 3))}
    assert vocab_minor_layout(tree, of_tpus) is tree
    settings = small_settings({**LSTM, 'model.precision': 'auto', 'output.precision': 'auto'})
    network = network_from_settings(settings, 9, of_tpus.platform)
    assert network.body.precision == network.output.precision == 'bfloat16' and network.output.block_size == 1024
    on_cpu = [small_settings({**LSTM, 'output.precision': precision}) for precision in ('float32', 'bfloat16')]
    assert [network_from_settings(settings, 9, 'cpu').output.block_size for settings in on_cpu] == [512, 256]


@pytest.mark.parametrize('platform', ['cpu', 'gpu'])
@pytest.mark.parametrize('data, model, key', [(3, 1, 'data'), (-1, 3, 'model'), (3, -1, 'data'), (2, 2, 'data')])
def test_too_few_devices_are_told_how_processors_become_more(platform, data, model, key):
    devices = [SimpleNamespace(platform=platform)] * 2
    with pytest.raises(BadInput) as caught:
        make_sharding(ParallelSettings(data, model), 16, 16, False, devices)
    assert caught.value.key == f'parallel.{key}' and caught.value.value == (model if key == 'model' else data)
    assert ('JAX_NUM_CPU_DEVICES' in caught.value.problem) == (platform == 'cpu')


def test_a_batch_that_devices_and_microbatches_cannot_divide_is_named_as_it_was_typed():
    devices, shape = [SimpleNamespace(platform='cpu')] * 4, ParallelSettings(4, 1)
    with refuses('train.batch_size') as caught:
        make_sharding(shape, 24, 24, False, devices, num_microbatches=4)
    assert caught.value.value == 24 and ' 16, ' in caught.value.problem
    with refuses('parallel.data'):
        make_sharding(shape, 32, 8, False, devices, num_microbatches=4)


def test_without_a_mesh_everything_stays_as_it_is():
    tree = {'b_V': jax.numpy.arange(3.0)}
    loss = lambda params, batch, extra: (params['b_V'].sum(), None)  # noqa: E731
    assert ONE_DEVICE.replicate(tree) is tree and ONE_DEVICE.shard(tree)['b_V'] is tree['b_V']
    for function in (pad, constrain, constrain_replicated, constrain_examples):
        assert function(tree, ONE_DEVICE) is tree
    assert ONE_DEVICE.unshard(tree, 2) is tree
    assert map_loss(loss, ONE_DEVICE) is loss


def test_a_folder_belongs_to_a_run_on_any_devices(tmp_path):
    settings = config_lib.from_config(sentences.get_config())
    on_a_mesh = config_lib.replace(settings, {'parallel.data': 4, 'parallel.model': 2})
    (tmp_path / workdir.CONFIG).write_text(json.dumps(to_record(config_lib.to_dict(settings))))
    (tmp_path / 'checkpoints' / '1').mkdir(parents=True)
    workdir.ensure_folder(tmp_path, on_a_mesh)
    with refuses('--workdir'):
        workdir.ensure_folder(tmp_path, config_lib.replace(on_a_mesh, {'seed': 2}))
