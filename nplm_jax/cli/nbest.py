"""Alternatives in the n-best formats of Moses and Kaldi, re-ranked by a model and the scores that they come with.

Moses: `id ||| words ||| scores ||| ...`. Kaldi: `UTTERANCE-N words`, and files of `UTTERANCE-N cost`, as
`nbest-to-linear` writes them.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import decode, read_bytes

if TYPE_CHECKING:
    import numpy as np

SEPARATOR = ' ||| '


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A line of an n-best list.

    Attributes:
        fields: the id, the words and the other fields of the line; of Kaldi's the place in the list is one.
        scores: the numbers that are weighed in.
        log10_p: log10 P of its words by the model.
        total: what it is ranked by.
    """

    fields: Sequence[str]
    scores: Sequence[float] = ()
    log10_p: float = math.nan
    total: float = math.nan

    @property
    def words(self) -> str:
        """The text of the alternative."""
        return self.fields[1]


def parse_score_weights(text: str) -> list[float]:
    """Reads --score_weights. Raises BadInput for what is not numbers with commas between them."""
    try:
        weights = [float(number) for number in text.split(',')] if text else []
    except ValueError:
        weights = [math.nan]
    if not all(map(math.isfinite, weights)):
        raise BadInput(f'--score_weights={text!r}: must be finite numbers with commas between them')
    return weights


def parse(lines: Sequence[str], num_scores: int | None) -> list[Alternative]:
    """Reads alternatives of Moses.

    Args:
        lines: The lines of an n-best list.
        num_scores: How many numbers the third field of each has; 0 leaves it unread, None is as many as the first has.

    Raises:
        BadInput: A line has another form; the message has its number.
    """
    alternatives = []
    if num_scores is None:
        num_scores = len(_score_texts(lines[0].split(SEPARATOR)))
    for number, line in enumerate(lines, start=1):
        fields = line.split(SEPARATOR)
        if len(fields) < 2 or not fields[1].strip():
            raise BadInput(f'stdin:{number}: expected id{SEPARATOR}words')
        scores: list[float] = []
        if num_scores:
            try:
                scores = [float(x) for x in _score_texts(fields)]
            except ValueError:
                scores = []
            if len(scores) != num_scores or not all(map(math.isfinite, scores)):
                numbers = 'a number' if num_scores == 1 else f'{num_scores} numbers'
                raise BadInput(f'stdin:{number}: expected id{SEPARATOR}words{SEPARATOR}{numbers}')
        alternatives.append(Alternative(fields, scores))
    return alternatives


def _score_texts(fields: Sequence[str]) -> list[str]:
    """Returns the numbers of the third field, without names such as `LM0=`."""
    return [text for text in (fields[2].split() if len(fields) > 2 else []) if not text.endswith('=')]


def parse_kaldi(lines: Sequence[str], score_files: Sequence[pathlib.Path]) -> list[Alternative]:
    """Reads alternatives of Kaldi, and their scores from files.

    Args:
        lines: Lines `UTTERANCE-N words`; an alternative may have no words.
        score_files: Files of `UTTERANCE-N number`.

    Raises:
        BadInput: A line has another form, or a file has no score for one; the message names file and line.
    """
    tables = [_read_table(path) for path in score_files]
    alternatives = []
    for number, line in enumerate(lines, start=1):
        key, _, words = line.strip().replace('\t', ' ').partition(' ')
        utterance, _, place = key.rpartition('-')
        if not utterance or not place.isdecimal():
            raise BadInput(f'stdin:{number}: expected UTTERANCE-N words, such as utt1-1 the cat')
        scores = [_read_score(path, table, key, number) for path, table in zip(score_files, tables)]
        alternatives.append(Alternative((utterance, words.strip(), place), scores))
    return alternatives


