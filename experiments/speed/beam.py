"""Seconds of a beam search after a short and after a long context: no word of the context is read twice.

    python -m experiments.speed.beam
    python -m experiments.speed.beam --contexts=5,50,500 --width=10 --words=200 --rounds=5

Prints, for an LSTM and a window network of random weights, the median of the rounds after each context, and the last
as a multiple of the first. A search is run once before, so that nothing is compiled while the clock runs.
"""

import time

import jax
import numpy as np

from configs import default
from experiments import study
from nplm_jax import config as config_lib
from nplm_jax.inference import generation
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.utils.text import markdown_table

VOCABULARY_SIZE = 2000
SHAPE = {'model.m': 64, 'model.h': 64, 'model.direct': False}


def make_model(family: str) -> NeuralLanguageModel:
    """Returns a network of random weights."""
    settings = config_lib.replace(config_lib.from_config(default.get_config()), {**SHAPE, 'model.family': family})
    network = Network.make(settings, VOCABULARY_SIZE)
    return NeuralLanguageModel(network, network.init(jax.random.key(0)))


def measure(model: NeuralLanguageModel, context: int, width: int, words: int) -> float:
    """Returns the seconds of one search."""
    prompt_N = np.random.default_rng(0).integers(1, VOCABULARY_SIZE, context)
    started = time.perf_counter()
    generation.beam(model, prompt_N, words, width)
    return time.perf_counter() - started


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    contexts = 'words before the first that is written'
    parser.add_argument('--contexts', type=study.counts, default='5,500', metavar='N,...', help=contexts)
    parser.add_count('--width', 10, 'width of the beam')
    parser.add_count('--words', 200, 'words to write')
    parser.add_count('--rounds', 5, 'searches after each context')


def main(flags: study.Flags) -> None:
    """Measures and prints the table."""
    rows = []
    for family in ('lstm', 'nplm'):
        model = make_model(family)
        turns = range(1 + flags.rounds)
        rounds = [[measure(model, c, flags.width, flags.words) for c in flags.contexts] for _ in turns]
        seconds = np.median(rounds[1:], axis=0).tolist()
        rows.append([family, *(f'{s:.3f} s' for s in seconds), f'{seconds[-1] / seconds[0]:.2f}'])
    print(markdown_table(['network', *(f'after {c} words' for c in flags.contexts), 'last / first'], rows))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
