"""A finished run as one file, for every command that takes a run.

    nplm pack runs/brown-mlp9 mlp9.nplm
    nplm generate mlp9.nplm

The file has the parameters, the vocabulary and the tokenizer, the config, the results, and the spelling of unknown
words if `nplm spell` trained it. It holds numbers and text, no code, and a checksum; the same run gives the same bytes.
Prints the file and its size.
"""

import pathlib
import tempfile
from collections.abc import Sequence

from nplm_jax.cli.parser import Parser
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand


def main(argv: Sequence[str]) -> None:
    """Writes the file."""
    parser = Parser('pack', __doc__)
    parser.add_argument('run', metavar='RUN', help='folder of a run, such as runs/brown-mlp9')
    parser.add_output('file to write', name='output', metavar='FILE.nplm')
    parser.add_plugins()
    flags = parser.parse_args(argv)
    path = expand('FILE', flags.output)

    from nplm_jax.reporting import catalog, packed
    from nplm_jax.reporting.run_table import check_finished
    from nplm_jax.runs import process
    from nplm_jax.runs.packing import packed_members

    require(path.suffix == packed.SUFFIX, 'FILE', flags.output, f'must end in {packed.SUFFIX}')
    check_finished([flags.run])
    process.set_up_process()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            packed.write(path, packed_members(catalog.expand_run(flags.run), pathlib.Path(scratch)))
    except OSError as error:
        raise BadInput('FILE', f'cannot be written ({error.strerror})', value=str(path)) from None
    print(f'{path}: {path.stat().st_size:,} bytes')
