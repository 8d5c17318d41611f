"""The problem of the race, which consists of a network, its parameters and words, and the timing of turns.

Dims: V vocabulary, B batch, S updates per turn, T words of the stream.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from configs import brown, wikitext2
from experiments import results, study
from experiments.beyond.lineage import ladder
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.settings import Settings
from nplm_jax.data.batches import Batch, make_batch
from nplm_jax.data.stream import Span
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import EMBEDDING, Params
from nplm_jax.runs import compatibility
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import NonFiniteError

__all__ = ['PRECISIONS', 'ROWS', 'LARGE', 'Problem', 'Turn', 'make_problem', 'alternate']

PRECISIONS = ('float32', 'bfloat16')  # of every contestant's computations
Turn = Callable[[], np.ndarray]  # makes S updates and returns their mean NLLs, float32, S, nats per word
Name = TypeVar('Name', str, tuple[str, str])


def rung(name: str) -> ConfigDict:
    """Returns a rung of experiments/beyond/lineage with the exact loss, without warm-up."""
    config = ladder.without_budget(name, ladder.BROWN)
    return config_lib.override(config, {'output.kind': 'full', 'optimizer.warmup': 0})


# Name -> the function that creates the config, and |V| (of WikiText-2: with corpus.paragraphs=auto).
ROWS: dict[str, tuple[Callable[[], ConfigDict], int]] = {
    'mlp1': (functools.partial(brown.get_config, 'mlp1'), brown.VOCABULARY),
    'mlp9': (functools.partial(brown.get_config, 'mlp9'), brown.VOCABULARY),
    'mlp10': (functools.partial(wikitext2.get_config, 'mlp10'), 33_279),
    'lstm': (functools.partial(brown.get_config, 'lstm'), brown.VOCABULARY),
    'mogrifier': (functools.partial(rung, 'mogrifier'), brown.VOCABULARY),
    'transformer': (functools.partial(rung, 'attention'), brown.VOCABULARY),
}
QUICK = [row for row in ROWS if row != 'mlp10']  # the rows of --quick
LARGE = 'large'  # a network measured only by memory.py


@dataclasses.dataclass(frozen=True)
class Problem:
    """The starting point of every contestant. All arrays are NumPy arrays.

    Attributes:
        settings: The settings of the network and its training.
        vocabulary_size: The size of the vocabulary, V.
        params: The initial parameters, float32.
        tokens_T: The words, int32.
        positions_SxB: The positions of the words that each update predicts, int32, in training order. Each turn is an
            epoch.
    """

    settings: Settings
    vocabulary_size: int
    params: Params
    tokens_T: np.ndarray
    positions_SxB: np.ndarray

    @property
    def num_steps(self) -> int:
        """The number of updates in a turn, S."""
        return len(self.positions_SxB)

    @property
    def total_steps(self) -> int:
        """The number of updates in all turns, over which the learning rate decays."""
        return self.num_steps * self.settings.train.epochs

    @functools.cached_property
    def network(self) -> Network:
        """The static part of the network."""
        return network_from_settings(self.settings, self.vocabulary_size)

    @property
    def num_streams(self) -> int:
        """The number of streams in an update, which is B for a window."""
        return self.network.layout.num_streams(self.settings.train.batch_size)

    def batch(self, positions: Any) -> Batch:
        """Returns the examples at the given positions in one or more updates, stream by stream. Runs inside jit."""
        layout = self.network.layout
        return make_batch(self.tokens_T, positions.reshape(-1, layout.bptt_length), layout.lookback)

    @property
    def flops_per_word(self) -> int:
        """The number of floating-point operations in the products of an update.

        The forward pass performs 2 operations per weight, and the backward pass performs 4. C counts only if it is also
        the output matrix. The products of queries, keys and values in attention are not counted.
        """
        is_tied = EMBEDDING in self.network.body.widths
        multiplied = {name: value for name, value in self.params.items() if name != EMBEDDING or is_tied}
        return 6 * sum(leaf.size for leaf in jax.tree.leaves(multiplied) if leaf.ndim > 1)


def set_up() -> None:
    """Configures JAX, before the first array, for full float32 precision and no preallocation of GPU memory."""
    logging.set_verbosity(logging.WARNING)
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    jax.config.update('jax_default_matmul_precision', 'highest')


def large() -> ConfigDict:
    """Returns MLP9 with 300 hidden units, for a vocabulary whose arrays take nearly all of the memory."""
    config = brown.get_config('mlp9')
    config.model.h = 300
    return config


def without_dropout(config: ConfigDict) -> ConfigDict:
    """Returns a copy of a config without dropout. All contestants then have the same losses."""
    rates = [key for key in flatten(config) if key.startswith('model.') and key.endswith('dropout')]
    return config_lib.override(config, dict.fromkeys(rates, 0.0))


def make_settings(config: ConfigDict, B: int, turns: int, block_size: int = 0) -> Settings:
    """Returns the settings of a race; see `make_problem`.

    Raises:
        BadInput: B is not a multiple of `model.bptt_length`.
    """
    settings = config_lib.from_config(config)
    changes = {
        'optimizer.learning_rate': settings.optimizer.learning_rate * min(1.0, B / settings.train.batch_size),
        'train.batch_size': B,
        'train.epochs': turns,
        **({'output.block_size': block_size} if block_size else {}),
    }
    settings = config_lib.replace(settings, changes)
    compatibility.validate(settings)
    return settings


def make_problem(config: ConfigDict, V: int, B: int, S: int, turns: int, block_size: int = 0) -> Problem:
    """Draws words according to Zipf's law, so that frequent words repeat within a batch, as they do in a text.

    Args:
        config: The config of the network and its training. If B is smaller than the batch size in the config, the
            learning rate is reduced in proportion.
        V: The number of words in the vocabulary.
        B: The number of words per update, which must be a multiple of `model.bptt_length` if the network has this key.
        S: The number of updates in a turn.
        turns: The number of turns. Each turn counts as an epoch.
        block_size: The number of examples whose scores `ours` holds at once, or 0 for the value in the config.
    """
    settings = make_settings(config, B, turns, block_size)
    share_V = 1 / np.arange(1, V + 1)
    share_V /= share_V.sum()
    tokens_T = np.random.default_rng(settings.seed).choice(V, S * B, p=share_V).astype(np.int32)
    bias_V = np.log(share_V).astype(np.float32) if settings.train.unigram_bias else None
    with jax.default_device(jax.devices('cpu')[0]):  # excludes these arrays from the peak memory of an accelerator
        network = network_from_settings(settings, V)
        params = jax.tree.map(np.asarray, network.init(jax.random.key(settings.seed), bias_V))
        positions_T = np.asarray(network.layout.epoch_positions(settings.seed, 0, Span(0, S * B), B))
    return Problem(settings, V, params, tokens_T, positions_T.reshape(S, B))


def alternate(turns: Mapping[Name, Turn], rounds: int) -> dict[Name, list[float]]:
    """Times contestants alternately. In every second round, the order is reversed.

    Args:
        turns: One turn of each contestant, by name. Each turn runs once before timing, so that it is compiled.
        rounds: The number of timed turns of each contestant.

    Returns:
        The seconds of each turn, by name.
    """
    for turn in turns.values():
        turn()
    seconds: dict[Name, list[float]] = {name: [] for name in turns}
    for i in range(rounds):
        for name in list(turns)[:: -1 if i % 2 else 1]:
            started = time.perf_counter()
            turns[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def check_losses(turns: Mapping[tuple[str, str], Turn]) -> None:
    """Checks that all contestants have the same losses in a turn without dropout.

    Args:
        turns: The turns by name and precision. Each is the first turn of its contestant.

    Raises:
        NonFiniteError: The losses of a contestant differ from the losses of the first contestant.
    """
    nll_S = {entry: turn() for entry, turn in turns.items()}
    first = next(iter(nll_S.values()))
    tolerance = 2e-2 if any(precision == 'bfloat16' for _, precision in turns) else 2e-4
    for (name, precision), losses_S in nll_S.items():
        if not np.allclose(losses_S, first, rtol=tolerance):
            raise NonFiniteError(
                f'{name} in {precision} has the losses {losses_S.tolist()}, which must be {first.tolist()}'
            )


def recorded(flags: study.Flags) -> dict[str, Any]:
    """Returns the content of the --output file. Raises BadInput if the file is missing or damaged."""
    return results.read(flags.output.parent, flags.output.stem)


def commands(
    measure: Callable[[study.Flags], Iterable[dict[str, Any]]], make_table: Callable[[dict[str, Any]], str]
) -> tuple[Callable[[study.Flags], None], Callable[[study.Flags], str]]:
    """Returns the arguments `measure` and `show` of `study.run` for a study whose results are in the --output file.

    Args:
        measure: A function that yields the content of the file after each row.
        make_table: A function that returns the table for the content of the file.
    """

    def main(flags: study.Flags) -> None:
        results.write_each(flags.output, measure(flags))
        print(study.shown(show, flags))

    def show(flags: study.Flags) -> str:
        return make_table(recorded(flags))

    return main, show
