r"""ARPA files: the text format in which n-gram toolkits exchange back-off models.

A file has a header `\data\` with the number of n-grams of each order, then for each order lines of
`log10 p<TAB>words<TAB>log10 b`, then `\end\`. A log10 of -99 or less stands for probability zero.

The rare-word symbol is written as `<unk>`, and the paragraph mark as the sentence marks `<s>` and `</s>`, as
`sentence_marks.split` says. Other readers require both marks: without a paragraph mark they have probability zero.
"""

import itertools
import math
import pathlib
import re
from typing import NamedTuple

import numpy as np

from nplm_jax.data.vocabulary import RARE, Vocabulary
from nplm_jax.models.ngram import sentence_marks
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramTable, find
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_lines, write_atomically

UNKNOWN, UNKNOWN_IN_CAPITALS = '<unk>', '<UNK>'
SENTENCE_MARKS = (sentence_marks.BEGIN, sentence_marks.END)
_ZERO = -99.0  # the log10 of probability zero
_KENLM_UNKNOWN = -100.0  # the log10 that KenLM gives to an unknown word if a file has no <unk>
_LOG_10 = math.log(10)
_MAX_ORDER = 100


def write(model: BackoffModel, vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes a model with seven digits.

    Raises:
        BadInput: The vocabulary is not of the model's size, or has `<unk>`, `<UNK>`, `<s>` or `</s>` as a word.
    """
    if len(vocabulary) != model.table.vocabulary_size:
        raise BadInput(f'{path}: a vocabulary of {len(vocabulary)} words for a model of {model.table.vocabulary_size}')
    reserved = [w for w in (UNKNOWN, UNKNOWN_IN_CAPITALS, *SENTENCE_MARKS) if w in vocabulary.ids]
    if reserved:
        raise BadInput(f'{path}: the vocabulary has {reserved[0]!r} as a word, which ARPA files reserve')
    model, vocabulary = sentence_marks.split(model, vocabulary)
    unused_marks = [mark for mark in SENTENCE_MARKS if mark not in vocabulary.ids]
    lines = ['\\data\\']
    for k in range(1, model.n + 1):
        lines.append(f'ngram {k}={model.table.size(k) + (len(unused_marks) if k == 1 else 0)}')
    words = [UNKNOWN, *vocabulary.words[1:]]
    ngrams = words
    for k in range(1, model.n + 1):
        if k > 1:
            last = model.table.keys[k - 1] % len(words)
            ngrams = [f'{ngrams[p]} {words[w]}' for p, w in zip(model.table.prefixes(k).tolist(), last.tolist())]
        lines.append(f'\n\\{k}-grams:')
        if k == 1:
            lines += [f'{_ZERO:g}\t{mark}' for mark in unused_marks]
        log_p = _nats_to_log10(np.minimum(np.asarray(model.log_p[k - 1]), 0))
        if k == model.n:
            lines += [f'{p:.7g}\t{ngram}' for p, ngram in zip(log_p, ngrams)]
        else:
            log_b = _nats_to_log10(np.asarray(model.log_b[k - 1]))
            lines += [f'{p:.7g}\t{ngram}\t{b:.7g}' for p, ngram, b in zip(log_p, ngrams, log_b)]
    write_atomically(path, '\n'.join([*lines, '\n\\end\\\n']))


def read(path: pathlib.Path, as_kenlm: bool = False) -> tuple[BackoffModel, Vocabulary]:
    """Reads an ARPA file of any toolkit, of any order up to 100.

    Args:
        path: The file.
        as_kenlm: Whether a log10 of -99 is a number like any other, `<s>` and `</s>` are words wherever the file has
            them, and an `<unk>` that it lacks has -100, so that all sums are those of KenLM.

    Returns:
        The model, and the vocabulary of its ids: `<unk>` or `<UNK>` as the rare-word symbol (with probability zero if
        the file has neither), then the words in the order of the file; all counts are 0. `<s>` and `</s>` are words
        only if the file gives them a positive probability or a longer n-gram; then they keep the file's probabilities.

    Raises:
        BadInput: The text is malformed, a section's number of n-grams differs from the header's, an n-gram is
            repeated, a word is no 1-gram or `<rare>`, or an n-gram's first words are no n-gram of the order below; a
            back-off weight is not finite or above 99 (log10), or not zero at the highest order. The message names file
            and line.
    """
    unigrams, *longer = _parse(path)
    no_words = set() if as_kenlm else set(SENTENCE_MARKS).difference(*(section.words for section in longer))
    words = dict.fromkeys(
        word for word, log_p in zip(unigrams.words, unigrams.log_p) if log_p > _ZERO or word not in no_words
    )
    if RARE in words:
        raise BadInput(
            f'{path}: has the word {RARE}, which stands for unknown words here; name it {UNKNOWN} in the text'
        )
    ids = {word: i for i, word in enumerate({UNKNOWN: None} | words)}
    unigrams = unigrams.take([i for i, word in enumerate(unigrams.words) if word in ids])
    if UNKNOWN not in words:
        unigrams.append(0, [UNKNOWN], _KENLM_UNKNOWN if as_kenlm else _ZERO, 0.0)
    keys: list[np.ndarray] = []
    log_p, log_b, zero = [], [], -math.inf if as_kenlm else _ZERO
    for section in (unigrams, *longer):
        packed = _pack(path, section, ids, keys)
        order = np.argsort(packed)
        keys.append(packed[order])
        log_p.append(_log10_to_nats(section.log_p, zero)[order])
        log_b.append(_log10_to_nats(section.log_b, zero)[order])
    vocabulary = Vocabulary((RARE, *list(ids)[1:]), (0,) * len(ids))
    return BackoffModel(NgramTable(len(ids), tuple(keys)), log_p, log_b[:-1]), vocabulary


class _Section(NamedTuple):
    """The n-grams of one order: of each its line, its words (all in one list), and its decimal logarithms."""

    lines: list[int]
    words: list[str]
    log_p: list[float]
    log_b: list[float]

    def append(self, line: int, words: list[str], log_p: float, log_b: float) -> None:
        """Appends an n-gram."""
        self.lines.append(line)
        self.words.extend(words)
        self.log_p.append(log_p)
        self.log_b.append(log_b)

    def take(self, rows: list[int]) -> '_Section':
        """Returns some of the 1-grams."""
        lines, words = [self.lines[i] for i in rows], [self.words[i] for i in rows]
        return _Section(lines, words, [self.log_p[i] for i in rows], [self.log_b[i] for i in rows])


def _parse(path: pathlib.Path) -> list[_Section]:
    """Returns the n-grams of each order in the order of the file."""
    sizes: list[int] = []  # of the sections, according to the header
    sections: list[_Section] = []
    in_header, number = False, 1
    for number, line in read_lines(path):
        order = len(sections)
        fields = line.split(maxsplit=order + 2)  # one field more than the longest valid line
        if not fields:
            continue
        is_end = 0 < order == len(sizes) and fields == ['\\end\\']
        if not in_header and not order and fields == ['\\data\\']:
            in_header = True
        elif in_header and (size := _parse_size(fields, len(sizes) + 1)) is not None:
            sizes.append(size)
        elif is_end or ((in_header or order) and order < len(sizes) and fields == [f'\\{order + 1}-grams:']):
            if order and len(sections[-1].lines) != sizes[order - 1]:
                problem = f'{len(sections[-1].lines)} {order}-grams end here; the header says {sizes[order - 1]}'
                raise BadInput(f'{path}:{number}: {problem}')
            if is_end:
                return sections
            in_header = False
            sections.append(_Section([], [], [], []))
        elif order and (ngram := _parse_ngram(fields, order)):
            words, log_p, log_b = ngram
            if log_b:
                _check_backoff(f'{path}:{number}', log_b, order == len(sizes))
            sections[-1].append(number, words, log_p, log_b)
        else:
            expected = f'log10 probability, {order} words, log10 back-off weight, or the next section'
            if not order:
                expected = f'ngram {len(sizes) + 1}=SIZE or \\1-grams:' if in_header else 'the line \\data\\'
            raise BadInput(f'{path}:{number}: not an ARPA file: expected {expected}')
    raise BadInput(f'{path}:{number}: not an ARPA file, or cut short: no \\end\\')


def _parse_size(fields: list[str], order: int) -> int | None:
    """Returns the number of n-grams of `order` that a line of the header announces; None for another line."""
    match = re.fullmatch(r'ngram ([0-9]{1,3})=([0-9]{1,18})', ' '.join(fields[:3]))
    return int(match[2]) if match and int(match[1]) == order <= _MAX_ORDER else None


def _parse_ngram(fields: list[str], order: int) -> tuple[list[str], float, float] | None:
    """Returns words, log10 P and log10 back-off weight of the n-gram of a line; None for a malformed line."""
    try:
        log_p, log_b = float(fields[0]), [*map(float, fields[order + 1 :])]
    except ValueError:
        return None
    words = fields[1 : order + 1]
    if UNKNOWN_IN_CAPITALS in words:  # KenLM takes both spellings
        words = [UNKNOWN if word == UNKNOWN_IN_CAPITALS else word for word in words]
    is_valid = len(words) == order and len(log_b) < 2 and log_p <= 0  # no NaN
    return (words, log_p, log_b[0] if log_b else 0.0) if is_valid else None


def _check_backoff(where: str, log_b: float, is_longest: bool) -> None:
    """Raises BadInput if an n-gram has a back-off weight that no model has; KenLM refuses nearly the same ones."""
    if is_longest or not -math.inf < log_b <= -_ZERO:
        allowed = 'the longest n-grams have none' if is_longest else f'must be finite and at most {-_ZERO:g}'
        raise BadInput(f'{where}: log10 back-off weight {log_b:g}: {allowed}')


def _pack(path: pathlib.Path, section: _Section, ids: dict[str, int], keys: list[np.ndarray]) -> np.ndarray:
    """Returns the key of each n-gram of a section.

    Args:
        path: The file, for error messages.
        section: The n-grams.
        ids: The id of each word.
        keys: Those of the lower orders.
    """
    order = len(keys) + 1
    ids_IxK = np.array([*map(ids.get, section.words, itertools.repeat(-1))], np.int64).reshape(-1, order)
    nodes = np.zeros(len(ids_IxK), np.int64)
    for k, lower_keys in enumerate(keys):
        nodes = find(lower_keys, nodes * len(ids) + ids_IxK[:, k])
    packed = nodes * len(ids) + ids_IxK[:, -1]
    is_repeated = np.ones(len(packed), bool)
    is_repeated[np.unique(packed, return_index=True)[1]] = False
    for bad, problem in (
        (np.any(ids_IxK < 0, axis=1), 'has a word without a 1-gram'),
        (nodes < 0, 'has a prefix that is not an n-gram of the order below'),
        (is_repeated, 'occurs twice'),
    ):
        if bad.any():
            row = int(bad.argmax())
            words = ' '.join(section.words[row * order : (row + 1) * order])
            raise BadInput(f'{path}:{section.lines[row]}: {words!r} {problem}')
    return packed


def _nats_to_log10(nats: np.ndarray) -> list[float]:
    """Converts natural to decimal logarithms, with -99 for -inf."""
    return np.maximum(nats / _LOG_10, _ZERO).tolist()


def _log10_to_nats(log10: list[float], zero: float) -> np.ndarray:
    """Converts decimal to natural logarithms, with -inf for `zero` and less. float64."""
    values = np.array(log10, np.float64)
    return np.where(values > zero, values * _LOG_10, -np.inf)
