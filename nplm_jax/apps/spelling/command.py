"""Trains a spelling model, which allows a run to score and generate out-of-vocabulary words.

    nplm spell runs/NAME
    nplm spell runs/NAME --family=modified_kneser_ney --n=6
    nplm score runs/NAME --open < text
    nplm generate runs/NAME --open

The spelling model is a small window network with the paper's architecture. It is trained on the characters of the
training words outside the run's vocabulary, which takes at most a minute, and saved in runs/NAME/spelling. Run the same
command again to resume interrupted training. --family selects another model.family; modified_kneser_ney trains in a
second. The probability of an out-of-vocabulary word w is then

    P(w | context) = P(<rare> | context) P(spelling of w | w is out of vocabulary),

so every string without whitespace has a positive probability. Prints the bits per character for out-of-vocabulary words
in the validation and test texts, and some generated words. The end of each word counts as a character. Training
progress is printed to stderr.
"""

import argparse
import contextlib
import sys

from nplm_jax.cli.parser import Parser
from nplm_jax.inference.drawn_spellings import spell
from nplm_jax.reporting.run_table import check_finished
from nplm_jax.reporting.shell import command_line, nplm_command
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs import process, spelling
from nplm_jax.training.train import Interrupted
from nplm_jax.utils.errors import require

_SHOWN = 10  # number of generated words to print
_NAMES = {'valid': 'validation', 'test': 'test', 'new': 'test, not in the training text'}


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs(1)
    parser.add_argument('--family', default='nplm', help='model.family of the spelling model')
    order = 'order of the spelling model, which reads the N - 1 preceding characters; default: 8'
    parser.add_argument('--n', type=int, metavar='N', help=order)
    parser.add_argument('--seed', type=int, default=1, metavar='N', help='random seed for training and generation')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Trains and evaluates the spelling model."""
    require(0 <= flags.seed < 2**31, '--seed', flags.seed, 'must be between 0 and 2**31 - 1')
    changes = {'model.family': flags.family, **({} if flags.n is None else {'model.n': flags.n})}

    check_finished(flags.runs)
    process.set_up_process()
    (folder,), command = flags.runs, command_line([*nplm_command(), *flags.typed])
    try:
        with contextlib.redirect_stdout(sys.stderr):
            rare = spelling.read_rare_words(folder)
            trained = spelling.train(folder, rare, flags.seed, command, changes)
    except Interrupted as stop:
        print(f'{stop}; resume with: {command}', file=sys.stderr)
        sys.exit(128 + stop.signal_number)
    measured = spelling.measure(trained, rare.words)
    words = spell(trained, range(_SHOWN), flags.seed)
    if flags.json:
        print(to_json({**measured, 'words': words}))
        return
    header = ['out-of-vocabulary words', 'words', 'types', 'characters', 'bits / character']
    rows = [
        [_NAMES[split], *(f'{m[key]:,}' for key in ('words', 'types', 'characters')), f'{m["bits_per_character"]:.3f}']
        for split, m in measured.items()
    ]
    print(markdown_table(header, rows))
    print(f'generated: {" ".join(words)}')
