"""The rows of the race: measurements on this process's device, at full size or, for a rehearsal, at a small size.

Dims: V vocabulary, B batch, S updates per turn, R runs of a sweep.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from configs import brown, sentences
from experiments.beyond.lineage import ladder
from experiments.cost.speed import contestants, problem
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.runs import experiment, process
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import finite, step, vmapped
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.training.train import Pruned
from nplm_jax.training.training_run import Chunk, TrainingRun

NETWORKS: dict[str, Callable[[], ConfigDict]] = {
    'mlp1': functools.partial(brown.get_config, 'mlp1'),
    'default': brown.get_config,
    'transformer': functools.partial(ladder.without_budget, 'attention', ladder.BROWN),
    'mlp9': functools.partial(brown.get_config, 'mlp9'),
}
BATCHES, LARGEST = (4096, 32_768, 512), 131_072
RIVALS = ('plain_jax', 'torch_compile')  # of experiments/cost/speed
# Learning rates and decays of the sweep. The points of configs/brown.py differ in shapes, so vmap cannot combine them.
POINTS = list(itertools.product((0.5, 1.0, 1.5, 2.0), (0.0, 1e-6, 1e-5, 1e-4)))
QUARTERS = 4  # validations of an epoch
EPOCHS = 1000  # a race trains for fewer epochs, so the learning rate stays above zero


@dataclasses.dataclass(frozen=True)
class Size:
    """The amount of work that a row measures.

    Attributes:
        vocabulary: The size of the vocabulary, V.
        samples: The number of words that a sampled loss draws.
        smaller: The divisor of a row's batch size.
        words: The number of words in a turn, unless the turn would then have fewer than `steps` updates.
        steps: The minimum number of updates in a turn.
        rounds: The number of timed turns.
    """

    vocabulary: int
    samples: int
    smaller: int
    words: int
    steps: int
    rounds: int

    def batch(self, B: int) -> int:
        """Returns the batch size of a row, which is at least the number of words in one stream."""
        return max(B // self.smaller, 16)

    def updates(self, B: int) -> int:
        """Returns the number of updates in a turn."""
        return max(self.steps, self.words // B)


FULL = Size(brown.VOCABULARY, 1000, 1, 2**19, 10, 5)
SMALL = Size(500, 100, 4096, 2**5, 2, 2)  # rows of one network share a compiled program


def training_speed(network: str, batch: int, size: Size) -> dict[str, Any]:
    """Times updates of nplm-jax's training step."""
    process.set_up_process()
    (run,) = prepare(network, size.batch(batch), size, [{}])
    state = run.init_state()
    chunk = run.chunk(state, 0)

    def turn() -> np.ndarray:
        nonlocal state
        state, nll_S = step.execute_steps(*chunk._replace(state=state))
        return np.asarray(nll_S)

    seconds = problem.alternate({'ours': turn}, size.rounds)
    return _rates(run.program.batch_size, chunk.num_steps, seconds, run.cost.flops_per_word)


def against(network: str, batch: int, rival: str, size: Size) -> dict[str, Any]:
    """Alternately times the training steps of nplm-jax and of a rival, on the same words and initial parameters."""
    process.set_up_process()  # rows then share the compiled program of nplm-jax's step
    problem.set_up()
    B = size.batch(batch)
    S = size.updates(B)
    shared = problem.make_problem(NETWORKS[network](), size.vocabulary, B, S, size.rounds + 1)
    turns = {name: contestants.find(name)(shared, 'bfloat16') for name in ('ours', rival)}
    return _rates(B, S, problem.alternate(turns, size.rounds), shared.flops_per_word)


def sweep(network: str, batch: int, size: Size) -> dict[str, Any]:
    """Times the points of a sweep, trained together with vmap and one by one."""
    process.set_up_process()
    B, quarter = size.batch(batch), dataclasses.replace(size, words=size.words // 4)
    scale = min(1.0, B / NETWORKS[network]().train.batch_size)  # of rates chosen for the config's batch size
    points = [{'optimizer.learning_rate': scale * rate, 'optimizer.decay': decay} for rate, decay in POINTS]
    runs = prepare(network, B, quarter, points)
    states = {mode: [r.init_state() for r in runs] for mode in ('together', 'one by one')}
    losses: dict[str, np.ndarray] = {}  # of the first turn

    def turn(mode: str, train: Callable[[Sequence[Chunk]], Sequence[tuple[Any, ...]]]) -> np.ndarray:
        made = train([run.chunk(state, 0) for run, state in zip(runs, states[mode])])
        states[mode], nll_RxS = [made_r[0] for made_r in made], np.stack([made_r[1] for made_r in made])
        losses.setdefault(mode, nll_RxS)
        return nll_RxS

    modes = {
        'together': lambda chunks: vmapped.run_chunks(chunks, len(chunks)),
        'one by one': lambda chunks: [step.execute_steps(*chunk) for chunk in chunks],
    }
    chunk = runs[0].chunk(states['one by one'][0], 0)
    turns = {mode: functools.partial(turn, mode, train) for mode, train in modes.items()}
    seconds = problem.alternate(turns, size.rounds)
    together, alone = (losses[mode] for mode in modes)
    finite.require_finite_losses(together.ravel(), 0)
    finite.require_finite_losses(alone.ravel(), 0)
    measured = _rates(B, chunk.num_steps * len(runs), seconds, runs[0].cost.flops_per_word)
    return {**measured, 'largest_relative_difference': float(np.abs(together / alone - 1).max())}


def time_to_perplexity(network: str, batch: int, size: Size) -> dict[str, Any]:
    """Trains until the paper's validation perplexity is reached. The time includes reading the corpus and compilation.

    A rehearsal trains on three sentences.
    """
    process.set_up_process()
    config = large_batch(NETWORKS[network](), batch) if size is FULL else sentences.get_config()
    target = config.paper.valid or 2.0
    validations: list[dict[str, float]] = []
    started = time.perf_counter()

    def reached(progress: Progress, schedule: Schedule) -> bool:
        perplexity, seconds = round(math.exp(progress.valid_nll), 2), round(time.perf_counter() - started, 1)
        validations.append({'update': progress.step, 'seconds': seconds, 'perplexity': perplexity})
        return perplexity <= target

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Pruned):
        experiment.run(config, pathlib.Path(folder) / 'run', should_prune=reached)
    last = validations[-1]
    seconds = last['seconds'] if last['perplexity'] <= target else None
    return {
        'batch': config.train.batch_size,
        'target': target,
        'seconds_to_target': seconds,
        'validations': validations,
    }


