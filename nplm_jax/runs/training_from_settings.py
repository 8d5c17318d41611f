"""Builds the network, mesh, schedule, program and inputs of a training run from its settings."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed import sharding, sharding_from_settings
from nplm_jax.models.distilled import Distilled
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import SparseOutputLayer
from nplm_jax.runs import plugin_contract
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program, make_schedule
from nplm_jax.training.affixes import find_affixes
from nplm_jax.training.step import StepInputs
from nplm_jax.training.training_run import TrainingRun
from nplm_jax.training.word_source import make_word_source
from nplm_jax.utils.errors import require


def prepare_run(settings: Settings, data: dataset.Dataset, teachers: Sequence[NeuralLanguageModel] = ()) -> TrainingRun:
    """Builds the objects that stay constant during a training run.

    Args:
        settings: The settings of the run.
        data: The corpus.
        teachers: The models named by `output.teacher`, which have the same vocabulary as the run.

    Raises:
        BadInput: The settings are incompatible with the data or the devices.
    """
    mesh = make_sharding(settings)
    network = network_from_settings(settings, data.vocabulary, mesh.platform)
    if teachers:
        parts = network.body, network.output, network.vocabulary_size, network.line_end
        network = Distilled(*parts, teachers=tuple(teacher.network for teacher in teachers))
    schedule = make_schedule(settings, data.train)
    extras = network.output.make_extras(data.train_words, len(data.vocabulary))
    plugin_contract.validate(network, extras)
    affixes_VxK, num_affixes = find_affixes(data.vocabulary.words) if settings.train.affixes else (None, 0)
    program = make_program(settings, network, schedule.steps_per_epoch, mesh, num_affixes)
    teacher_params = tuple(teacher.params for teacher in teachers)
    arrays = mesh.replicate(jax.tree.map(jnp.asarray, (extras, teacher_params, affixes_VxK)))
    inputs = StepInputs(None, *arrays)
    return TrainingRun(
        train=settings.train,
        eval=settings.eval,
        seed=settings.seed,
        hyperparams=settings.optimizer.hyperparams,
        data=data,
        schedule=schedule,
        program=program,
        inputs=inputs,
        words=make_word_source(settings.train, settings.seed, data, network, mesh),
    )


def make_sharding(settings: Settings) -> sharding.MeshSharding:
    """Returns the sharding of a run's microbatches, which depends only on its settings.

    Args:
        settings: The settings of the run.

    Raises:
        BadInput: There are too few devices, or the devices or `train.accumulate` cannot divide the batch evenly.
    """
    batch_size, num_parts = settings.train.batch_size, settings.train.accumulate
    num_streams = settings.model.layout.num_streams(batch_size)
    allowed = f'must be a divisor of {num_streams}, the number of streams in an update'
    require(num_streams % num_parts == 0, 'train.accumulate', num_parts, allowed)
    is_sparse = isinstance(settings.output, SparseOutputLayer)
    sizes = batch_size, num_streams
    return sharding_from_settings.make_sharding(settings.parallel, *sizes, is_sparse, num_microbatches=num_parts)
