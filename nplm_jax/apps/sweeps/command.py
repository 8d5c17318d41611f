"""Runs a sweep over one or more configs and summarizes the results in a table and a figure.

    nplm sweep brown
    nplm sweep brown:mlp9 brown:mlp9,lstm brown:kneser_ney_5
    nplm sweep brown model.m=30,60 model.h=50,100 --config.train.epochs=2
    nplm sweep brown seed=1,2,3 optimizer.learning_rate=0.5,1 --vectorize

Trains one run for every combination of the values in KEY=VALUE,VALUE,..., each in its own folder. Without KEY=VALUE
arguments, trains every point that sweep() in the config file yields. If several configs are given, the command trains
and compares all of them. --vectorize trains points together if they differ only in seed, learning rate or decay.
--launcher=local runs the points as processes on this machine, and --launcher=slurm runs them as SLURM jobs. --jobs
limits the number of concurrent points. Run the same command again to resume a stopped sweep. Prints a table of
perplexities, which marks the run with the best validation perplexity.
"""

import argparse
import itertools

from absl import flags

from nplm_jax.apps.sweeps import sweep_flags
from nplm_jax.cli import train
from nplm_jax.cli.parser import Parser
from nplm_jax.utils.errors import require


def define(parser: Parser) -> None:
    """Adds the flags, which `launch.parse_flags` parses."""
    axes = '[CONFIG[:PRESET] ... | KEY=VALUE,... ...]'
    parser.usage = f'nplm sweep CONFIG[:PRESET] {axes} [--config.KEY=VALUE ...] [--flags]'
    train.add_config(parser)
    values = "config key and the values to compare; default: the points that the config file's sweep() yields"
    parser.add_argument('axes', nargs='*', metavar='KEY=VALUE,...', help=values)


def main(arguments: argparse.Namespace) -> None:
    """Runs the sweep."""
    _, *argv = arguments.typed
    for name in ('search', 'minutes', 'distributed'):
        is_given = any(word.partition('=')[0] == f'--{name}' for word in argv)
        require(not is_given, f'--{name}', ..., f'cannot be used with nplm sweep; use nplm train {argv[0]}')
    configs = list(itertools.takewhile(lambda word: '=' not in word and not word.startswith('-'), argv))
    selection = [f'--configs={";".join(configs)}']
    if len(configs) == 1:
        flags.set_default(sweep_flags.SWEEP, True)  # unless a grid is given
        selection = [f'--config={configs[0]}']
    train.start(arguments.typed, [*selection, *argv[len(configs) :]])
