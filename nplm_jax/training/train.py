"""The training loop.

`train` implements the complete procedure: restoring a checkpoint, updates, validation, saving and post-processing. It
is a generator that yields chunks of consecutive updates and receives their results. `fit` executes the chunks of one
run, and `vmapped.fit_many` executes the chunks of several runs together.

Dims: S updates per chunk.
"""

import dataclasses
import time
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.distributed import multihost
from nplm_jax.inference import generation
from nplm_jax.inference.perplexity import evaluate_sample, sample_spans
from nplm_jax.models.mixture import CachedScores, Scores
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params
from nplm_jax.training import affixes, calibration, finite
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.loss_reader import LossReader
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.step import TrainState
from nplm_jax.training.stop_signal import StopSignal
from nplm_jax.training.training_run import Chunk, ChunkResult, TrainingRun, out_of_memory_as_bad_input
from nplm_jax.utils.errors import NonFiniteError


class Interrupted(Exception):
    """Raised when a signal stops training. The state has been saved."""

    def __init__(self, step: int, signal_number: int) -> None:
        """Creates the exception from the number of the last update and the number of the signal."""
        super().__init__(f'stopped after update {step:,} (saved)')
        self.signal_number = signal_number


class Pruned(Exception):
    """Raised when a search stops training after a validation. The state has been saved."""


class Best(NamedTuple):
    """The parameters with the best validation NLL.

    Attributes:
        params: The parameters, on the devices of the run.
        scores: log P of the validation words. Empty if the parameters come from a checkpoint, or if the final
            evaluation scores other words than validation.
    """

    params: Params
    scores: Scores


class Trained(NamedTuple):
    """The result of training.

    Attributes:
        params: The parameters with the best validation NLL, after post-processing, on the devices of the run. In
            multi-process runs, every process holds them in full.
        scores: See `Best`.
        progress: The progress at the end of training.
    """

    params: Params
    scores: Scores
    progress: Progress


# A run in training. The result of each yielded chunk is sent to the generator; None if the chunk was not executed.
Training: TypeAlias = Generator[Chunk, ChunkResult | None, Trained]
ShouldPrune: TypeAlias = Callable[[Progress, Schedule], bool]


def never(progress: Progress, schedule: Schedule) -> bool:
    """Returns False, so that no run is pruned. This function is the default value of `should_prune`."""
    return False


def train(
    run: TrainingRun,
    store: CheckpointStore | None,
    reporter: Reporter,
    interrupted: Callable[[], int] = lambda: 0,
    started: float | None = None,
    should_prune: ShouldPrune = never,
) -> Training:
    """Trains until the last update, or until validation has not improved for `train.patience` evaluations.

    Training resumes from the newest checkpoint. On a CPU, identical settings and data give bitwise-identical
    parameters, however often the run was interrupted. In multi-process runs, every process must call this function.
    All processes then use the checkpoint and the validation results of the first process.

    To keep the device busy, the losses of a chunk are read only after the next chunk has been dispatched, unless the
    run logs, validates or saves after the chunk.

    Args:
        run: The constants of the run.
        store: The checkpoints, or None in a process that neither reads nor writes checkpoints.
        reporter: The reporter of training events.
        interrupted: A function that returns the number of the stop signal that this process received, or 0.
        started: The value of `time.perf_counter()` at the start of the run. If None, the run starts now.
        should_prune: A function that returns whether to stop the run. It is called after each validation except the
            last.

    Yields:
        The next chunk of updates, whose result must be sent to the generator.

    Returns:
        The best parameters after post-processing, their scores and the final progress.

    Raises:
        NonFiniteError: A loss, a parameter or the optimizer state is not finite. The last good checkpoint is kept.
        OSError: A checkpoint could not be written.
        Interrupted: A signal requested a stop. The state has been saved.
        Pruned: `should_prune` requested a stop. The state has been saved.
    """
    state, best, progress = restore_or_init(run, store)
    losses = LossReader(reporter, (time.perf_counter() if started is None else started) - progress.seconds)
    reporter.start(progress, run.schedule, run.program.batch_size, run.cost, num_sampled_words(run))
    stop_signal = StopSignal(interrupted)
    while True:
        if signal_number := stop_signal.number(at_once=progress.finished):
            progress = losses.read(progress)
            save(run, store, state, best, progress, wait=True)
            raise Interrupted(progress.step, signal_number)
        if progress.finished:
            params = best.params if multihost.is_alone() else run.program.unshard(best.params)
            return Trained(params, best.scores, progress)
        losses.start_chunk()
        if (result := (yield run.chunk(state, progress.step))) is None:
            continue
        state, nll_S, seconds = result
        due = run.schedule.due(progress.step, progress.step + len(nll_S))
        progress = losses.add(progress, nll_S, seconds, wait=any(due))
        if due.log or due.evaluate:
            finite.require_finite(state, progress.step)
            if store:
                store.check()
        if due.evaluate:
            best, progress = validate(run, state, best, progress, reporter)
            if should_prune(progress, run.schedule) and not progress.finished:
                save(run, store, state, best, progress, wait=True)
                raise Pruned(f'pruned after update {progress.step:,} (saved)')
        if progress.finished:
            best, progress = postprocess(run, best, progress, reporter)  # saved once, below
        if due.save or progress.finished:
            save(run, store, state, best, progress, wait=progress.finished)


