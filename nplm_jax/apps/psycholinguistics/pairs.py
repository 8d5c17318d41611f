"""Evaluates models by the fraction of minimal pairs in which the good sentence is more probable than the bad one.

    nplm pairs runs/brown-mlp9 runs/brown-kneser_ney_5 --table=pairs.csv --output=scored.csv
    nplm pairs runs/brown-mlp9 --table=adjunct_island.jsonl --group=UID
    nplm pairs runs/brown-mlp9 --table=pairs.tsv --region_good=verb_good --region_bad=verb_bad

The table is a .csv, .tsv, .parquet or .jsonl file with one row per pair and the columns good and bad, or BLiMP's
sentence_good and sentence_bad. A pair is correct if the whole good sentence has the higher probability, as in BLiMP. A
pair is a tie if its log-probabilities differ by at most 1e-5 nats. Each tie counts as half a correct pair unless --ties
is given.

Prints the number of pairs, correct pairs and ties for each run and group, both for all pairs and for known pairs (those
whose words are all in the vocabulary). With --region_good and --region_bad, also prints the mean surprisal of the bad
regions minus the mean surprisal of the good regions, in bits. The surprisals of regions are computed as in
`nplm surprisal`. --output writes one row per pair: the columns of the table and, for each run, the surprisals of both
sentences and both regions, their differences, and whether the pair is correct, wrong or a tie.
"""

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.psycholinguistics import minimal_pairs, tables
from nplm_jax.apps.psycholinguistics.measurement import Options
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli, strip_punctuation
from nplm_jax.apps.psycholinguistics.tables import Columns, Locate
from nplm_jax.cli.parser import Parser
from nplm_jax.data.formats import find_fault
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.reporting.run_table import run_names
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs.command_models import check_models, load_models
from nplm_jax.utils.errors import BadInput, require

