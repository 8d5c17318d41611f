"""The training loop.

`fit` executes chunks of updates; a `Trainer` says which chunk is next, validates, saves and decides when to stop.
Dims: S updates of a chunk.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.distributed import multihost, sharding
from nplm_jax.inference import generation
from nplm_jax.inference.perplexity import evaluate_sample, sample_spans
from nplm_jax.models.mixture import CachedScores, Scores
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params
from nplm_jax.training import calibration, finite, suffix_smoothing
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.step import TrainState
from nplm_jax.training.training_run import Chunk, TrainingRun, out_of_memory_as_bad_input
from nplm_jax.utils.errors import NonFiniteError


class Interrupted(Exception):
    """A signal stopped training; the state is saved."""

    def __init__(self, step: int, signal_number: int) -> None:
        """Takes the last update and the signal's number."""
        super().__init__(f'stopped after update {step:,} (saved)')
        self.signal_number = signal_number


class Pruned(Exception):
    """A search stopped training after a validation; the state is saved."""


ShouldPrune: TypeAlias = Callable[[Progress, Schedule], bool]


def never(progress: Progress, schedule: Schedule) -> bool:
    """Prunes no run."""
    return False


class Trainer:
    """The state of one training run.

    Returns the next chunk, and after each chunk validates, saves, reports and stops early when due. It resumes from the
    newest checkpoint in its store: the same settings and data give the same parameters, bit for bit on a CPU, however
    often the run was stopped and resumed. With several processes each has a trainer; all use the checkpoint and the
    validation of the first process.

    Attributes:
        run: The constants of the run.
        best: The parameters with the best validation NLL, on one device; post-processed at the end.
        progress: The progress of the run.
        best_scores: log P of the validation words by `best`; empty where another start found `best`.
    """

    def __init__(
        self,
        run: TrainingRun,
        store: CheckpointStore | None,
        reporter: Reporter,
        interrupted: Callable[[], int] = lambda: 0,
        started: float | None = None,
        should_prune: ShouldPrune = never,
    ) -> None:
        """Restores the newest checkpoint, or initialises the state.

        Args:
            run: The constants of the run.
            store: The checkpoints; None in a process that neither reads nor writes any.
            reporter: Receives training events.
            interrupted: Returns the number of a signal that asks to stop, 0 for none.
            started: Start time (time.perf_counter()); default: now.
            should_prune: Called after each validation; returns whether to stop, unless training is over.
        """
        self.run = run
        state, self.best, self.progress = restore_or_init(run, store)
        self.best_scores: Scores = {}
        self._state = run.program.sharding.shard(state)
        self._unread: list[tuple[int, jax.Array | np.ndarray]] = []  # losses of chunks, each with the update before it
        self._last_read = time.perf_counter()
        self._store, self._reporter, self._interrupted = store, reporter, interrupted
        self._should_prune = should_prune
        self._started = (time.perf_counter() if started is None else started) - self.progress.seconds
        valid = run.data.valid
        num_words = sum(map(len, sample_spans(valid, self._num_valid_words or len(valid))))
        sampled_words = num_words if num_words < len(valid) else 0
        reporter.start(self.progress, run.schedule, run.program.batch_size, run.cost, sampled_words)

    @property
    def done(self) -> bool:
        """Whether training is over."""
        return self.progress.finished

    def next_chunk(self) -> Chunk:
        """Returns the chunk to run next. Raises Interrupted, after saving, when a signal asks to stop."""
        self._stop_if_interrupted(save=True)
        if not self._unread:
            self._last_read = time.perf_counter()
        return self.run.chunk(self._state, self.progress.step)

    def finish_chunk(self, state: TrainState, nll_S: jax.Array | np.ndarray, seconds: float | None = None) -> None:
        """Takes the result of a chunk: reports its losses, and validates and saves when due.

        Unless something is due, the losses on a device are read when the next chunk has been dispatched, so that the
        device never waits for the host.

        Args:
            state: The state after it.
            nll_S: The mean NLL of each batch, nats per word.
            seconds: The seconds that it took; None to measure the time until the losses are read.

        Raises:
            NonFiniteError: A number is not finite. The last good checkpoint is kept.
            OSError: A checkpoint could not be written.
            Interrupted: A signal came during the last chunk or validation.
            Pruned: `should_prune` asked to stop.
        """
        schedule, before = self.run.schedule, self.progress.step
        self._state = state
        self._unread.append((before, nll_S))
        self.progress = dataclasses.replace(self.progress, step=before + len(nll_S))
        log, evaluate, save = (
            schedule.is_due(every, before, self.progress.step)
            for every in (schedule.log_every, schedule.evaluate_every, schedule.checkpoint_every)
        )
        reads_all = log or evaluate or save or seconds is not None
        self._read_losses(keep=0 if reads_all else 1, seconds=seconds)
        if log or evaluate:
            finite.check(state, self.progress.step)
            if self._store:
                self._store.check()
        if evaluate:
            params = self.validate()
            self._reporter.validated(self.progress)
            if self.run.train.sample_words and multihost.is_primary():
                self._reporter.sampled(self._sample(params))
            if self._should_prune(self.progress, schedule) and not self.done:
                self.save(wait=True)
                raise Pruned(f'pruned after update {self.progress.step:,} (saved)')
        if self.done:
            self.postprocess()  # before the last save, since a checkpoint is never written twice
        if save or self.done:
            self.save(wait=self.done)
        if self.done:
            self._stop_if_interrupted(save=False)

    def validate(self) -> Params:
        """Evaluates on the validation words, keeps the best parameters, and updates the progress.

        `progress.finished` is set when patience or the updates are used up.

        Returns:
            The parameters that were evaluated, on one device.
        """
        run, progress = self.run, self.progress
        params = step_lib.evaluation_params(run.program, self._state)
        params = run.program.unshard(params)
        try:
            nll, scores = self._score_valid(params)
        except NonFiniteError as error:
            raise NonFiniteError(f'after update {progress.step:,} {error}') from None
        if improved := nll < progress.best_valid_nll:
            self.best, self.best_scores = jax.tree.map(jnp.copy, params), scores
        evaluations_since_best = 0 if improved else progress.evaluations_since_best + 1
        self.progress = dataclasses.replace(
            progress,
            valid_nll=nll,
            best_step=progress.step if improved else progress.best_step,
            best_valid_nll=nll if improved else progress.best_valid_nll,
            evaluations_since_best=evaluations_since_best,
            finished=progress.step >= run.schedule.total_steps or evaluations_since_best >= run.train.patience,
        )
        return params

    def postprocess(self) -> None:
        """Smooths and calibrates the best parameters as the settings ask for.

        Smoothing is left out if it raises the validation NLL.
        """
        network, data, train = self.run.program.network, self.run.data, self.run.train
        started, changes = time.perf_counter(), []
        before = nll = self.progress.best_valid_nll
        if k := train.suffix_smoothing:
            smoothed = suffix_smoothing.smooth(network, self.best, data, k)
            smoothed_nll, scores = self._score_valid(smoothed)
            if smoothed_nll < before:
                self.best, self.best_scores, nll = smoothed, scores, smoothed_nll
                changes.append('suffix smoothing')
            else:
                self._reporter.postprocessed('suffix smoothing, which is left out,', before, smoothed_nll)
        if train.calibrate:
            self.best = calibration.calibrate(self.model(self.best), data)
            nll, self.best_scores = self._score_valid(self.best)
            fitted, valid = calibration.num_words(data), len(data.valid)
            words = f'all {valid:,}' if fitted == valid else f'{fitted:,} of the {valid:,}'
            changes.append(f'calibration on {words} validation words')
        if changes:
            seconds = self.progress.seconds + time.perf_counter() - started
            self.progress = dataclasses.replace(self.progress, seconds=seconds, postprocessed_nll=nll)
            self._reporter.postprocessed(' and '.join(changes), before, nll)

    def save(self, wait: bool = False) -> None:
        """Begins to write a checkpoint. Raises NonFiniteError instead if a number is not finite.

        Args:
            wait: Whether to return only when it is complete; training goes on otherwise.
        """
        state = self.run.program.unshard(self._state)
        finite.check(state, self.progress.step)
        if self._store:
            self._store.save(self.progress.step, state, self.best, dataclasses.asdict(self.progress))
            if wait:
                self._store.wait()

    def _read_losses(self, keep: int = 0, seconds: float | None = None) -> None:
        """Reads and reports the losses of all chunks but the last `keep`, and counts the seconds."""
        while len(self._unread) > keep:
            before, losses = self._unread.pop(0)
            nll_S = jax.device_get(losses)
            finite.check_losses(nll_S, before)
            now = time.perf_counter()
            train_seconds = self.progress.train_seconds + (now - self._last_read if seconds is None else seconds)
            self._last_read = now
            self.progress = dataclasses.replace(self.progress, seconds=now - self._started, train_seconds=train_seconds)
            self._reporter.trained(dataclasses.replace(self.progress, step=before + len(nll_S)), nll_S)

    def model(self, params: Params) -> NeuralLanguageModel:
        """Returns the model with these parameters, which this process evaluates on all of its devices."""
        program = self.run.program
        return NeuralLanguageModel(program.network, params, sharding.process_sharding(program.sharding))

    def _score_valid(self, params: Params) -> tuple[float, Scores]:
        """Scores the validation words, or a sample of them.

        Returns:
            The mean NLL, nats per word, and log P of each word if the last evaluation predicts the same words.
        """
        model, num_words = CachedScores(self.model(params)), self._num_valid_words
        score = evaluate_sample(model, self.run.data.tokens_T, self.run.data.valid, num_words)
        nll = float(multihost.broadcast_from_primary(np.float64(score.nll_per_word)))
        return nll, model.scores if num_words == self.run.eval.words else {}

    @property
    def _num_valid_words(self) -> int:
        """The most words of a validation; 0 for all words."""
        return self.run.train.valid_words or self.run.eval.words

    def _sample(self, params: Params) -> str:
        """Returns a text of `train.sample_words` words by these parameters; its random numbers are always the same."""
        model, vocabulary = NeuralLanguageModel(self.run.program.network, params), self.run.data.vocabulary
        prompt_N, words = generation.encode_prompt([], vocabulary), self.run.train.sample_words
        (ids,) = generation.sample(model, prompt_N, words, samples=1)
        return vocabulary.tokenizer.decode(vocabulary.decode(ids))

    def _stop_if_interrupted(self, save: bool) -> None:
        if signal_number := multihost.allreduce_max(self._interrupted()):
            self._read_losses()
            if save:
                self.save(wait=True)
            raise Interrupted(self.progress.step, signal_number)


