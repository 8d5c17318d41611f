"""Defines the constants of a training run, and the chunks of consecutive updates into which the run is divided.

Dims: T positions of an epoch, S updates per chunk.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from nplm_jax.config.sections import EvalSettings, TrainSettings
from nplm_jax.data import dataset
from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.distributed import multihost, sharding
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params
from nplm_jax.training import affixes
from nplm_jax.training import step as step_lib
from nplm_jax.training.flops import Cost, cost_of
from nplm_jax.training.milestones import Schedule
from nplm_jax.training.optimizers import Hyperparams
from nplm_jax.training.step import Program, StepInputs, TrainState
from nplm_jax.training.word_source import WordSource
from nplm_jax.utils.errors import BadInput, first_line, is_out_of_memory


class Chunk(NamedTuple):
    """The arguments of `step.train_steps` for the updates up to the next boundary of the schedule.

    Attributes:
        program: The static part of an update, such as the network and the optimizer.
        state: The state before the updates.
        positions_T: Positions of target words in `inputs.tokens_T`, in the order of the updates, int32.
        first: The index in `positions_T` of the first target of the chunk, int32.
        num_steps: The number of updates.
        inputs: The arrays read by every update.
    """

    program: Program
    state: TrainState
    positions_T: jax.Array
    first: jax.Array
    num_steps: int
    inputs: StepInputs


class ChunkResult(NamedTuple):
    """The result of a chunk.

    Attributes:
        state: The state after the updates.
        nll_S: The mean NLL of each batch, nats per word.
        seconds: The duration of the updates in seconds. None if the host did not wait for them.
    """

    state: TrainState
    nll_S: jax.Array | np.ndarray
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingRun:
    """The constants of a run, which are built once from its settings and data.

    Attributes:
        train: The settings `train.*`.
        eval: The settings `eval.*`.
        seed: The random seed.
        hyperparams: `Rule.hyperparams` of the optimizer.
        data: The corpus, with its vocabulary and its training and validation spans.
        schedule: The updates at which the run logs, validates and saves.
        program: The static part of an update.
        inputs: The arrays that every update reads, except the corpus. They are replicated on all devices.
        words: The source of the training words of each chunk.
        num_batched: The number of runs that train together and share the devices.
    """

    train: TrainSettings
    eval: EvalSettings
    seed: int
    hyperparams: Hyperparams
    data: dataset.Dataset
    schedule: Schedule
    program: Program
    inputs: StepInputs
    words: WordSource
    num_batched: int = 1

    @functools.cached_property
    def cost(self) -> Cost:
        """The cost of training per word. If several runs share the devices, `peak` is None."""
        cost = cost_of(self.program, self.hyperparams, self.inputs)
        return cost if self.num_batched == 1 else cost._replace(peak=None)

    @property
    def num_valid_words(self) -> int:
        """The maximum number of words that a validation scores, or 0 for all validation words."""
        return self.train.valid_words or self.eval.words

    def model(self, params: Params, is_shared: bool = False) -> NeuralLanguageModel:
        """Returns a model with the given parameters, for evaluation on the devices of the run.

        Args:
            params: The parameters on the devices of the run. If several processes evaluate the model independently,
                each process must hold the parameters in full.
            is_shared: Whether all processes evaluate the model together. If false, each process evaluates the model on
                its own devices.
        """
        devices = sharding.scoring_sharding(self.program.sharding, is_shared)
        params = params if devices is self.program.sharding else devices.put(params)
        return NeuralLanguageModel(self.program.network, params, devices)

    def chunk(self, state: TrainState, step: int) -> Chunk:
        """Returns the chunk of updates that comes after update `step`."""
        epoch, first = divmod(step, self.schedule.steps_per_epoch)
        num_steps = self.schedule.next_boundary(step) - step
        B = self.program.batch_size
        words = self.words(epoch, first * B, num_steps * B)
        inputs = dataclasses.replace(self.inputs, tokens_T=words.tokens_L)
        place = self.program.sharding.put(np.int32(words.first))
        return Chunk(self.program, state, words.positions, place, num_steps, inputs)

    def init_state(self) -> TrainState:
        """Returns the initial state on the devices of the run."""
        bias_V = None
        if self.train.unigram_bias:
            words = self.data.train_words, len(self.data.vocabulary)
            bias_V = multihost.broadcast_from_primary(unigram_log_probabilities(*words))
        return step_lib.init_state(self.program, self.seed, self.hyperparams, bias_V)

    def evaluation_params(self, state: TrainState) -> Params:
        """Returns the parameters of the network for evaluation; see `step.evaluation_params`."""
        return _fold(step_lib.evaluation_params(self.program, state), self.inputs.affixes_VxK)

    def state_shapes(self) -> TrainState:
        """Returns the shapes and dtypes of an unsharded state, as it is stored in checkpoints."""
        program = dataclasses.replace(self.program, sharding=sharding.ONE_DEVICE)
        return jax.eval_shape(lambda: step_lib.init_state(program, self.seed, self.hyperparams))


_fold = jax.jit(affixes.fold)


@contextlib.contextmanager
def out_of_memory_as_bad_input() -> Iterator[None]:
    """Raises BadInput if the body of the context runs out of device or host memory."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        keys = 'model.m, model.h, train.batch_size or output.block_size'
        raise BadInput('out of memory', f'reduce {keys} ({first_line(error)[:200]})') from None
