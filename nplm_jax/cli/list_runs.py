"""Lists the finished and unfinished runs in a folder.

    nplm runs
    nplm runs runs/brown-sweep

Prints a table of all runs in DIR and its subfolders, with their corpus, model, perplexities, training time in seconds,
and date. `*` marks the best perplexity among runs that were evaluated on the same words. Perplexities on different
corpora are not comparable.
"""

import argparse

from nplm_jax.cli.parser import Parser
from nplm_jax.reporting import catalog, run_table
from nplm_jax.reporting.text import to_json
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_argument('folder', nargs='?', metavar='DIR', default='runs', help='folder to search; default: runs')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the table of runs."""
    root = expand('DIR', flags.folder)
    require(
        root.is_dir(),
        'DIR',
        flags.folder,
        'does not exist; by default, training saves runs in the subfolder runs/ of the working directory',
    )
    runs, damaged = run_table.read_all(catalog.find(root))
    if flags.json:
        print(to_json({'runs': [run_table.describe(run) for run in runs], 'damaged': damaged}))
        return
    print(run_table.make(runs, [str(run.folder) for run in runs]) if runs else f'{root}: contains no runs')
    print(*damaged, sep='\n', end='\n' if damaged else '')