def _read_table(path: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Returns what stands after the first word of each line of a file, by that word, with the number of the line."""
    text = decode(str(path), read_bytes(str(path), path))
    table: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.split('\n'), start=1):
        key, *rest = line.split(None, 1)[:2] or ['']
        if key in table:
            raise BadInput(f'{path}:{number}: {key} stands in line {table[key][0]} already')
        if key:
            table[key] = number, ''.join(rest).strip()
    return table


def _read_score(path: pathlib.Path, table: dict[str, tuple[int, str]], key: str, number: int) -> float:
    if key not in table:
        raise BadInput(f'stdin:{number}: {path} has no score of {key}')
    line, text = table[key]
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise BadInput(f'{path}:{line}: expected UTTERANCE-N and a number')
    return score


def read_references(path: pathlib.Path, alternatives: Sequence[Alternative], format: str) -> list[list[str]]:
    """Returns the words of the reference of each alternative.

    Args:
        path: The file: of Moses a line for each id, counted from 0; of Kaldi lines `UTTERANCE words`.
        alternatives: The alternatives.
        format: moses or kaldi.

    Raises:
        BadInput: An id has no reference; the message names the line of its first alternative.
    """
    if format == 'kaldi':
        references = {key: words for key, (_, words) in _read_table(path).items()}
    else:
        text = decode(str(path), read_bytes(str(path), path)).removesuffix('\n')
        references = {str(number): line for number, line in enumerate(text.split('\n'))}
    for number, alternative in enumerate(alternatives, start=1):
        if alternative.fields[0].strip() not in references:
            what = 'lines that begin with the utterance' if format == 'kaldi' else 'the line of an id, from 0'
            raise BadInput(f'stdin:{number}: {path} has no reference of {alternative.fields[0]!r}; it needs {what}')
    return [references[alternative.fields[0].strip()].split() for alternative in alternatives]


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

    @property
    def is_plain(self) -> bool:
        """Whether the total is log10 P."""
        return self.model == 1 and not self.word and not self.scores

    def flags(self) -> str:
        """Returns the flags of `nplm score` that give these weights."""
        scores = [f'--score_weights={",".join(f"{w:.6g}" for w in self.scores)}'] if self.scores else []
        return ' '.join([f'--model_weight={self.model:.6g}', f'--word_weight={self.word:.6g}', *scores])


def tune(
    alternatives: Sequence[Alternative], log10_p: Sequence[float], references: Sequence[Sequence[str]], measure: str
) -> tuple[Weights, list[tuple[str, float]]]:
    """Finds weights whose first alternatives are nearest to references; `reranking.tune` says how.

    Args:
        alternatives: The alternatives.
        log10_p: log10 P of each by the model.
        references: The words of the reference of each.
        measure: A key of `reranking.MEASURES`.

    Returns:
        The weights, and for each way to choose an alternative its error.
    """
    import numpy as np

    from nplm_jax.inference import reranking

    used, lists = reranking.MEASURES[measure], _rows_by_id(alternatives)
    scores_AxF = np.array([(p, len(a.words.split()), *a.scores) for a, p in zip(alternatives, log10_p)], float)
    pairs = zip(alternatives, references)
    statistics_AxS = np.array([used.statistics(a.words.split(), reference) for a, reference in pairs], float)
    start_F = np.eye(scores_AxF.shape[1])[0]
    weights_F, tuned = reranking.tune(scores_AxF, lists, statistics_AxS, used.error, start_F)
    first = used.error(statistics_AxS[[rows[0] for rows in lists]].sum(axis=0))
    by_model = reranking.first_error(scores_AxF[:, 0], lists, statistics_AxS, used.error)
    errors = [('first of each list', first), ('by the run alone', by_model), ('tuned', tuned)]
    if measure == 'wer':
        best = [rows[np.argmin(statistics_AxS[rows, 0])] for rows in lists]
        errors.append(('nearest of each list', used.error(statistics_AxS[best].sum(axis=0))))
    model, word, *scores = weights_F.tolist()
    return Weights(model, word, scores), errors


def _rows_by_id(alternatives: Sequence[Alternative]) -> list[np.ndarray]:
    """Returns the rows of the alternatives of each id."""
    import numpy as np

    rows: dict[str, list[int]] = {}
    for row, alternative in enumerate(alternatives):
        rows.setdefault(alternative.fields[0], []).append(row)
    return [np.array(numbers) for numbers in rows.values()]


def rank(alternatives: Sequence[Alternative], log10_p: Sequence[float], weights: Weights) -> list[Alternative]:
    """Returns the alternatives of each id together, best first; the ids keep the order of their first lines.

    Args:
        alternatives: The alternatives.
        log10_p: log10 P of each by the model.
        weights: What `total` adds up.
    """
    scored = []
    for alternative, p in zip(alternatives, log10_p):
        total = weights.model * p + weights.word * len(alternative.words.split())
        total += sum(w * s for w, s in zip(weights.scores, alternative.scores))
        scored.append(dataclasses.replace(alternative, log10_p=float(p), total=float(total)))
    ranks = {key: i for i, key in enumerate(dict.fromkeys(a.fields[0] for a in scored))}
    return sorted(scored, key=lambda a: (ranks[a.fields[0]], -a.total))


def to_text(alternatives: Sequence[Alternative], format: str, weights: Weights) -> str:
    """Returns the lines; those of Moses with log10 P, and the total where more was weighed in, appended."""
    if format == 'kaldi':
        return '\n'.join(f'{a.fields[0]}-{a.fields[2]} {a.words}'.rstrip() for a in alternatives)
    lines = []
    for a in alternatives:
        totals = [] if weights.is_plain else [f'{a.total:.8g}']
        lines.append(SEPARATOR.join([*a.fields, f'{a.log10_p:.8g}', *totals]))
    return '\n'.join(lines)


def to_dicts(alternatives: Sequence[Alternative]) -> list[dict[str, Any]]:
    """Returns the alternatives for JSON."""
    return [
        {'id': a.fields[0], 'words': a.words, 'fields': list(a.fields[2:]), 'log10_p': a.log10_p, 'total': a.total}
        for a in alternatives
    ]