def fit(training: Training) -> Trained:
    """Executes all chunks of a training run; see `train`. Raises BadInput if memory runs out."""
    result = None
    with out_of_memory_as_bad_input():
        try:
            while True:
                chunk = training.send(result)
                result = ChunkResult(*step_lib.execute_steps(*chunk))
        except StopIteration as stop:
            return cast(Trained, stop.value)


def restore_or_init(run: TrainingRun, store: CheckpointStore | None) -> tuple[TrainState, Best, Progress]:
    """Restores the newest checkpoint, or initializes the run if there is none, on the devices of the run."""
    shapes, place = run.state_shapes(), run.program.sharding.shard
    best_shapes = jax.eval_shape(affixes.fold, shapes.params, run.inputs.affixes_VxK)
    restored = store and store.restore(shapes, best_shapes)
    if not multihost.broadcast_from_primary(np.bool(restored is not None)):
        state = run.init_state()
        return state, Best(jax.tree.map(jnp.copy, run.evaluation_params(state)), {}), Progress()
    state, best, saved = restored or (*jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), (shapes, best_shapes)), {})
    arrays = jax.tree.map(np.asarray, dataclasses.asdict(Progress(**saved)))
    state, best, arrays = multihost.broadcast_from_primary((state, best, arrays))
    return place(state), Best(place(best), {}), Progress(**{key: array.item() for key, array in arrays.items()})


def validate(
    run: TrainingRun, state: TrainState, best: Best, progress: Progress, reporter: Reporter
) -> tuple[Best, Progress]:
    """Evaluates the parameters of a state on the validation words, and reports the result.

    Returns:
        The best parameters so far, and the updated progress. Its field `finished` is True after the last update, and if
        the NLL has not improved for `train.patience` validations.
    """
    params = run.evaluation_params(state)
    try:
        nll, scores = score_valid(run, params)
    except NonFiniteError as error:
        raise NonFiniteError(f'{error} after update {progress.step:,}') from None
    if improved := nll < progress.best_valid_nll:
        best = Best(jax.tree.map(jnp.copy, params), scores)
    evaluations_since_best = 0 if improved else progress.evaluations_since_best + 1
    progress = dataclasses.replace(
        progress,
        valid_nll=nll,
        best_step=progress.step if improved else progress.best_step,
        best_valid_nll=nll if improved else progress.best_valid_nll,
        evaluations_since_best=evaluations_since_best,
        finished=progress.step >= run.schedule.total_steps or evaluations_since_best >= run.train.patience,
    )
    reporter.validated(progress)
    if run.train.sample_words:
        params = run.program.unshard(params)
        if multihost.is_primary():
            reporter.sampled(sample(run, params))
    return best, progress


def postprocess(run: TrainingRun, best: Best, progress: Progress, reporter: Reporter) -> tuple[Best, Progress]:
    """Calibrates the best parameters, if calibration is enabled."""
    if not run.train.calibrate:
        return best, progress
    data, started = run.data, time.perf_counter()
    calibrated = calibration.calibrate(run.model(best.params, is_shared=True), data)
    nll, scores = score_valid(run, calibrated)
    fitted, valid = calibration.num_words(data), len(data.valid)
    words = f'all {valid:,}' if fitted == valid else f'{fitted:,} of {valid:,}'
    reporter.postprocessed(f'calibration on {words} validation words', progress.best_valid_nll, nll)
    seconds = progress.seconds + time.perf_counter() - started
    return Best(calibrated, scores), dataclasses.replace(progress, seconds=seconds, postprocessed_nll=nll)


def save(
    run: TrainingRun, store: CheckpointStore | None, state: TrainState, best: Best, progress: Progress, wait: bool
) -> None:
    """Starts writing a checkpoint. Raises NonFiniteError instead if the state is not finite.

    Args:
        run: The constants of the run.
        store: The checkpoints, or None in a process that does not write them.
        state: The training state.
        best: The best parameters. Their scores are not saved.
        progress: The progress of the run.
        wait: Whether to block until the checkpoint is complete.
    """
    finite.require_finite(state, progress.step)
    arrays = run.program.unshard(state), run.program.unshard(best.params)  # collectives, which every process must call
    if store:
        store.save(progress.step, *arrays, dataclasses.asdict(progress))
        if wait:
            store.wait()


def score_valid(run: TrainingRun, params: Params) -> tuple[float, Scores]:
    """Scores the validation words, or a sample of them if `run.num_valid_words` is not 0.

    Returns:
        The mean NLL, nats per word, and log P of each scored word. If the final evaluation scores other words, the
        second result is empty.
    """
    model, num_words = CachedScores(run.model(params, is_shared=True)), run.num_valid_words
    score = evaluate_sample(model, run.data.tokens_T, run.data.valid, num_words)
    nll = float(multihost.broadcast_from_primary(np.float64(score.nll_per_word)))
    return nll, model.scores if num_words == run.eval.words else {}


def num_sampled_words(run: TrainingRun) -> int:
    """Returns the number of words in a validation sample, or 0 if validations use all validation words."""
    valid = run.data.valid
    num_words = sum(map(len, sample_spans(valid, run.num_valid_words or len(valid))))
    return num_words if num_words < len(valid) else 0


def sample(run: TrainingRun, params: Params) -> str:
    """Generates `train.sample_words` words with the given parameters and a fixed seed."""
    model, vocabulary = NeuralLanguageModel(run.program.network, params), run.data.vocabulary
    prompt_N, words = generation.encode_prompt([], vocabulary), run.train.sample_words
    (ids,) = generation.sample(model, prompt_N, words, samples=1)
    return vocabulary.tokenizer.decode(vocabulary.decode(ids))