def large_batch(config: ConfigDict, B: int) -> ConfigDict:
    """Returns a config with another batch size, twice the epochs, and four validations per epoch.

    The learning rate grows with the square root of the batch; it has not been tuned for large batches.
    """
    updates = int(config.corpus.train) // B // QUARTERS
    changes = {
        'train.batch_size': B,
        'train.epochs': 2 * config.train.epochs,
        'train.evaluate_every': updates,
        'train.steps_per_execution': updates,
        'train.patience': QUARTERS * config.train.patience,
        'optimizer.learning_rate': config.optimizer.learning_rate * math.sqrt(B / config.train.batch_size),
    }
    return in_bfloat16(config_lib.override(config, changes))


def in_bfloat16(config: ConfigDict) -> ConfigDict:
    """Returns a config with matrix products in bfloat16, including the products below the output layer, if any."""
    keys = {'output.precision', 'model.precision'} & flatten(config).keys()
    return config_lib.override(config, dict.fromkeys(keys, 'bfloat16'))


def prepare(network: str, B: int, size: Size, points: Sequence[Mapping[str, Any]]) -> list[TrainingRun]:
    """Returns one run per point, with the point's keys changed; the words are drawn according to Zipf's law."""
    S = size.updates(B)
    changes = {'train.batch_size': B, 'train.steps_per_execution': S, 'train.epochs': EPOCHS}
    config = NETWORKS[network]()
    if config.output.kind == 'sampled':
        changes['output.samples'] = size.samples
    config = in_bfloat16(config_lib.override(config, changes))
    data = _zipf_words(size.vocabulary, S * B, config.seed)
    return [prepare_run(experiment.load_settings(config_lib.override(config, point)), data) for point in points]


def _zipf_words(V: int, num_train: int, seed: int) -> Dataset:
    """Returns words drawn according to Zipf's law as a data set."""
    share_V = 1 / np.arange(1, V + 1)
    ids = np.random.default_rng(seed).choice(V, num_train + 2, p=share_V / share_V.sum()).astype(np.int32)
    return Dataset(
        tokens_T=ids,
        train=Span(0, num_train),
        valid=Span(num_train, num_train + 1),
        test=Span(num_train + 1, num_train + 2),
        vocabulary=Vocabulary(tuple(f'w{i}' for i in range(V)), (0,) * V),
    )


def _rates(B: int, updates: int, seconds: Mapping[str, Sequence[float]], flops: float) -> dict[str, Any]:
    """Returns the words per second of each turn by contestant, and the peak memory if the device reports it."""
    memory = jax.local_devices()[0].memory_stats() or {}
    return {
        'batch': B,
        'updates': updates,
        'flops_per_word': flops,
        'words_per_second': {name: [round(updates * B / s) for s in turns] for name, turns in seconds.items()},
        'peak_bytes': memory.get('peak_bytes_in_use'),
    }


def _make_rows() -> dict[str, Callable[[Size], dict[str, Any]]]:
    """Returns the measurement functions by row name, starting with the most important row."""
    three = ('mlp1', 'default', 'transformer')
    speeds = [(network, batch) for batch in (*BATCHES, LARGEST) for network in three]
    rivals = itertools.product(RIVALS, ('mlp1', 'mlp9'))
    made: dict[str, Callable[[Size], dict[str, Any]]] = {}
    made |= {f'{n}-{b}': functools.partial(training_speed, n, b) for n, b in speeds[: -len(three)]}
    made |= {f'{n}-{BATCHES[0]}-{rival}': functools.partial(against, n, BATCHES[0], rival) for rival, n in rivals}
    made |= {f'mlp9-{b}-vmap': functools.partial(sweep, 'mlp9', b) for b in (128, BATCHES[0])}
    trained = (('mlp9', BATCHES[0]), ('mlp1', BATCHES[0]), ('mlp9', 512))
    made |= {f'{n}-{b}-perplexity': functools.partial(time_to_perplexity, n, b) for n, b in trained}
    return made | {f'{n}-{b}': functools.partial(training_speed, n, b) for n, b in speeds[-len(three) :]}


ROWS = _make_rows()
