"""The training loop: a Trainer asks for chunks of updates and takes what comes out; `fit` runs one trainer.

Dims: S updates of a chunk, T positions of an epoch.
"""

import contextlib
import dataclasses
import functools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed import multihost, sharding
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import Store
from nplm_jax.training.optimizers import Hyperparameters
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.schedule import Progress, Schedule, make_schedule
from nplm_jax.training.step import Program, TrainState
from nplm_jax.utils import finite
from nplm_jax.utils.errors import BadInput, first_line


class Interrupted(Exception):
    """A signal asked training to stop, and the state is saved."""

    def __init__(self, step: int, signal_number: int) -> None:
        """Takes the last update and the signal's number."""
        super().__init__(f'stopped after update {step:,}, which is saved')
        self.signal_number = signal_number


class Chunk(NamedTuple):
    """The arguments of `step.execute_steps` for the updates up to the next boundary of the schedule."""

    program: Program
    state: TrainState
    tokens_T: jax.Array
    positions_T: jax.Array
    first: int
    num_steps: int
    hyperparameters: Hyperparameters
    proposal: Any


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingRun:
    """What is the same for all chunks of a run: made once, from the settings and the data.

    Attributes:
        settings: The run's settings.
        data: Its corpus.
        schedule: When it pauses.
        program: What is static in an update.
        hyperparameters: The numbers that are not.
        tokens_T: The corpus, on every device.
        proposal: What a sampled loss draws words from, on every device.
        positions: From an epoch to its positions in the order of its updates, on every device; keeps the last one.
    """

    settings: Settings
    data: dataset.Dataset
    schedule: Schedule
    program: Program
    hyperparameters: Hyperparameters
    tokens_T: jax.Array
    proposal: Any
    positions: Callable[[int], jax.Array]

    def chunk(self, state: TrainState, step: int) -> Chunk:
        """Returns the chunk after update `step`."""
        epoch, first = divmod(step, self.schedule.steps_per_epoch)
        num_steps = self.schedule.next_boundary(step) - step
        arguments = self.tokens_T, self.positions(epoch), first, num_steps, self.hyperparameters, self.proposal
        return Chunk(self.program, state, *arguments)

    def init_state(self) -> TrainState:
        """Returns the state before the first update, on one device."""
        bias_V = dataset.unigram_log_probabilities(self.data) if self.settings.model.unigram_bias else None
        return step_lib.init_state(self.program, self.hyperparameters, bias_V)


def prepare_run(settings: Settings, data: dataset.Dataset) -> TrainingRun:
    """Builds the network, the mesh, the schedule and the optimizer of a run.

    Raises:
        BadInput: The data or the devices cannot serve the settings.
    """
    network = Network.from_settings(settings, len(data.vocabulary))
    schedule = make_schedule(settings, data.train)
    body, batch_size = network.body, settings.train.batch_size
    uses_sparse_updates = network.output.uses_sparse_updates
    mesh = sharding.build(settings.parallel, batch_size, body.num_streams(batch_size), uses_sparse_updates)
    proposal = network.output.make_proposal(dataset.unigram_log_probabilities(data))
    return TrainingRun(
        settings=settings,
        data=data,
        schedule=schedule,
        program=step_lib.make_program(settings, network, schedule.steps_per_epoch, mesh),
        hyperparameters=Hyperparameters.from_settings(settings),
        tokens_T=mesh.replicate(data.tokens_T),
        proposal=mesh.replicate(proposal),
        positions=functools.lru_cache(maxsize=1)(
            lambda epoch: mesh.replicate(body.epoch_positions(settings.seed, epoch, data.train, batch_size))
        ),
    )


