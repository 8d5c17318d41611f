"""Re-ranks n-best lists in the formats of Moses and Kaldi.

A line in Moses format is `id ||| words ||| scores ||| ...`. Spaces around separators are ignored. An empty second field
represents an empty sentence. In Kaldi format, the lines of a list have the form `UTTERANCE-N words`, and the lines of a
score file have the form `UTTERANCE-N cost`, as written by `nbest-to-linear`.

Dims: A alternatives in all lists, F scores of an alternative.
"""

import argparse
import dataclasses
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Self

import numpy as np

from nplm_jax.apps.decoding import reranking
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import finite_numbers, read_lines

SEPARATOR = ' ||| '
Table = dict[str, tuple[int, str]]  # maps a key to the number and the rest of its line
_BLANKS = ' \t\r'
_SEPARATOR = re.compile(rf'[{_BLANKS}]*\|\|\|[{_BLANKS}]*')


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A hypothesis of an n-best list.

    Attributes:
        fields: The id, the words and the other fields of the line. In Kaldi format, the third field is N.
        scores: The scores from the list, in the order of the score weights.
        reference: The list of reference words. Empty without --tune.
        log10_p: Log10 P of the words under the model.
        total: The weighted sum by which alternatives are ranked.
    """

    fields: Sequence[str]
    scores: Sequence[float]
    reference: Sequence[str] = ()
    log10_p: float = math.nan
    total: float = math.nan

    @property
    def words(self) -> str:
        """The words of the alternative, separated by spaces."""
        return self.fields[1]


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of the terms in an alternative's total.

    Attributes:
        model: The weight of log10 P.
        word: The weight of the number of words.
        scores: The weights of the scores from the list.
    """

    model: float = 1.0
    word: float = 0.0
    scores: Sequence[float] = ()

    @classmethod
    def of(cls, flags: argparse.Namespace) -> Self:
        """Returns the weights given by the flags of `nplm rescore`.

        Raises:
            BadInput: A weight is not a finite number, or weights are combined with --tune.
        """
        text, problem = flags.score_weights, 'must be comma-separated finite numbers'
        scores = finite_numbers(text.split(',') if text else (), '--score_weights', problem, text)
        weights = cls(flags.model_weight, flags.word_weight, tuple(scores))
        allowed = 'cannot be combined with --model_weight, --word_weight or --score_weights'
        require(not flags.tune or weights == cls(), '--tune', flags.tune, allowed)
        return weights

    def to_flags(self) -> str:
        """Returns the flags of `nplm rescore` for these weights."""
        scores = [f'--score_weights={",".join(f"{w:.6g}" for w in self.scores)}'] if self.scores else []
        return ' '.join([f'--model_weight={self.model:.6g}', f'--word_weight={self.word:.6g}', *scores])


def read(flags: argparse.Namespace, lines: Sequence[str], weights: Weights) -> list[Alternative]:
    """Parses n-best lists, and reads the score and reference files named by the flags.

    Args:
        flags: The flags of `nplm rescore`.
        lines: The lines of stdin.
        weights: The weights, which determine the number of scores in each line.

    Raises:
        BadInput: A line is malformed, or lacks a score or a reference. The key gives the file and the line.
    """
    files = [expand('--score_files', name) for name in flags.score_files.split(',') if name]
    if flags.format == 'moses':
        require(not files, '--score_files', flags.score_files, 'requires --format=kaldi')
        rows = [_SEPARATOR.split(line.strip(_BLANKS)) for line in lines]
        num_scores = len(_score_texts(rows[0]) if flags.tune else weights.scores)
        alternatives = [_parse_moses(number, fields, num_scores) for number, fields in enumerate(rows, start=1)]
    else:
        fit = bool(flags.tune) or len(weights.scores) == len(files)
        require(fit, '--score_weights', flags.score_weights, f'must contain one number per score file ({len(files)})')
        tables = [(path, read_table(path)) for path in files]
        alternatives = [_parse_kaldi(number, line, tables) for number, line in enumerate(lines, start=1)]
    return _with_references(flags, alternatives) if flags.tune else alternatives


def _score_texts(fields: Sequence[str]) -> list[str]:
    """Returns the numbers in the third field of a Moses line, without names such as `LM0=`."""
    return [text for text in (fields[2].split() if len(fields) > 2 else []) if not text.endswith('=')]


def _parse_moses(number: int, fields: Sequence[str], num_scores: int) -> Alternative:
    """Parses the fields of a line in Moses format. Ignores the third field if `num_scores` is 0."""
    if len(fields) < 2 or not fields[0]:
        raise BadInput(f'stdin:{number}', f'must have the form id{SEPARATOR}words')
    numbers = 'a number' if num_scores == 1 else f'{num_scores} numbers'
    problem = f'must have the form id{SEPARATOR}words{SEPARATOR}{numbers}'
    scores = finite_numbers(_score_texts(fields), f'stdin:{number}', problem) if num_scores else []
    if len(scores) != num_scores:
        raise BadInput(f'stdin:{number}', problem)
    return Alternative(fields, scores)


def _parse_kaldi(number: int, line: str, tables: Sequence[tuple[pathlib.Path, Table]]) -> Alternative:
    """Parses a line in Kaldi format, possibly without words, and looks up its scores in the tables."""
    key, _, words = line.strip().replace('\t', ' ').partition(' ')
    utterance, _, index = key.rpartition('-')
    if not utterance or not index.isdecimal():
        raise BadInput(f'stdin:{number}', 'must have the form UTTERANCE-N WORDS, such as utt1-1 the cat')
    scores = []
    for path, table in tables:
        if key not in table:
            raise BadInput(f'stdin:{number}', f'{path} has no score for {key}')
        line_number, text = table[key]
        scores += finite_numbers([text], f'{path}:{line_number}', 'must have the form UTTERANCE-N NUMBER')
    return Alternative((utterance, words.strip(), index), scores)


