"""Packs a finished run into a single file that every command accepts as a run.

    nplm pack runs/brown-mlp9 --output=mlp9.nplm
    nplm generate mlp9.nplm

The file contains the parameters, the vocabulary, the tokenizer, the config, the results, and the spelling model if
`nplm spell` trained one. It consists of numbers, text and a checksum, and contains no code. Packing is deterministic.
Prints the path and size of the file.
"""

import argparse
import pathlib
import tempfile

from nplm_jax.cli.parser import Parser
from nplm_jax.reporting import catalog, packed
from nplm_jax.reporting.run_table import check_finished
from nplm_jax.runs import process
from nplm_jax.runs.packing import packed_members
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, write_failure_as_bad_input


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs(1)
    parser.add_output('packed file to write; required', metavar='FILE.nplm', required=True)


def main(flags: argparse.Namespace) -> None:
    """Writes the packed model."""
    path = expand('--output', flags.output)
    require(path.suffix == packed.SUFFIX, '--output', flags.output, f'must end in {packed.SUFFIX}')
    check_finished(flags.runs)
    process.set_up_process()
    with write_failure_as_bad_input('--output', path), tempfile.TemporaryDirectory() as scratch:
        packed.write(path, packed_members(catalog.expand_run(flags.runs[0]), pathlib.Path(scratch)))
    print(f'{path}: {path.stat().st_size:,} bytes')