class Trainer:
    """One training run: which chunk comes next, and what to do with what came out of it.

    Validates, saves, reports and stops early. It goes on from the newest checkpoint in its store. The same settings and
    data give the same parameters, bit for bit on a CPU, however often the run was stopped and started again. With
    several processes each has a trainer, and the first process's checkpoint and validation count.

    Attributes:
        run: What is the same for all chunks.
        best: The parameters that did best on validation, on one device.
        progress: How far the run is.
    """

    def __init__(
        self,
        run: TrainingRun,
        store: Store,
        reporter: Reporter,
        interrupted: Callable[[], int] = lambda: 0,
        started: float | None = None,
    ) -> None:
        """Restores the newest checkpoint, or begins.

        Args:
            run: What `prepare_run` returned.
            store: Where checkpoints lie.
            reporter: Is told what happens.
            interrupted: Returns the number of a signal that asks to stop, 0 for none.
            started: time.perf_counter() at which the run's seconds begin; now when None.
        """
        self.run = run
        state, self.best, self.progress = restore_or_init(run, store)
        self._state = run.program.sharding.shard(state)
        self._store, self._reporter, self._interrupted = store, reporter, interrupted
        self._started = (time.perf_counter() if started is None else started) - self.progress.seconds
        reporter.start(self.progress, run.schedule, run.program.batch_size)

    @property
    def done(self) -> bool:
        """Whether training is over."""
        return self.progress.finished

    @property
    def step(self) -> int:
        """How many updates were made."""
        return self.progress.step

    def next_chunk(self) -> Chunk:
        """Returns the chunk to run next. Raises: Interrupted, after saving, when a signal asks to stop."""
        self._stop_if_interrupted(save=True)
        return self.run.chunk(self._state, self.step)

    def finish_chunk(self, state: TrainState, nll_S: np.ndarray, seconds: float) -> None:
        """Takes the result of a chunk: reports it, and validates and saves when due.

        Args:
            state: The state after it.
            nll_S: The mean NLL of each batch, nats a word.
            seconds: How long it took.

        Raises:
            NonFiniteError: A number is not finite. The last good checkpoint is kept.
            Interrupted: A signal came during the last chunk or validation.
        """
        schedule, before = self.run.schedule, self.step
        finite.check_losses(nll_S, before)
        self._state = state
        self.progress = dataclasses.replace(
            self.progress,
            step=before + len(nll_S),
            seconds=time.perf_counter() - self._started,
            train_seconds=self.progress.train_seconds + seconds,
        )
        self._reporter.trained(self.progress, nll_S)
        log, evaluate, save = (
            schedule.is_due(every, before, self.step)
            for every in (schedule.log_every, schedule.evaluate_every, schedule.checkpoint_every)
        )
        if log or evaluate:
            finite.check(state, self.step)
        if evaluate:
            self.validate()
            self._reporter.validated(self.progress)
        if save or self.done:
            self.save()
        if self.done:
            self._stop_if_interrupted(save=False)

    def validate(self) -> None:
        """Compares with the best parameters so far, and decides whether training is over."""
        run, progress = self.run, self.progress
        params = self._state.params if self._state.average is None else self._state.average
        params = run.program.sharding.unshard(params, len(run.data.vocabulary))
        score = evaluate(NeuralLanguageModel(run.program.network, params), run.data.tokens_T, run.data.valid)
        nll = float(multihost.broadcast_from_primary(np.float64(score.nll_per_word)))
        progress = dataclasses.replace(
            progress, valid_nll=nll, evaluations_since_best=progress.evaluations_since_best + 1
        )
        if nll < progress.best_valid_nll:
            self.best = jax.tree.map(jnp.copy, params)
            progress = dataclasses.replace(
                progress, best_step=progress.step, best_valid_nll=nll, evaluations_since_best=0
            )
        out_of_patience = progress.evaluations_since_best >= run.settings.train.patience
        self.progress = dataclasses.replace(
            progress, finished=progress.step >= run.schedule.total_steps or out_of_patience
        )

    def save(self) -> None:
        """Writes a checkpoint. Raises: NonFiniteError rather than write numbers that are not finite."""
        state = self.run.program.sharding.unshard(self._state, len(self.run.data.vocabulary))
        finite.check(state, self.step)
        self._store.save(self.step, state, self.best, dataclasses.asdict(self.progress))

    def _stop_if_interrupted(self, save: bool) -> None:
        if signal_number := multihost.allreduce_max(self._interrupted()):
            if save:
                self.save()
            raise Interrupted(self.step, signal_number)


def restore_or_init(run: TrainingRun, store: Store, before: int | None = None) -> tuple[TrainState, Params, Progress]:
    """Returns state, best parameters and progress of the newest checkpoint, else the initial ones, on one device.

    Args:
        run: What `prepare_run` returned.
        store: Where checkpoints lie.
        before: An update, to take the newest checkpoint before it.
    """
    state = run.init_state()
    if (restored := store.restore(state, state.params, before)) is None:
        restored = state, jax.tree.map(jnp.copy, state.params), {}
    progress = multihost.broadcast_from_primary(jax.tree.map(np.asarray, dataclasses.asdict(Progress(**restored[2]))))
    state, best = multihost.broadcast_from_primary(restored[:2])
    return state, best, Progress(**{key: value.item() for key, value in progress.items()})


def run_chunk(chunk: Chunk) -> tuple[TrainState, np.ndarray, float]:
    """Runs a chunk. Returns: the state, the NLL of each batch once it is there, and the seconds."""
    started = time.perf_counter()
    state, nll_S = step_lib.execute_steps(*chunk)
    return state, np.asarray(nll_S), time.perf_counter() - started


def fit(trainer: Trainer) -> tuple[Params, Progress]:
    """Trains to the last epoch, or until validation has not improved for `train.patience` evaluations.

    Returns:
        The parameters that did best on validation, and the final progress.

    Raises:
        NonFiniteError: `training.replay` tells more of it.
        Interrupted: A signal asked to stop, and the state is saved.
        BadInput: The memory does not suffice.
    """
    with out_of_memory_as_bad_input():
        while not trainer.done:
            trainer.finish_chunk(*run_chunk(trainer.next_chunk()))
    return trainer.best, trainer.progress


@contextlib.contextmanager
def out_of_memory_as_bad_input() -> Iterator[None]:
    """Raises: BadInput where the body finds no memory, on the device or the host."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if not (isinstance(error, MemoryError) or re.search('RESOURCE_EXHAUSTED|[Oo]ut of memory', str(error))):
            raise
        keys = 'model.m, model.h, train.batch_size or output.block_size'
        raise BadInput(f'out of memory ({first_line(error)[:200]}); make {keys} smaller') from None
