"""The programs of a run, compiled for absent devices: the update and the evaluation, as the package builds them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from configs import ap_news, brown
from experiments.beyond.lineage import ladder
from experiments.cost.accelerator.chips import Topology
from nplm_jax.config import settings as config_lib
from nplm_jax.config.sections import ParallelSettings
from nplm_jax.config.settings import Settings
from nplm_jax.data.stream import Span
from nplm_jax.distributed import sharding
from nplm_jax.distributed.sharding_from_settings import make_sharding
from nplm_jax.models import network_reading, neural
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import SparseOutputLayer
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program
from nplm_jax.training import step

ROWS = {
    'mlp1': (brown, 'mlp1'),
    'default': (brown, ''),
    'transformer': (ladder, 'attention'),
    'one_minute': (brown, 'one_minute'),
    'mlp10': (ap_news, 'mlp10'),
    'mogrifier': (brown, 'mogrifier'),
    'mlp9': (brown, 'mlp9'),
}
# An LSTM: the preset `one_minute` at the time when its programs were compiled.
CHANGES: dict[str, dict[str, Any]] = {
    'one_minute': {
        'model.family': 'lstm',
        'model.m': 200,
        'model.h': 200,
        'train.epochs': 2,
        'optimizer.decay': 0.0,
        'optimizer.row_adaptivity': 1.0,
    }
}
LARGE_VOCABULARY = 262_144  # of mlp10
NUM_STEPS = 20  # updates of a chunk
CORPUS = 1_000_000  # words
EVALUATED = 16_384  # words


@dataclasses.dataclass(frozen=True)
class Update:
    """A traced chunk of updates.

    Attributes:
        traced: The trace.
        batch_size: The total number of words per update, over all devices.
        network: The network.
        num_parameters: The number of parameter arrays.
    """

    traced: Any
    batch_size: int
    network: Network
    num_parameters: int


def settings_of(row: str, batch_size: int, sizes: Mapping[str, int] | None = None) -> tuple[Settings, int]:
    """Returns the settings of a row for a chip, in bfloat16, and |V|. `sizes` contains changed config values."""
    config, name = ROWS[row]
    changes = {'train.batch_size': batch_size, 'train.steps_per_execution': NUM_STEPS, 'output.precision': 'bfloat16'}
    made = config.get_config(name)
    if made.model.family != 'nplm':
        changes['model.precision'] = 'bfloat16'
    settings = load_settings(config_lib.override(made, {**changes, **CHANGES.get(row, {}), **(sizes or {})}))
    return settings, LARGE_VOCABULARY if row == 'mlp10' else settings.corpus.max_vocabulary


def trace_update(
    row: str, topology: Topology, mesh: tuple[int, int], batch_size: int, sizes: Mapping[str, int] | None = None
) -> Update:
    """Traces a chunk of updates for data x model devices of a topology.

    Args:
        row: One of ROWS.
        topology: The devices.
        mesh: The number of devices that divide the batch, and of devices that divide the words.
        batch_size: The total number of words per update, over all devices.
        sizes: Changed config values, such as model.h.
    """
    settings, num_words = settings_of(row, batch_size, sizes)
    devices = topology.devices()
    network = network_from_settings(settings, num_words, topology.platform)
    output, streams = network.output, network.layout.num_streams(batch_size)
    parallel = ParallelSettings(*mesh, 'shard_map')
    made = make_sharding(parallel, batch_size, streams, isinstance(output, SparseOutputLayer), devices)
    mesh_of = made.mesh or sharding.make_mesh(1, 1, devices)  # without a mesh, JAX would use its own device
    if made.mesh is None:
        made = sharding.MeshSharding(mesh_of)
    program = make_program(settings, network, CORPUS // batch_size + 1, made)
    everywhere = NamedSharding(mesh_of, PartitionSpec())
    put = functools.partial(jax.tree.map, lambda x: _shape(x, everywhere))
    state = jax.eval_shape(lambda: step.init_state(program, settings.seed, settings.optimizer.hyperparams))
    specs = program.sharding.partition_specs(state)
    state = jax.tree.map(lambda x, spec: _shape(x, NamedSharding(mesh_of, spec)), state, specs)
    extras = jax.eval_shape(lambda: jax.tree.map(jax.numpy.asarray, output.make_extras(_words(), num_words)))
    tokens_T = jax.ShapeDtypeStruct((max(CORPUS, NUM_STEPS * batch_size),), np.int32, sharding=everywhere)
    inputs = step.StepInputs(tokens_T, put(extras))
    traced = step.execute_steps.trace(program, state, tokens_T, 0, NUM_STEPS, inputs)
    return Update(traced, batch_size, network, len(jax.tree.leaves(state.params)))


def trace_evaluation(row: str, topology: Topology) -> Any:
    """Traces the evaluation of EVALUATED words on a single device of a topology."""
    settings, num_words = settings_of(row, 1024)
    device = topology.devices()[0]
    put = SingleDeviceSharding(device)
    network = network_from_settings(settings, num_words, topology.platform)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    model = neural.NeuralLanguageModel(network, params, sharding.MeshSharding(sharding.make_mesh(1, 1, [device])))
    blocks = network_reading.stream_blocks(network, _words(), Span(0, EVALUATED), model.scoring_block(EVALUATED))
    params, *blocks = jax.tree.map(lambda x: _shape(x, put), (params, *blocks))
    return neural._read_stream.trace(network, params, *blocks, None)


def _words() -> np.ndarray:
    return np.zeros(EVALUATED, np.int32)


def _shape(x: Any, put: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=put)
