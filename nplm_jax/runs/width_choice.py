"""Selects the widest network that can be trained on this machine in a given time."""

import dataclasses
import functools
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
from ml_collections import ConfigDict

from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.registry import KINDS
from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.inference.perplexity import evaluate_sample
from nplm_jax.runs import loading
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import calibration
from nplm_jax.training import step as step_lib
from nplm_jax.training.training_run import out_of_memory_as_bad_input

Network = Callable[[int, float, int], Mapping[str, Any]]
WIDTHS = 64, 96, 128, 160, 200, 256, 320, 400, 512, 640
WORDS_PER_SQUARE = 60  # minimum words in all passes, per squared width; measured in experiments/beyond/frontier
MAX_PASSES = 30  # more passes over a short text would overfit; measured in the same experiment
_STRETCH = 1.05  # factor by which training may exceed the budget in order to complete the first pass
_FIRST_WIDTH, _COST_EXPONENT = 200, 1.4  # the time of an update grows in proportion to width**1.4
_TIMINGS, _TIMED_SECONDS, _TIMED_CHUNKS = 4, 1.0, 3
_CALIBRATION_COST = 1.2  # time to calibrate on a word, in units of the time to score it; measured on 50,000 words
_VALIDATIONS, _VALIDATION_SHARE = 8, 0.05  # maximum number of validations, and their maximum share of the time


class Timing(NamedTuple):
    """The timings of a network on this machine, in seconds.

    Attributes:
        update: The time of an update.
        start: The total time before the first update and before the first scores, mostly spent on compilation.
        compile: The part of `start` that each additional chunk size costs again, mostly for compilation.
        score: The time to score a word.
    """

    update: float
    start: float
    compile: float
    score: float


class Plan(NamedTuple):
    """The numbers of updates and validations that fit into a time budget."""

    updates: int
    validations: int


def apply_keys(config: ConfigDict, keys: Mapping[str, Any], typed: Mapping[str, Any]) -> ConfigDict:
    """Returns a config with the chosen and the typed keys. Drops chosen keys that its components do not have."""
    values = flatten(config)
    with config_lib.trusting(values):
        return config_lib.to_config(config_lib.settle(values, {**keys, **typed}, given=typed.keys()))


def with_typed_optimizer(network: Network, typed: Mapping[str, Any]) -> Network:
    """Wraps `network` so that it does not set `optimizer.*` if the user typed another optimizer.

    The learning rates of different optimizers differ by orders of magnitude, so the learning rate of `network` would
    not suit another optimizer.
    """

    def keys(width: int, passes: float, words: int) -> Mapping[str, Any]:
        made = network(width, passes, words)
        own = made.get('optimizer.name', KINDS['optimizer.name'].default)
        if typed.get('optimizer.name', own) == own:
            return made
        return {key: value for key, value in made.items() if not key.startswith('optimizer.')}

    return keys


