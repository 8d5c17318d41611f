"""Compares the time of an exact evaluation with the time of a plain log-sum-exp over the same number of scores.

    python -m experiments.cost.speed.evaluation [--networks=default,one_minute]
    python -m experiments.cost.speed.evaluation --show      prints the table of the committed results

Both compute float32 scores over the same vocabulary. The evaluation also runs the body, word by word if it is
recurrent.
"""

from __future__ import annotations

import os
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax

from configs import brown
from experiments import study
from experiments.cost.speed import problem
from experiments.sources import of_module
from nplm_jax.data.stream import Span
from nplm_jax.models.network import Network
from nplm_jax.models.neural import SCORING_BATCH, NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS, Features, Params
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.command_line import load_config
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings

RESULTS = pathlib.Path(__file__).parent / 'results'
NETWORKS = {'default': 'configs/brown.py', 'one_minute': 'configs/brown.py:one_minute', 'lstm': 'configs/brown.py:lstm'}
HEADER = ['network', 'plain, words/s', 'exact evaluation, words/s', 'ratio']


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--networks', NETWORKS, 'networks to evaluate, with random parameters')
    parser.add_count(
        '--words', 8192, 'number of words per turn, rounded down to a multiple of 256', least=SCORING_BATCH
    )
    parser.add_count('--rounds', 7, 'number of timed turns of each implementation')
    parser.add_output_path(RESULTS / 'evaluation.json')
    parser.add_quick(networks=['default'], words=512, rounds=1, output='runs/quick/evaluation.json')


@jax.jit
def plain_nll(params: Params, features_K: Features, targets_KxB: jax.Array) -> jax.Array:
    """Returns the NLL of the targets, K x B, given the features of K blocks of B words, from all scores of a block."""

    def of_block(block: tuple[Features, jax.Array]) -> jax.Array:
        features, targets_B = block
        y_BxV = sum(x_BxD @ params[name].T for name, x_BxD in features.items()) + params[BIAS][None, :]
        return optax.softmax_cross_entropy_with_integer_labels(y_BxV, targets_B)

    return jax.lax.map(of_block, (features_K, targets_KxB))


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the results after each network."""
    num_blocks = flags.words // SCORING_BATCH
    measured = {
        'words': (num_words := num_blocks * SCORING_BATCH),
        'rows': (rows := dict[str, Any]()),
        'load': os.getloadavg()[0],
        **of_module('experiments.cost.speed.evaluation'),
    }
    for name in flags.networks:
        network = network_from_settings(load_settings(load_config(NETWORKS[name])), brown.VOCABULARY)
        rows[name] = {
            form: num_words / seconds for form, seconds in time_forms(network, num_blocks, flags.rounds).items()
        }
        yield measured


def time_forms(network: Network, num_blocks: int, rounds: int) -> dict[str, float]:
    """Returns the median time of a turn in each form, in seconds."""
    rng, shape = np.random.default_rng(0), (num_blocks, SCORING_BATCH)
    params = network.init(jax.random.key(0), np.zeros(brown.VOCABULARY, np.float32))
    ids_T = rng.integers(0, brown.VOCABULARY, num_blocks * SCORING_BATCH).astype(np.int32)
    widths = network.body.widths.items()
    features_K = {name: rng.normal(size=(*shape, width)).astype(np.float32) for name, width in widths}
    model = NeuralLanguageModel(network, params)
    turns = {
        'plain': lambda: plain_nll(params, features_K, ids_T.reshape(shape)).block_until_ready(),
        'exact': lambda: model.score(ids_T, Span(0, len(ids_T))),
    }
    return {form: statistics.median(times) for form, times in problem.alternate(turns, rounds).items()}


def make_table(measured: dict[str, Any]) -> str:
    """Returns the results as a Markdown table."""
    rows = [
        [name, *(f'{row[form]:,.0f}' for form in ('plain', 'exact')), f'{row["exact"] / row["plain"]:.2f}']
        for name, row in measured['rows'].items()
    ]
    return markdown_table(HEADER, rows)


if __name__ == '__main__':
    main, show = problem.commands(measure, make_table)
    study.run(__doc__, define=define, measure=main, show=show)
