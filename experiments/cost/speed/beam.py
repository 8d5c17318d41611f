"""Seconds of a beam search after a short and after a long context, and of as many samples.

    python -m experiments.cost.speed.beam
    python -m experiments.cost.speed.beam --contexts=5,50,500 --width=10 --words=200 --rounds=5

Prints, for networks of random weights over the paper's vocabulary, the median of the rounds after each context, the
last as a multiple of the first (no word of the context is read twice), and the search as a multiple of the samples.
Everything is run once before, so that nothing is compiled while the clock runs.
"""

import functools
import sys
import time

import numpy as np

from configs.brown import VOCABULARY
from experiments import study
from experiments.cost.speed import problem
from nplm_jax.inference import beam_search, generation
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting.text import markdown_table

FAMILIES = 'nplm', 'lstm', 'transformer'
SHAPE = {'model.m': 200, 'model.h': 200}


def measure(model: NeuralLanguageModel, flags: study.Flags) -> list[float]:
    """Returns the seconds of a search after each context, and those of the samples after the last one."""
    prompts = [np.random.default_rng(0).integers(1, VOCABULARY, context) for context in flags.contexts]
    calls = [functools.partial(beam_search.beam, model, prompt, flags.words, flags.width) for prompt in prompts]
    calls.append(functools.partial(generation.sample, model, prompts[-1], flags.words, flags.width))
    seconds = []
    for call in calls:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    contexts = 'words before the first that is written'
    parser.add_argument('--contexts', type=study.counts, default='50,500', metavar='N,...', help=contexts)
    parser.add_count('--width', 10, 'width of the beam')
    parser.add_count('--words', 200, 'words to write')
    parser.add_count('--rounds', 5, 'searches after each context, and turns of the samples')


def main(flags: study.Flags) -> None:
    """Measures and prints the table."""
    rows = []
    for family in FAMILIES:
        model, _ = problem.random_model({**SHAPE, 'model.family': family})
        rounds = [measure(model, flags) for _ in range(1 + flags.rounds)]
        *searches, samples = np.median(rounds[1:], axis=0).tolist()
        ratios = searches[-1] / searches[0], searches[-1] / samples
        times = (f'{seconds:.3f} s' for seconds in (*searches, samples))
        rows.append([family, *times, *(f'{ratio:.2f}' for ratio in ratios)])
        print(*rows[-1], file=sys.stderr)
    contexts = (f'after {context} words' for context in flags.contexts)
    header = ['network', *contexts, f'{flags.width} samples', 'last / first', 'last / samples']
    print(markdown_table(header, rows))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
