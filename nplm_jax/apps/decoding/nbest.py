"""Alternatives in the n-best formats of Moses and Kaldi, re-ranked by a model and the scores that they come with.

Moses: `id ||| words ||| scores ||| ...`. Spaces around the separators are not part of a field. An empty second field is
an empty sentence. Kaldi: `UTTERANCE-N words`, and files of `UTTERANCE-N cost`, as `nbest-to-linear` writes them.
"""

import argparse
import dataclasses
import math
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Self

import numpy as np

from nplm_jax.apps.decoding import reranking
from nplm_jax.reporting.text import to_json
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import finite_numbers, read_lines

SEPARATOR = ' ||| '
_BLANKS = ' \t\r'
_SEPARATOR = re.compile(rf'[{_BLANKS}]*\|\|\|[{_BLANKS}]*')


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A line of an n-best list.

    Attributes:
        fields: the id, the words and the other fields of the line; of Kaldi's the place in the list is one.
        scores: the numbers that are weighed in.
        reference: the words that are right, with --tune.
        log10_p: log10 P of its words by the model.
        total: what it is ranked by.
    """

    fields: Sequence[str]
    scores: Sequence[float]
    reference: Sequence[str] = ()
    log10_p: float = math.nan
    total: float = math.nan

    @property
    def words(self) -> str:
        """The text of the alternative."""
        return self.fields[1]


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights of what is added up for the total of an alternative.

    Attributes:
        model: Of log10 P.
        word: Of the number of words.
        scores: Of the scores of the list.
    """

    model: float = 1.0
    word: float = 0.0
    scores: Sequence[float] = ()

    @classmethod
    def of(cls, flags: argparse.Namespace) -> Self:
        """Reads the flags of `nplm rescore`. Raises BadInput if they are no weights or stand beside --tune."""
        text, problem = flags.score_weights, 'must be finite numbers with commas between them'
        scores = finite_numbers(text.split(',') if text else (), '--score_weights', problem, text)
        weights = cls(flags.model_weight, flags.word_weight, tuple(scores))
        require(not flags.tune or weights == cls(), '--tune', flags.tune, 'finds the weights; no weight may be given')
        return weights

    def to_flags(self) -> str:
        """Returns the flags that give these weights."""
        scores = [f'--score_weights={",".join(f"{w:.6g}" for w in self.scores)}'] if self.scores else []
        return ' '.join([f'--model_weight={self.model:.6g}', f'--word_weight={self.word:.6g}', *scores])


def read(flags: argparse.Namespace, lines: Sequence[str], weights: Weights) -> list[Alternative]:
    """Reads alternatives, and the files that the flags name. Raises BadInput, which names the line, if they are none.

    Args:
        flags: The flags of `nplm rescore`.
        lines: The lines of stdin.
        weights: The weights, of which a list needs as many scores.
    """
    files = [expand('--score_files', name) for name in flags.score_files.split(',') if name]
    if flags.format == 'moses':
        require(not files, '--score_files', flags.score_files, 'requires --format=kaldi')
        num_scores = len(_score_texts(_split_moses(lines[0])) if flags.tune else weights.scores)
        alternatives = [_parse_moses(number, line, num_scores) for number, line in enumerate(lines, start=1)]
    else:
        fit = bool(flags.tune) or len(weights.scores) == len(files)
        require(fit, '--score_weights', flags.score_weights, f'must be as many as --score_files, {len(files)}')
        tables = {path: _read_table(path) for path in files}
        alternatives = [_parse_kaldi(number, line, tables) for number, line in enumerate(lines, start=1)]
    return _with_references(flags, alternatives) if flags.tune else alternatives


def _split_moses(line: str) -> list[str]:
    """Returns the fields of a line of Moses, without the spaces around them."""
    return _SEPARATOR.split(line.strip(_BLANKS))


def _score_texts(fields: Sequence[str]) -> list[str]:
    """Returns the numbers of the third field of Moses, without names such as `LM0=`."""
    return [text for text in (fields[2].split() if len(fields) > 2 else []) if not text.endswith('=')]


def _parse_moses(number: int, line: str, num_scores: int) -> Alternative:
    """Reads a line of Moses; the third field is left unread if there are to be no scores."""
    fields = _split_moses(line)
    if len(fields) < 2 or not fields[0]:
        raise BadInput(f'stdin:{number}', f'expected id{SEPARATOR}words')
    numbers = 'a number' if num_scores == 1 else f'{num_scores} numbers'
    problem = f'expected id{SEPARATOR}words{SEPARATOR}{numbers}'
    scores = finite_numbers(_score_texts(fields), f'stdin:{number}', problem) if num_scores else []
    if len(scores) != num_scores:
        raise BadInput(f'stdin:{number}', problem)
    return Alternative(fields, scores)


