"""Trains a network or estimates a count-based model.

    nplm train brown:mlp9
    nplm train brown --config.model.h=50 --config.seed=2 --workdir=runs/wider
    nplm train text:modified_kneser_ney_5 --config.corpus.path=my_text.txt
    nplm train my_config.py:large

CONFIG is the name of a config in this package, or the path of a file that defines `get_config`. PRESET is one of its
presets. Prints a table of perplexities. Run the same command again to resume a stopped run. Other flags: --distributed
with --coordinator, --processes, --process_id and --heartbeat for several processes; --launcher with --slurm for a SLURM
job; --storage and --jobs with --search; --scheduler for a Dask cluster. Exit codes: 0 (finished), 1 (failed), 2
(invalid input), and 130 (Ctrl-C) or 143 (SIGTERM) if the run was stopped and all progress was saved.
"""

import argparse
import functools
from collections.abc import Sequence

from absl import app

from nplm_jax.cli import launch
from nplm_jax.cli.parser import Parser
from nplm_jax.reporting.shell import command_line, nplm_command


def define(parser: Parser) -> None:
    """Adds the flags, which `launch.parse_flags` parses."""
    parser.usage = 'nplm train CONFIG[:PRESET] [--config.KEY=VALUE ...] [--flags]'
    add_config(parser)
    minutes = 'choose a network that can be trained in N minutes on this machine; default: the network of CONFIG'
    parser.add_argument('--minutes', metavar='N', help=minutes)
    trials = "run trials of the config file's search(trial) until N are finished; default: run the config once"
    parser.add_argument('--search', metavar='N', help=trials)


def main(flags: argparse.Namespace) -> None:
    """Trains the model."""
    _, config, *words = flags.typed
    start(flags.typed, [f'--config={config}', *words])


def add_config(parser: Parser) -> None:
    """Adds the config argument and the flags shared by `nplm train` and `nplm sweep`."""
    parser.passes_on = True
    parser.add_argument(
        'config', metavar='CONFIG[:PRESET]', help='config, optionally with a preset, such as brown:mlp9'
    )
    parser.add_argument(
        '--config.KEY',
        metavar='VALUE',
        help='value of a config key, as in --config.model.h=50; default: the value in CONFIG',
    )
    parser.add_argument(
        '--workdir', metavar='DIR', help='folder of the run; default: runs/NAME, followed by the changed keys'
    )
    parser.add_switch('--print_config', 'print every config key with its value and meaning, then exit')


def start(typed: Sequence[str], flags: Sequence[str]) -> None:
    """Runs launch.py in this process with the given flags.

    Args:
        typed: The nplm command and its arguments, which are recorded and shown in the message on how to resume.
        flags: The flags and positional arguments of launch.py.
    """
    main = functools.partial(launch.main, command=command_line([*nplm_command(), *typed]))
    app.run(main, argv=['nplm', *flags], flags_parser=launch.parse_flags)