def restore_or_init(run: TrainingRun, store: CheckpointStore | None) -> tuple[TrainState, Params, Progress]:
    """Returns state, best parameters and progress of the newest checkpoint, else the initial ones, on one device."""
    state = run.init_state()
    restored = store and store.restore(state, state.params)
    state, best, saved = restored or (state, jax.tree.map(jnp.copy, state.params), {})
    arrays = jax.tree.map(np.asarray, dataclasses.asdict(Progress(**saved)))
    state, best, arrays = multihost.broadcast_from_primary((state, best, arrays))
    return state, best, Progress(**{key: array.item() for key, array in arrays.items()})


def fit(trainer: Trainer) -> tuple[Params, Progress]:
    """Trains to the last update, or until validation has not improved for `train.patience` evaluations.

    Returns:
        The parameters with the best validation NLL, after `Trainer.postprocess`, and the final progress.

    Raises:
        NonFiniteError: A loss or parameter is not finite.
        Interrupted: A signal asked to stop; the state is saved.
        Pruned: The trainer's `should_prune` asked to stop; the state is saved.
        BadInput: Out of memory.
    """
    with out_of_memory_as_bad_input():
        while not trainer.done:
            trainer.finish_chunk(*step_lib.execute_steps(*trainer.next_chunk()))
    return trainer.best, trainer.progress