def read_table(path: pathlib.Path) -> Table:
    """Reads a file whose lines have the form `KEY rest`. Returns the line number and the rest of the line for each key.

    Raises:
        BadInput: A key is repeated.
    """
    table: Table = {}
    for number, line in read_lines(path):
        key, *rest = line.split(None, 1) or ['']
        if key in table:
            raise BadInput(f'{path}:{number}', f'{key} also occurs on line {table[key][0]}')
        if key:
            table[key] = number, ''.join(rest).strip()
    return table


def _with_references(flags: argparse.Namespace, alternatives: Sequence[Alternative]) -> list[Alternative]:
    """Returns the alternatives with their references from the file of --tune."""
    path = expand('--tune', flags.tune)
    if flags.format == 'kaldi':
        what = 'a line `UTTERANCE WORDS` for each utterance'
        references = {key: words.split() for key, (_, words) in read_table(path).items()}
    else:
        what = 'the reference of id N on line N + 1'
        references = {str(number - 1): line.split() for number, line in read_lines(path)}
    for number, alternative in enumerate(alternatives, start=1):
        if (key := alternative.fields[0]) not in references:
            raise BadInput(f'stdin:{number}', f'{path} has no reference for {key!r}; the file must contain {what}')
    found = [dataclasses.replace(a, reference=references[a.fields[0]]) for a in alternatives]
    require(any(a.reference for a in found), '--tune', flags.tune, 'contains no words, so the error rate is undefined')
    reranking.word_edits((), ())  # raises BadInput before the models are loaded if rapidfuzz is not installed
    return found


def tune(alternatives: Sequence[Alternative], log10_p: Sequence[float]) -> tuple[Weights, dict[str, float]]:
    """Tunes the weights to minimize the word error rate of the best alternatives. See `reranking.tune`.

    Args:
        alternatives: The alternatives, with their references.
        log10_p: Log10 P of each alternative under the model.

    Returns:
        The weights, and the word error rates of four selections: the first alternatives (`1-best`), the most likely
        alternatives under the model (`LM only`), the best alternatives under the tuned weights (`tuned`), and the
        alternatives with the fewest errors (`oracle`).
    """
    rows: dict[str, list[int]] = {}
    for row, alternative in enumerate(alternatives):
        rows.setdefault(alternative.fields[0], []).append(row)
    groups = [np.array(group) for group in rows.values()]
    finite = reranking.finite(log10_p)
    scores_AxF = np.array([(p, len(a.words.split()), *a.scores) for a, p in zip(alternatives, finite)], float)
    edits_A = np.array([reranking.word_edits(a.words.split(), a.reference) for a in alternatives])
    weights_F, tuned = reranking.tune(scores_AxF, groups, edits_A, np.eye(scores_AxF.shape[1])[0])
    edits = {
        '1-best': sum(edits_A[group[0]] for group in groups),
        'LM only': reranking.first_edits(scores_AxF[:, 0], groups, edits_A),
        'tuned': tuned,
        'oracle': sum(edits_A[group].min() for group in groups),
    }
    num_words = sum(len(alternatives[group[0]].reference) for group in groups)
    model, word, *scores = weights_F.tolist()
    return Weights(model, word, scores), {choice: float(number) / num_words for choice, number in edits.items()}


def rank(alternatives: Sequence[Alternative], log10_p: Sequence[float], weights: Weights) -> list[Alternative]:
    """Sorts the alternatives of each id by their totals, best first. The order of the ids does not change.

    An alternative with probability zero is ranked as far less likely than all others. See `reranking.finite`.

    Args:
        alternatives: The alternatives.
        log10_p: Log10 P of each alternative under the model.
        weights: The weights of the totals.
    """
    scored = []
    for alternative, p, finite in zip(alternatives, log10_p, reranking.finite(log10_p).tolist()):
        total = weights.model * finite + weights.word * len(alternative.words.split())
        total += sum(w * s for w, s in zip(weights.scores, alternative.scores))
        scored.append(dataclasses.replace(alternative, log10_p=p, total=total))
    ranks = {key: i for i, key in enumerate(dict.fromkeys(a.fields[0] for a in scored))}
    return sorted(scored, key=lambda a: (ranks[a.fields[0]], -a.total))


def to_text(alternatives: Sequence[Alternative], format: str, weights: Weights) -> str:
    """Formats the alternatives. In Moses format, appends log10 P and, with non-default weights, the total.

    Args:
        alternatives: The alternatives, in the order of the lines.
        format: `moses` or `kaldi`.
        weights: The weights of the totals.
    """
    if format == 'kaldi':
        return '\n'.join(f'{a.fields[0]}-{a.fields[2]} {a.words}'.rstrip() for a in alternatives)
    totals = [[a.log10_p] if weights == Weights() else [a.log10_p, a.total] for a in alternatives]
    return '\n'.join(SEPARATOR.join([*a.fields, *(f'{x:.8g}' for x in row)]) for a, row in zip(alternatives, totals))


def to_dict(a: Alternative) -> dict[str, object]:
    """Returns an alternative as JSON-serializable values."""
    return {'id': a.fields[0], 'words': a.words, 'fields': list(a.fields[2:]), 'log10_p': a.log10_p, 'total': a.total}