def _parse_kaldi(number: int, line: str, tables: dict[pathlib.Path, dict[str, tuple[int, str]]]) -> Alternative:
    """Reads a line of Kaldi, which may have no words, and its scores from the tables."""
    key, _, words = line.strip().replace('\t', ' ').partition(' ')
    utterance, _, place = key.rpartition('-')
    if not utterance or not place.isdecimal():
        raise BadInput(f'stdin:{number}', 'expected UTTERANCE-N words, such as utt1-1 the cat')
    scores = []
    for path, table in tables.items():
        if key not in table:
            raise BadInput(f'stdin:{number}', f'{path} has no score of {key}')
        line_number, text = table[key]
        scores += finite_numbers([text], f'{path}:{line_number}', 'expected UTTERANCE-N and a number')
    return Alternative((utterance, words.strip(), place), scores)


def _read_table(path: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Returns what stands after the first word of each line of a file, by that word, with the number of the line."""
    table: dict[str, tuple[int, str]] = {}
    for number, line in read_lines(path):
        key, *rest = line.split(None, 1) or ['']
        if key in table:
            raise BadInput(f'{path}:{number}', f'{key} stands in line {table[key][0]} already')
        if key:
            table[key] = number, ''.join(rest).strip()
    return table


def _with_references(flags: argparse.Namespace, alternatives: Sequence[Alternative]) -> list[Alternative]:
    """Returns the alternatives with their references, from the file of --tune."""
    path = expand('--tune', flags.tune)
    if flags.format == 'kaldi':
        what = 'lines that begin with the utterance'
        references = {key: words.split() for key, (_, words) in _read_table(path).items()}
    else:
        what = 'the line of an id, from 0'
        references = {str(number - 1): line.split() for number, line in read_lines(path)}
    for number, alternative in enumerate(alternatives, start=1):
        if (key := alternative.fields[0]) not in references:
            raise BadInput(f'stdin:{number}', f'{path} has no reference of {key!r}; it needs {what}')
    found = [dataclasses.replace(a, reference=references[a.fields[0]]) for a in alternatives]
    require(any(a.reference for a in found), '--tune', flags.tune, 'has no words; the error rate is undefined')
    return found


def show(
    flags: argparse.Namespace, alternatives: Sequence[Alternative], log10_p: Sequence[float], weights: Weights
) -> str:
    """Returns the alternatives in their new order; with --tune weights, and prints on stderr what they gain.

    Args:
        flags: The flags of `nplm rescore`.
        alternatives: The alternatives.
        log10_p: log10 P of each by the model.
        weights: What is added up for their totals, without --tune.
    """
    if not flags.tune:
        ranked = rank(alternatives, log10_p, weights)
        if flags.json:
            return to_json({'alternatives': list(map(to_dict, ranked))})
        return to_text(ranked, flags.format, weights)
    tuned, errors = tune(alternatives, log10_p)
    if flags.json:
        return to_json({**dataclasses.asdict(tuned), 'errors': errors})
    gains = ', '.join(f'{error:.4f} {choice}' for choice, error in errors.items())
    print(f'word error rate: {gains}', file=sys.stderr)
    return tuned.to_flags()


def tune(alternatives: Sequence[Alternative], log10_p: Sequence[float]) -> tuple[Weights, dict[str, float]]:
    """Finds weights whose first alternatives have few word errors; `reranking.tune` says how.

    Args:
        alternatives: The alternatives, with their references.
        log10_p: log10 P of each by the model.

    Returns:
        The weights, and for each way to choose an alternative its word error rate.
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
    """Returns the alternatives of each id together, best first; the ids keep the order of their first lines.

    An alternative with probability zero counts as one far less probable than all others, by `reranking.finite`.

    Args:
        alternatives: The alternatives.
        log10_p: log10 P of each by the model.
        weights: What `total` adds up.
    """
    scored = []
    for alternative, p, finite in zip(alternatives, log10_p, reranking.finite(log10_p).tolist()):
        total = weights.model * finite + weights.word * len(alternative.words.split())
        total += sum(w * s for w, s in zip(weights.scores, alternative.scores))
        scored.append(dataclasses.replace(alternative, log10_p=p, total=total))
    ranks = {key: i for i, key in enumerate(dict.fromkeys(a.fields[0] for a in scored))}
    return sorted(scored, key=lambda a: (ranks[a.fields[0]], -a.total))


def to_text(alternatives: Sequence[Alternative], format: str, weights: Weights) -> str:
    """Returns the lines; those of Moses with log10 P, and the total where more was weighed in, appended."""
    if format == 'kaldi':
        return '\n'.join(f'{a.fields[0]}-{a.fields[2]} {a.words}'.rstrip() for a in alternatives)
    totals = [[a.log10_p] if weights == Weights() else [a.log10_p, a.total] for a in alternatives]
    return '\n'.join(SEPARATOR.join([*a.fields, *(f'{x:.8g}' for x in row)]) for a, row in zip(alternatives, totals))


def to_dict(a: Alternative) -> dict[str, object]:
    """Returns an alternative for JSON."""
    return {'id': a.fields[0], 'words': a.words, 'fields': list(a.fields[2:]), 'log10_p': a.log10_p, 'total': a.total}
