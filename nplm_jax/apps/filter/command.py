"""Documents of a corpus, kept by the perplexity that a model gives them.

    nplm filter runs/NAME --input docs.jsonl
    nplm filter runs/NAME --input docs.jsonl --below=300 --output=kept.jsonl
    nplm filter lm.arpa --input part-*.parquet --below=30% --output=kept --field=content --column=perplexity

Without a bound it prints how many documents have which perplexity, the deciles, and the documents of the lowest and the
highest perplexity, to choose a bound by. With --below or --above it writes the documents within the bounds to --output,
in the format in which they came, with all their columns and in their order. A bound is a perplexity, or a share of the
documents such as 30%, for which the files are read twice.

A document is a row of .jsonl or .parquet, whose column --field is its text, or a line of any other file
(--documents=paragraphs: what stands between blank lines). Text and .jsonl may be compressed: .gz, .zst. The perplexity
is per token, all lines of the document scored alone, as `nplm score --summary` prints it; with --end line ends count,
as in KenLM and CCNet. Documents without words are counted and left out; the perplexity of a document without a known
word counts as infinite, so that --below never keeps it. Memory is that of the model and of about
100,000 words; without bounds or with a share, 8 bytes per document more.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import sys
from collections.abc import Sequence

from nplm_jax.apps.filter import distribution, documents, selection
from nplm_jax.apps.filter.documents import kind_of
from nplm_jax.apps.filter.selection import Bound
from nplm_jax.cli.parser import EXISTS, Parser, require_writable
from nplm_jax.data import formats, sources
from nplm_jax.reporting.text import to_json
from nplm_jax.runs import signals
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import finite_numbers


def main(flags: argparse.Namespace) -> None:
    """Prints the distribution, or writes the documents within the bounds."""
    below, above = (_parse_bound(f'--{name}', getattr(flags, name)) for name in ('below', 'above'))
    if below and above and below.is_share == above.is_share:
        require(above.value < below.value, '--above', flags.above, f'must be less than --below={flags.below}')
    has_bound = bool(below or above)
    for name, bound in (('below', below), ('above', above)):
        require(not bound or bool(flags.output), f'--{name}', getattr(flags, name), 'requires --output')
    allowed = 'requires --below or --above, or --column'
    require(not flags.output or has_bound or bool(flags.column), '--output', flags.output, allowed)
    require(not flags.figure or not has_bound, '--figure', flags.figure, 'must be without --below and --above')

    if fault := formats.find_fault(flags.column):
        raise BadInput('--column', fault, value=flags.column)
    figure = expand('--figure', flags.figure)
    layout = documents.Layout(flags.field, flags.documents == 'paragraphs', flags.column)
    files = [file for path in flags.files for file in sources.find_files('--input', path)]
    has_columns = flags.field == layout._field_defaults['field'] or any(map(documents.kind_of, files))
    require(has_columns, '--field', flags.field, 'needs .jsonl or .parquet; text has no columns')
    outputs = _plan_outputs(files, flags.output, flags.overwrite)
    if 0 < len(outputs) < len(files):
        print(f'already there: {len(files) - len(outputs):,} of {len(files):,} files', file=sys.stderr)
        if not any(bound and bound.is_share for bound in (above, below)):
            files = list(outputs)
    for file in files:
        next(documents.read(file, layout), None)  # refuses most bad files before the model is loaded

    job = selection.Job(files, outputs, layout, selection.Scorer.load(flags.runs[0], flags.tokens, flags.end))
    try:
        signals.raise_on_sigterm()
        if has_bound:
            results = selection.select(job, above, below)
        else:
            results, found = selection.measure(job)
            require(results['documents'] > 0, '--input', str(files[0]), 'holds no documents with words')
    except (KeyboardInterrupt, signals.Terminated) as stop:
        print('interrupted; incomplete output was removed', file=sys.stderr)
        sys.exit(143 if isinstance(stop, signals.Terminated) else 130)
    except OSError as error:
        raise BadInput('--output', f'cannot be written ({error.strerror or error})', value=flags.output) from None
    if flags.figure:
        try:
            distribution.draw(found.perplexities(), figure)
        except OSError as error:
            raise BadInput('--figure', f'cannot be written ({error.strerror or error})', value=flags.figure) from None
    share = results['oovs'] / max(results['words'], 1)
    if warning := job.scorer.models.describe_oov(share):
        print(warning, file=sys.stderr)
    if flags.json:
        print(to_json(results))
        return
    print(f'{results["documents"]:,} documents, {results["words"]:,} words, {share:.2%} outside the vocabulary', end='')
    print(f'; {results["empty"]:,} documents without words left out' if results['empty'] else '')
    if results['unknown']:
        print(f'{results["unknown"]:,} documents have no known word: their perplexity counts as infinite')
    for written in results.get('files', []):
        print(f'{written["output"]}: {written["kept"]:,} of {written["documents"]:,} documents')
    print(_describe_bounds(results['bounds']) if has_bound else distribution.describe(results))


def _describe_bounds(bounds: dict[str, float]) -> str:
    return 'kept: perplexity ' + ' and '.join(f'{name} {value:,.6g}' for name, value in bounds.items())


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs(1)
    inputs = '.jsonl, .parquet or text; folder; pattern; required'
    parser.add_argument('--input', dest='files', nargs='+', required=True, metavar='FILE', help=inputs)
    below = 'keep documents whose perplexity is below P; 30%% keeps the 30%% with the lowest; default: no bound'
    above = 'keep documents whose perplexity is P or more; 30%% drops the 30%% with the lowest; default: no bound'
    parser.add_argument('--below', default='', metavar='P', help=below)
    parser.add_argument('--above', default='', metavar='P', help=above)
    output = 'file to write, or for several files a folder, in which each has its name; default: none'
    parser.add_argument('-o', '--output', default='', help=output)
    parser.add_owned('output', '--overwrite', action='store_true', help='replace the output if it exists')
    parser.add_argument('--field', default='text', metavar='COLUMN', help='column of the text in .jsonl and .parquet')
    column = 'add the perplexity as this column of the output; default: no column'
    parser.add_owned('output', '--column', default='', help=column)
    kinds = 'of text: a document is a line, or a paragraph between blank lines'
    parser.add_argument('--documents', default='lines', choices=('lines', 'paragraphs'), help=kinds)
    tokens = 'how to split text, as of `nplm score`; default: as the corpus of the run'
    parser.add_argument('--tokens', default='', choices=('words', 'whitespace'), help=tokens)
    parser.add_switch('--end', 'count the end of each line, as `nplm score --end` and KenLM do')
    parser.add_figure('draw the histogram into this file; default: no figure')
    parser.add_json()


def _parse_bound(flag: str, text: str) -> Bound | None:
    """Returns the bound that a flag gives, None for no bound. Raises BadInput if it is neither number nor share."""
    if not text:
        return None
    problem = 'must be a perplexity above 0, such as 300, or a share between 0% and 100%, such as 30%'
    is_share = text.endswith('%')
    (value,) = finite_numbers([text.removesuffix('%')], flag, problem, text)
    if not 0 < value < (100 if is_share else math.inf):
        raise BadInput(flag, problem, value=text)
    return Bound(value / 100 if is_share else value, is_share)


def _plan_outputs(files: Sequence[pathlib.Path], output: str, overwrite: bool) -> dict[pathlib.Path, pathlib.Path]:
    """Returns the file to write for each file; none without --output.

    Files that an earlier command wrote are left out, without --overwrite.

    Raises:
        BadInput: No output can be written, or all are there, or one that is there is no earlier output.
    """
    if not output:
        return {}
    path = expand('--output', output)
    is_folder = len(files) > 1 or path.is_dir() or output.endswith('/')
    outputs: dict[pathlib.Path, pathlib.Path] = {}
    for file in files:
        written = path / file.name if is_folder else path
        require(written not in outputs.values(), '--input', str(file), f'another file is named {file.name} too')
        allowed = f'must be of the format of {file}, {kind_of(file) or "text"}'
        require(kind_of(written) == kind_of(file), '--output', str(written), allowed)
        outputs[file] = written
    inputs = {file.resolve() for file in files}
    missing = {f: written for f, written in outputs.items() if overwrite or not os.path.lexists(written)}
    for file, written in outputs.items():
        require(written.resolve() not in inputs, '--output', str(written), 'is a file to filter; give another name')
        is_earlier = bool(missing) and written.is_file()
        require(file in missing or is_earlier, '--output', str(written), EXISTS)
    try:
        if is_folder:
            path.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInput('--output', f'cannot be written ({error.strerror})', value=output) from None
    require_writable('--output', output, is_folder)
    return missing
