"""Filters the documents of a corpus by their perplexity under a model.

    nplm filter runs/NAME --text docs.jsonl
    nplm filter runs/NAME --text docs.jsonl --below=300 --output=kept.jsonl
    nplm filter lm.arpa --text part-*.parquet --below=30% --output=kept --field=content --column=perplexity

Without a bound, prints a histogram and the deciles of the perplexities, and the documents with the lowest and highest
perplexities, to help you choose a bound. With --below or --above, writes the documents within the bounds to --output,
in their original format and order and with all their columns. A bound is either a perplexity or a share of the
documents, such as 30%. If a bound is a share, the files are read twice.

A document is a row of a .jsonl or .parquet file, with its text in the column --field, or a line of any other file. With
--documents=paragraphs, empty lines separate the documents in text files. Text and .jsonl files may be compressed (.gz,
.zst). The perplexity is per token, and the lines of a document are scored separately, as in `nplm score --summary`.
--end also scores the ends of lines, as KenLM and CCNet do. Documents without words are counted and dropped. Documents
with no known words have infinite perplexity, so --below never keeps them. The command keeps the model, about
100,000 words or the longest document, and 8 bytes per document in memory.
"""

import argparse
import collections
import math
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from nplm_jax.apps.filter import distribution, documents, selection
from nplm_jax.apps.filter.documents import kind_of
from nplm_jax.apps.filter.selection import Bound
from nplm_jax.cli.outputs import EXISTS, require_writable
from nplm_jax.cli.parser import Parser
from nplm_jax.data import formats, text_files
from nplm_jax.reporting.text import to_json
from nplm_jax.runs import signals
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import finite_numbers


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_model_flags(mixed=False)
    texts = '.jsonl, .parquet or text files to filter, or folders or glob patterns of such files; required'
    parser.add_argument('--text', dest='files', nargs='+', required=True, metavar='FILE', help=texts)
    below = (
        'keep documents with a perplexity below P; 30%% keeps the 30%% of documents with the lowest perplexity; '
        'default: no bound'
    )
    above = (
        'keep documents with a perplexity of P or more; 30%% drops the 30%% of documents with the lowest perplexity; '
        'default: no bound'
    )
    parser.add_owned('output', '--below', default='', metavar='P', help=below)
    parser.add_owned('output', '--above', default='', metavar='P', help=above)
    output = 'file to write the documents to, or folder if several files are filtered; default: no output'
    parser.add_output(output, may_be_folder=True)
    parser.add_argument(
        '--field', default='text', metavar='COLUMN', help='column that contains the text in .jsonl and .parquet files'
    )
    column = 'name of the output column to write the perplexity to; default: no column'
    parser.add_owned('output', '--column', default='', metavar='NAME', help=column)
    kinds = 'how to divide text files into documents: at each newline (lines) or at blank lines (paragraphs)'
    parser.add_argument('--documents', default='lines', choices=('lines', 'paragraphs'), help=kinds)
    parser.add_switch('--end', 'also score the end of each line, as `nplm score --end` and KenLM do')
    parser.add_figure('PNG file to write the histogram to; default: no figure')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the distribution, or writes the documents within the bounds."""
    above, below = bounds = [_parse_bound(f'--{name}', getattr(flags, name)) for name in ('above', 'below')]
    if below and above and below.is_share == above.is_share:
        require(above.value < below.value, '--above', flags.above, f'must be less than --below={flags.below}')
    allowed = 'requires --below, --above or --column'
    require(not flags.output or any(bounds) or bool(flags.column), '--output', flags.output, allowed)
    require(not flags.figure or not any(bounds), '--figure', flags.figure, 'cannot be used with --below or --above')
    fault = formats.find_fault(flags.column)
    require(not fault, '--column', flags.column, fault)
    layout = documents.Layout(flags.field, flags.documents == 'paragraphs', flags.column)
    files = [file for path in flags.files for file in text_files.find_files('--text', path)]
    [(file, times)] = collections.Counter(file.resolve() for file in files).most_common(1)
    require(times == 1, '--text', str(file), 'must not be given twice')
    has_texts = not layout.paragraphs or not all(map(kind_of, files))
    require(has_texts, '--documents', flags.documents, 'requires text files; in other files, each row is a document')
    has_columns = flags.field == 'text' or any(map(kind_of, files))
    require(has_columns, '--field', flags.field, 'requires .jsonl or .parquet files, because text has no columns')
    outputs = _plan_outputs(files, flags.output, flags.overwrite) if flags.output else {}
    if 0 < len(outputs) < len(files):
        print(f'the output of {len(files) - len(outputs):,} of {len(files):,} files already exists', file=sys.stderr)
        if not any(bound and bound.is_share for bound in bounds):
            files = list(outputs)
    for file in files:
        next(documents.read(file, layout), None)  # detects most bad files before loading the model

    models = load_models(flags.runs)
    job = selection.Job(files, outputs, layout, selection.Scorer(models, flags.tokens, flags.end), above, below)
    try:
        signals.raise_on_sigterm()
        results = job.run()
    except (KeyboardInterrupt, signals.Terminated) as stop:
        print('interrupted; the incomplete output was removed', file=sys.stderr)
        sys.exit(143 if isinstance(stop, signals.Terminated) else 130)
    require(results['documents'] > 0 or any(bounds), '--text', str(files[0]), 'contains no documents with words')
    if not any(bounds):
        results |= job.found.results()
    if flags.figure:
        distribution.draw(job.found.perplexities(), expand('--figure', flags.figure))
    if warning := models.describe_oov(results['oovs'] / max(results['words'], 1)):
        print(warning, file=sys.stderr)
    print(to_json(results) if flags.json else _describe(results))


def _describe(results: dict[str, Any]) -> str:
    """Returns the results as lines of text."""
    share = results['oovs'] / max(results['words'], 1)
    empty = f'; {results["empty"]:,} documents without words dropped' if results['empty'] else ''
    total = f'{results["documents"]:,} documents, {results["words"]:,} words'
    lines = [f'{total}, {share:.2%} outside the vocabulary{empty}']
    if results['unknown']:
        lines.append(f'{results["unknown"]:,} documents contain no known words; their perplexity is infinite')
    lines += [f'{file["output"]}: {file["kept"]:,} of {file["documents"]:,} documents' for file in results['files']]
    bounds = ' and '.join(f'{name} {value:,.6g}' for name, value in results['bounds'].items())
    lines.append(f'kept: perplexity {bounds}' if bounds else distribution.describe(results))
    return '\n'.join(lines)


def _parse_bound(flag: str, text: str) -> Bound | None:
    """Parses the value of a flag as a bound, or '' as None. Raises BadInput if it is neither a number nor a share."""
    if not text:
        return None
    problem = 'must be a positive perplexity, such as 300, or a share between 0% and 100%, such as 30%'
    is_share = text.endswith('%')
    (value,) = finite_numbers([text.removesuffix('%')], flag, problem, text)
    require(0 < value < (100 if is_share else math.inf), flag, text, problem)
    return Bound(value / 100 if is_share else value, is_share)


def _plan_outputs(files: Sequence[pathlib.Path], output: str, overwrite: bool) -> dict[pathlib.Path, pathlib.Path]:
    """Returns the output path of each file. Omits files whose output exists, unless `overwrite` is True.

    Raises:
        BadInput: The output is not writable, or all outputs exist.
    """
    path = expand('--output', output)
    is_folder = len(files) > 1 or path.is_dir() or output.endswith('/')
    require_writable('--output', output, is_folder, compresses=True)
    outputs = {file: path / file.name if is_folder else path for file in files}
    names, inputs = collections.Counter(file.name for file in files), {file.resolve() for file in files}
    for file, written in outputs.items():
        require(names[file.name] == 1, '--text', str(file), f'another input file is also named {file.name}')
        allowed = f'must have the same format as {file} ({kind_of(file) or "text"})'
        require(kind_of(written, '--output') == kind_of(file), '--output', str(written), allowed)
        require(written.resolve() not in inputs, '--output', str(written), 'is also an input file; choose another name')
    missing = {file: written for file, written in outputs.items() if overwrite or not written.exists()}
    require(bool(missing), '--output', str(next(iter(outputs.values()))), EXISTS)
    if is_folder:
        path.mkdir(exist_ok=True)
    return missing
