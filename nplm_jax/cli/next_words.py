r"""Lists the most likely next words after a prompt, with their probabilities under each model.

    nplm next runs/brown-mlp9 runs/brown-kneser_ney_5 --prompt="the jury said" --count=10

Prints a table sorted by decreasing probability, with one column per run. If several runs are given, the first column
shows their mixture (see --weights). If the tokens are not words, `␣` stands for a space, `\n` for a newline, and
`<0xE4>` for one byte of a multi-byte character.
"""

import argparse

import numpy as np

from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.inference import generation
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_model_flags()
    parser.add_prompt()
    parser.add_argument('--count', type=int, metavar='N', default=10, help='number of words to list')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the most likely next words."""
    require(flags.count >= 1, '--count', flags.count, 'must be at least 1')

    models = load_models(flags.runs, flags.weights)
    prompt = models.tokenize_prompt(flags.prompt, flags.tokens)
    context_1xN = models.encode_prompt(prompt)[None]
    names, language_models = zip(*models.with_mixture())
    p_MxV = np.exp([model.next_word(context_1xN)[0].astype(np.float64) for model in language_models])
    best = generation.largest(p_MxV[0], flags.count).tolist()
    rows = [(models.vocabulary.shown[i], p_MxV[:, i].tolist()) for i in best]
    if flags.json:
        shown = models.vocabulary.show(prompt)
        print(to_json({'prompt': shown, 'next': [{'word': word, 'p': dict(zip(names, p_M))} for word, p_M in rows]}))
    else:
        print(markdown_table(['next word', *names], [[word, *(f'{p:.3g}' for p in p_M)] for word, p_M in rows]))
