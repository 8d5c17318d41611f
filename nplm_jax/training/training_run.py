"""The constants of a training run, and its chunks of updates.

Dims: T positions of an epoch.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import parts
from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset
from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.distributed import sharding, sharding_from_settings
from nplm_jax.models.body import Body
from nplm_jax.models.network_from_settings import network_from_settings
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.models.teachers import Teachers
from nplm_jax.training import step as step_lib
from nplm_jax.training.flops import Cost, cost_of
from nplm_jax.training.milestones import Schedule
from nplm_jax.training.program_from_settings import hyperparameters_of, make_program, make_schedule
from nplm_jax.training.step import Program, RunInputs, TrainState
from nplm_jax.training.word_source import WordSource, make_word_source
from nplm_jax.utils.errors import BadInput, first_line, is_out_of_memory, require


class Chunk(NamedTuple):
    """The arguments of `step.train_steps` for the updates up to the next boundary of the schedule.

    Attributes:
        program: The static part of an update.
        state: The state before the updates.
        positions_T: Positions of words to predict in `inputs.tokens_T`.
        first: The index in `positions_T` of the first of these updates' words, int32.
        num_steps: The number of updates.
        inputs: What every update reads.
    """

    program: Program
    state: TrainState
    positions_T: jax.Array
    first: jax.Array
    num_steps: int
    inputs: RunInputs


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingRun:
    """The constants of a run, built once from settings and data.

    Attributes:
        settings: The run's settings.
        data: Its corpus.
        schedule: When it logs, validates and saves.
        program: The static part of an update.
        inputs: The arrays that every update reads, on every device, without the corpus.
        words: Reads the words of each chunk.
        cost: What a word costs.
    """

    settings: Settings
    data: dataset.Dataset
    schedule: Schedule
    program: Program
    inputs: RunInputs
    words: WordSource
    cost: Cost

    def chunk(self, state: TrainState, step: int) -> Chunk:
        """Returns the chunk after update `step`."""
        epoch, first = divmod(step, self.schedule.steps_per_epoch)
        num_steps = self.schedule.next_boundary(step) - step
        B = self.program.batch_size
        words = self.words(epoch, first * B, num_steps * B)
        inputs = dataclasses.replace(self.inputs, tokens_T=words.tokens_L)
        place = self.program.sharding.put(np.int32(words.first))
        return Chunk(self.program, state, words.positions, place, num_steps, inputs)

    def init_state(self) -> TrainState:
        """Returns the state before the first update, on one device."""
        words = self.data.train_words, len(self.data.vocabulary)
        bias_V = unigram_log_probabilities(*words) if self.settings.train.unigram_bias else None
        return step_lib.init_state(self.program, self.inputs.hyperparameters, bias_V)


def prepare_run(settings: Settings, data: dataset.Dataset, teachers: Sequence[NeuralLanguageModel] = ()) -> TrainingRun:
    """Builds the network, the mesh, the schedule and the optimizer of a run.

    Args:
        settings: The run's settings.
        data: Its corpus.
        teachers: The models that `output.teacher` names, over the same words.

    Raises:
        BadInput: The data or the devices do not fit the settings.
    """
    mesh = make_sharding(settings, parts.make('model.family', settings))
    network = network_from_settings(settings, data.vocabulary, mesh.platform)
    if teachers:
        networks = tuple(teacher.network for teacher in teachers)
        network = dataclasses.replace(network, teachers=Teachers(networks, network.layout.over_streams))
    schedule = make_schedule(settings, data.train)
    extras = network.output.make_extras(data.train_words, len(data.vocabulary))
    hyperparameters = mesh.put(hyperparameters_of(settings))
    program = make_program(settings, network, schedule.steps_per_epoch, mesh)
    return TrainingRun(
        settings=settings,
        data=data,
        schedule=schedule,
        program=program,
        inputs=RunInputs(
            hyperparameters,
            None,
            mesh.replicate(jax.tree.map(jnp.asarray, extras)),
            mesh.replicate(tuple(teacher.params for teacher in teachers)),
        ),
        words=make_word_source(settings, data, network, mesh),
        cost=cost_of(program, extras),
    )


def make_sharding(settings: Settings, body: Body) -> sharding.MeshSharding:
    """Returns the sharding of a run's updates, or of their parts. Needs no data.

    Args:
        settings: The run's settings.
        body: Its body.

    Raises:
        BadInput: There are too few devices, they cannot divide the batch, or `train.accumulate` cannot.
    """
    batch_size, num_parts = settings.train.batch_size, settings.train.accumulate
    num_streams = body.layout.num_streams(batch_size)
    allowed = f'must be a divisor of {num_streams}, the streams of an update'
    require(num_streams % num_parts == 0, 'train.accumulate', num_parts, allowed)
    uses_sparse_updates = parts.part_class('output.kind', settings.output.kind).uses_sparse_updates
    shares = batch_size // num_parts, num_streams // num_parts
    return sharding_from_settings.make_sharding(settings.parallel, *shares, uses_sparse_updates)


@contextlib.contextmanager
def out_of_memory_as_bad_input() -> Iterator[None]:
    """Raises BadInput if the body runs out of memory, on the device or the host."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        keys = 'model.m, model.h, train.batch_size or output.block_size'
        raise BadInput('out of memory', f'reduce {keys} ({first_line(error)[:200]})') from None