@dataclasses.dataclass(frozen=True)
class Budget:
    """A time budget, and the timings of networks of several widths.

    Attributes:
        config: The config, with the typed keys.
        typed: The keys that the user typed.
        seconds: The training time.
        network: The function `network` of the config file, from `time_budget.load_network`.
        data: The text.
        folder: The folder of the run.
        timings: The timing of each width.
    """

    config: ConfigDict
    typed: Mapping[str, Any]
    seconds: float
    network: Network
    data: Dataset
    folder: pathlib.Path
    timings: dict[int, Timing] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """The widths to choose from."""
        width = self.typed.get('model.h', self.typed.get('model.m'))
        return WIDTHS if width is None else (width,)

    @functools.cached_property
    def batch_size(self) -> int:
        """The number of words per update."""
        return self.settings(self.widths[0]).train.batch_size

    def updates(self, passes: int) -> int:
        """Returns the number of updates in the given number of passes."""
        return passes * max(len(self.data.train) // self.batch_size, 1)

    @property
    def most_updates(self) -> int:
        """The maximum number of updates, equal to MAX_PASSES passes."""
        return self.updates(MAX_PASSES)

    def settings(self, width: int) -> Settings:
        """Returns the settings for training a network of a given width for one pass."""
        keys = {**self.network(width, 1, len(self.data.train)), 'train.epochs': 1}
        return load_settings(apply_keys(self.config, keys, self.typed))

    def plan(self, width: int) -> Plan:
        """Estimates how many updates and validations fit into the budget. Extrapolates from the nearest timed width."""
        timed = min(self.timings, key=lambda w: abs(w - width))
        speed, settings = self.timings[timed], self.settings(timed)
        update, score = speed.update * (width / timed) ** _COST_EXPONENT, speed.score * width / timed
        validation = score * num_valid_words(settings, self.data)
        validations = min(max(int(_VALIDATION_SHARE * self.seconds / validation), 1), _VALIDATIONS)
        calibrated = _CALIBRATION_COST * score * calibration.num_words(self.data) if settings.train.calibrate else 0.0
        validating = (validations + settings.train.calibrate) * validation  # calibration ends with a validation
        per_pass = self.updates(1)
        size = min(settings.train.steps_per_execution, per_pass)
        # The last chunk of each pass may be smaller, and is then compiled separately.
        compiling = speed.start + (speed.compile if per_pass % size else 0.0)
        updates = min(int((self.seconds - compiling - calibrated - validating) / update), self.most_updates)
        if updates < per_pass <= _STRETCH * updates:
            updates = per_pass
        elif updates > per_pass:
            updates -= updates % per_pass % size  # avoids compiling a third chunk size
        return Plan(updates, validations)

    def suffices(self, width: int) -> bool:
        """Returns whether the budget covers one epoch and enough words for this width.

        If the user typed the width, one epoch suffices.
        """
        needed = WORDS_PER_SQUARE * width**2 if len(self.widths) > 1 else 0
        return self.plan(width).updates >= max(self.updates(1), needed / self.batch_size)

    def choose_width(self) -> int:
        """Times networks of several widths. Returns the largest that fits the budget, or the smallest if none fits."""
        width = min(self.widths, key=lambda width: abs(width - _FIRST_WIDTH))
        while width not in self.timings and len(self.timings) < _TIMINGS:
            print(f'--minutes: timing updates with {width} units', flush=True)
            timed = self.settings(width)
            if timed.optimizer.warmup:  # a warm-up would need more updates than are timed
                timed = config_lib.replace(timed, {'optimizer.warmup': 0})
            self.timings[width] = measure(timed, self.data, self.folder)
            width = max(filter(self.suffices, self.widths), default=self.widths[0])
        return max(filter(self.suffices, self.timings), default=min(self.timings))


def num_valid_words(settings: Settings, data: Dataset) -> int:
    """Returns the number of words that are scored in each validation during training."""
    return min(settings.train.valid_words or settings.eval.words or len(data.valid), len(data.valid))


def measure(settings: Settings, data: Dataset, folder: pathlib.Path) -> Timing:
    """Times updates and the evaluation of a network.

    Args:
        settings: The settings of the network.
        data: The text.
        folder: The folder of the run.
    """
    with out_of_memory_as_bad_input():
        teachers = [cast(Any, teacher.model) for teacher in loading.load_teachers(settings, folder)]
        run = prepare_run(settings, data, teachers)
        seconds: list[float] = []  # the duration of each chunk
        updates: list[int] = []
        begun = time.perf_counter()
        state, step = run.init_state(), 0
        initialized = time.perf_counter() - begun
        while len(seconds) <= _TIMED_CHUNKS or sum(seconds[1:]) < _TIMED_SECONDS:
            chunk = run.chunk(state, step)  # new words, whose rows are not in the CPU's caches, as in training
            state, nll_S = step_lib.execute_steps(*chunk)
            jax.block_until_ready(nll_S)
            seconds.append(time.perf_counter() - begun - sum(seconds))
            updates.append(chunk.num_steps)
            step = (step + chunk.num_steps) % run.schedule.total_steps
        model = run.model(run.evaluation_params(state))
        num_words, scoring = num_valid_words(settings, data), []
        for _ in range(2):
            begun = time.perf_counter()
            evaluate_sample(model, data.tokens_T, data.valid, num_words)
            scoring.append(time.perf_counter() - begun)
    # Use the median, which a brief slowdown of the machine does not affect.
    update = statistics.median(taken / number for taken, number in zip(seconds[1:], updates[1:]))
    compiling = max(seconds[0] - initialized - updates[0] * update, 0.0)
    return Timing(update, seconds[0] + scoring[0] - scoring[1], compiling, scoring[1] / num_words)
