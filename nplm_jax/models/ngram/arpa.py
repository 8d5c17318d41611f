r"""ARPA files: the text format in which n-gram toolkits exchange back-off models.

A file has a header `\data\` with the number of n-grams of each order, then for each order lines of
`log10 p<TAB>words<TAB>log10 b`, then `\end\`. A log10 of -99 or less stands for probability zero.

The rare-word symbol is written as `<unk>`, and the paragraph mark as the sentence marks `<s>` and `</s>`, as
`sentence_marks.split` says. Other readers require both marks: without a paragraph mark they have probability zero.
"""

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
    in_longer = {word for section in longer for ngram in section for word in ngram.words}
    no_words = set() if as_kenlm else set(SENTENCE_MARKS) - in_longer
    unigrams = [ngram for ngram in unigrams if ngram.log_p > _ZERO or ngram.words[0] not in no_words]
    words = dict.fromkeys(ngram.words[0] for ngram in unigrams)
    if RARE in words:
        raise BadInput(
            f'{path}: has the word {RARE}, which stands for unknown words here; name it {UNKNOWN} in the text'
        )
    if UNKNOWN not in words:
        unigrams.append(_Ngram(0, (UNKNOWN,), _KENLM_UNKNOWN if as_kenlm else _ZERO, 0.0))
    ids = {word: i for i, word in enumerate({UNKNOWN: None} | words)}
    keys: list[np.ndarray] = []
    log_p, log_b, zero = [], [], -math.inf if as_kenlm else _ZERO
    for section in (unigrams, *longer):
        packed = _pack(path, section, ids, keys)
        order = np.argsort(packed)
        keys.append(packed[order])
        log_p.append(_log10_to_nats([ngram.log_p for ngram in section], zero)[order])
        log_b.append(_log10_to_nats([ngram.log_b for ngram in section], zero)[order])
    vocabulary = Vocabulary((RARE, *list(ids)[1:]), (0,) * len(ids))
    return BackoffModel(NgramTable(len(ids), tuple(keys)), log_p, log_b[:-1]), vocabulary


class _Ngram(NamedTuple):
    """A line of a file: its number, the words, and decimal logarithms."""

    line: int
    words: tuple[str, ...]
    log_p: float
    log_b: float


def _parse(path: pathlib.Path) -> list[list[_Ngram]]:
    """Returns the n-grams of each order in the order of the file."""
    sizes: list[int] = []  # of the sections, according to the header
    sections: list[list[_Ngram]] = []
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
            if order and len(sections[-1]) != sizes[order - 1]:
                problem = f'{len(sections[-1])} {order}-grams end here; the header says {sizes[order - 1]}'
                raise BadInput(f'{path}:{number}: {problem}')
            if is_end:
                return sections
            in_header = False
            sections.append([])
        elif order and (ngram := _parse_ngram(fields, order, number)):
            if ngram.log_b:
                _check_backoff(path, ngram, order == len(sizes))
            sections[-1].append(ngram)
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


def _parse_ngram(fields: list[str], order: int, number: int) -> _Ngram | None:
    """Returns the n-gram of a line; None for a malformed line."""
    try:
        log_p, *log_b = (float(field) for field in (fields[0], *fields[order + 1 :]))
    except ValueError:
        return None
    is_valid = len(fields) > order and len(log_b) < 2 and log_p <= 0  # no NaN
    # KenLM takes both spellings for the unknown word.
    words = tuple(UNKNOWN if word == UNKNOWN_IN_CAPITALS else word for word in fields[1 : order + 1])
    return _Ngram(number, words, log_p, log_b[0] if log_b else 0.0) if is_valid else None


def _check_backoff(path: pathlib.Path, ngram: _Ngram, is_longest: bool) -> None:
    """Raises BadInput if an n-gram has a back-off weight that no model has; KenLM refuses nearly the same ones."""
    if is_longest or not -math.inf < ngram.log_b <= -_ZERO:
        allowed = 'the longest n-grams have none' if is_longest else f'must be finite and at most {-_ZERO:g}'
        raise BadInput(f'{path}:{ngram.line}: log10 back-off weight {ngram.log_b:g}: {allowed}')


def _pack(path: pathlib.Path, section: list[_Ngram], ids: dict[str, int], keys: list[np.ndarray]) -> np.ndarray:
    """Returns the key of each n-gram of a section.

    Args:
        path: The file, for error messages.
        section: The n-grams.
        ids: The id of each word.
        keys: Those of the lower orders.
    """
    ids_IxK = np.array([[ids.get(word, -1) for word in ngram.words] for ngram in section], np.int64)
    ids_IxK = ids_IxK.reshape(-1, len(keys) + 1)
    nodes = np.zeros(len(section), np.int64)
    for k, lower_keys in enumerate(keys):
        nodes = find(lower_keys, nodes * len(ids) + ids_IxK[:, k])
    packed = nodes * len(ids) + ids_IxK[:, -1]
    is_repeated = np.ones(len(section), bool)
    is_repeated[np.unique(packed, return_index=True)[1]] = False
    for bad, problem in (
        (np.any(ids_IxK < 0, axis=1), 'has a word without a 1-gram'),
        (nodes < 0, 'has a prefix that is not an n-gram of the order below'),
        (is_repeated, 'occurs twice'),
    ):
        if bad.any():
            ngram = section[int(bad.argmax())]
            raise BadInput(f'{path}:{ngram.line}: {" ".join(ngram.words)!r} {problem}')
    return packed


def _nats_to_log10(nats: np.ndarray) -> list[float]:
    """Converts natural to decimal logarithms, with -99 for -inf."""
    return np.maximum(nats / _LOG_10, _ZERO).tolist()


def _log10_to_nats(log10: list[float], zero: float) -> np.ndarray:
    """Converts decimal to natural logarithms, with -inf for `zero` and less. float64."""
    values = np.array(log10, np.float64)
    return np.where(values > zero, values * _LOG_10, -np.inf)