DEFAULT_COLUMNS = (('good', 'bad'), ('sentence_good', 'sentence_bad'))  # our column names, and BLiMP's


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    table = '.csv, .tsv, .parquet or .jsonl file with one row per pair; required'
    parser.add_argument('--table', required=True, metavar='FILE', help=table)
    for name in ('good', 'bad'):
        help = f'column that contains the {name} sentences; default: {name} or sentence_{name}'
        parser.add_argument(f'--{name}', default='', metavar='COLUMN', help=help)
    group = 'column that contains the group of each pair, such as its paradigm or phenomenon; default: a single group'
    parser.add_argument('--group', default='', metavar='COLUMN', help=group)
    for name in ('good', 'bad'):
        help = f'column that contains the critical words, spelled as in the {name} sentences; default: no column'
        parser.add_argument(f'--region_{name}', default='', metavar='COLUMN', help=help)
    ties = (
        'how to count a tie: as half a correct pair (half), as a wrong pair (wrong), or as a correct pair (right), as '
        'in lm-evaluation-harness'
    )
    parser.add_argument('--ties', default='half', choices=tuple(minimal_pairs.TIES), help=ties)
    parser.add_context('sentence')
    parser.add_output('.csv, .tsv or .parquet file to write, with one row per pair; default: no file')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the accuracies, and writes the table of pairs."""
    runs = flags.runs
    check_models(runs)
    output = tables.find_output(flags.output)
    regions = flags.region_good, flags.region_bad
    require(all(regions) or not any(regions), '--region_good', regions[0], 'must be given together with --region_bad')
    pairs = read(flags.table, (flags.good, flags.bad), flags.group, regions)

    columns: dict[str, Sequence[Any]] = dict(pairs.columns)
    results: dict[str, Any] = {}
    for run, name in zip(runs, run_names(runs)):
        models = load_models([run])
        models.warn_unspaced(pairs.stimuli.words_by_item, 'sentences', needs_words=bool(pairs.regions))
        sentences = models.tokenize_lines([*map(' '.join, pairs.stimuli.words_by_item)], '')
        models.warn_unknown([word for sentence in sentences for word in sentence])
        (loaded,) = models.by_name().values()
        results[name], added = _measure(name, loaded, pairs, Options(context=flags.context), flags.ties)
        tables.check_new(columns, added)
        columns |= added
    if output:
        tables.write(output, columns, own_columns=pairs.columns)
    print(to_json({'models': results}) if flags.json else _table(results, bool(pairs.regions), flags.ties))


class PairTable(NamedTuple):
    """A table with one row per pair.

    Attributes:
        columns: All columns.
        stimuli: The sentences as items, in the order good, bad, good, bad, ...
        groups: The group of each pair. '' if there is no column of groups.
        regions: The slice of words that forms the region in each sentence. Empty if the table has no regions.
    """

    columns: Columns
    stimuli: Stimuli
    groups: Sequence[str]
    regions: Sequence[slice]


def read(
    table: str, sentences: tuple[str, str] = ('', ''), group: str = '', regions: tuple[str, str] = ('', '')
) -> PairTable:
    """Reads a table of pairs.

    Args:
        table: The path of the file, as given by --table.
        sentences: The columns of the good and the bad sentences. Empty names select the columns in DEFAULT_COLUMNS.
        group: The column of groups, such as paradigms, or '' for none.
        regions: The columns of the good and the bad regions, or '' for none.

    Raises:
        BadInput: The file cannot be read, a column is missing, a sentence is empty or not text, or a region does not
            occur exactly once in its sentence. The key names the file, row and column.
    """
    columns, locate, path = tables.read(table)
    fallback = next((pair for pair in DEFAULT_COLUMNS if set(pair) <= set(columns)), DEFAULT_COLUMNS[0])
    good, bad = (name or default for name, default in zip(sentences, fallback))
    flags = '--good', '--bad', '--group', '--region_good', '--region_bad'
    for flag, name in zip(flags, (good, bad, group, *regions)):
        if name:
            tables.check_has(columns, path, flag, name, f'; choose another column with {flag}=COLUMN')
    require(good != bad, '--bad', bad, 'is also the value of --good; choose another column')
    pairs = list(zip(columns[good], columns[bad]))
    if not pairs:
        raise BadInput(path, 'has no rows')
    for row, pair in enumerate(pairs):
        for sentence, name in zip(pair, (good, bad)):
            is_empty = not _text(sentence).strip()
            if fault := 'must contain a sentence, but is empty' if is_empty else find_fault(sentence):
                raise BadInput(f'{locate(row)}, column {name!r}', fault)
    stimuli = minimal_pairs.to_stimuli(pairs, locate)
    groups = [_text(cell) for cell in columns[group]] if group else [''] * len(pairs)
    return PairTable(columns, stimuli, groups, _find_regions(columns, stimuli, regions, locate))


def _text(cell: Any) -> str:
    return '' if tables.is_missing(cell) else str(cell)


def _find_regions(columns: Columns, stimuli: Stimuli, names: Sequence[str], locate: Locate) -> list[slice]:
    """Returns the slice of words that forms the region in each sentence. Returns [] if there are no regions."""
    if not any(names):
        return []
    found = []
    for item, words in enumerate(stimuli.words_by_item):
        row, name = item // 2, names[item % 2]
        region = _text(columns[name][row]).split()
        bare = [list(map(strip_punctuation, some)) for some in (words, region)]
        starts = _starts(words, region) or _starts(*bare)
        if len(starts) != 1:
            times = f'occurs {len(starts)} times in {" ".join(words)!r}' if region else 'is empty'
            problem = f'{" ".join(region)!r} {times}; the region must consist of whole words and occur exactly once'
            raise BadInput(f'{locate(row)}, column {name!r}', problem)
        found.append(slice(starts[0], starts[0] + len(region)))
    return found


def _starts(words: Sequence[str], region: Sequence[str]) -> list[int]:
    """Returns the indices in a sentence at which a region begins."""
    size = len(region)
    return [i for i in range(len(words) - size + 1) if size and words[i : i + size] == region]


def _measure(
    name: str, loaded: LoadedModel, pairs: PairTable, options: Options, ties: str
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Returns the results of a model for each group, and the additional columns of the model."""
    encoded = minimal_pairs.encode(pairs.stimuli, loaded.vocabulary, options)
    log_p_Px2 = minimal_pairs.log_p(loaded.model, encoded)
    difference_P = minimal_pairs.differences(log_p_Px2)
    bits_Px2 = -log_p_Px2 / math.log(2)
    verdicts = ['tie' if abs(d) <= minimal_pairs.TIE else 'correct' if d > 0 else 'wrong' for d in difference_P]
    added: dict[str, list[Any]] = {
        f'surprisal_good_{name}': bits_Px2[:, 0].tolist(),
        f'surprisal_bad_{name}': bits_Px2[:, 1].tolist(),
        f'difference_{name}': (difference_P / math.log(2)).tolist(),
        f'result_{name}': verdicts,
        f'in_vocabulary_{name}': encoded.subsets['full'].tolist(),
    }
    region_P: np.ndarray | None = None
    if pairs.regions:
        region_Px2 = minimal_pairs.region_surprisals(loaded, pairs.stimuli, pairs.regions, options)
        region_P = minimal_pairs.differences(-region_Px2)
        added[f'region_good_{name}'], added[f'region_bad_{name}'] = region_Px2.T.tolist()
        added[f'region_difference_{name}'] = region_P.tolist()

    def rows(groups: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Returns the results of each group."""
        every, known = (minimal_pairs.count(difference_P, groups, encoded.subsets[key]) for key in ('all', 'full'))
        found: dict[str, dict[str, Any]] = {g: {**_row(every[g], ties), 'known': _row(known[g], ties)} for g in every}
        if region_P is not None:
            for group, row in found.items():
                row['region_difference'] = float(region_P[[other == group for other in groups]].mean())
        return found

    total = rows(['all'] * len(pairs.groups))
    return {**total, 'groups': rows(pairs.groups) if any(pairs.groups) else {}}, added


def _row(counts: Sequence[int], ties: str) -> dict[str, Any]:
    pairs, correct, num_ties = counts
    return {'pairs': pairs, 'correct': correct, 'ties': num_ties, 'accuracy': minimal_pairs.accuracy(counts, ties)}


def _table(results: dict[str, Any], has_regions: bool, ties: str) -> str:
    header = ['run', 'group', 'pairs', 'correct', 'ties', 'accuracy, %', 'known pairs', 'accuracy of known, %']
    rows = []
    for name, found in results.items():
        for group, row in [('all', found['all']), *found['groups'].items()]:
            shares = [f'{100 * r["accuracy"]:.1f}' if r['pairs'] else '-' for r in (row, row['known'])]
            cells = [f'{row[key]:,}' for key in ('pairs', 'correct', 'ties')]
            region = [f'{row["region_difference"]:.2f}'] if has_regions else []
            rows.append([name, group, *cells, shares[0], f'{row["known"]["pairs"]:,}', shares[1], *region])
    note = f'ties: pairs with equal probabilities, counted as {ties}{" right" * (ties == "half")}'
    return f'{markdown_table([*header, *(["region, bits"] if has_regions else [])], rows)}\n{note}'
