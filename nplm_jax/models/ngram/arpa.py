r"""ARPA files: the text format in which n-gram toolkits exchange back-off models.

A file has a header `\data\` with the number of n-grams of each order, then for each order lines of
`log10 p<TAB>words<TAB>log10 b`, then `\end\`. A log10 of -99 or less stands for probability zero.

The rare-word symbol is written as `<unk>`, and the paragraph mark as the sentence marks `<s>` and `</s>`, as
`sentence_marks.split` says. Other readers require both marks: without a paragraph mark they have probability zero.
"""

import dataclasses
import math
import pathlib
import re
from collections.abc import Sequence

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


def read(path: pathlib.Path) -> tuple[BackoffModel, Vocabulary]:
    """Reads an ARPA file of any toolkit, of any order up to 100.

    Returns:
        The model, and the vocabulary of its ids: `<unk>` or `<UNK>` as the rare-word symbol (with probability zero if
        the file has neither), then the words in the order of the file; all counts are 0. `<s>` and `</s>` are words
        only if the file gives them a positive probability or a longer n-gram; then they keep the file's probabilities.

    Raises:
        BadInput: The text is malformed, a section's number of n-grams differs from the header's, an n-gram is
            repeated, a word is no 1-gram or `<rare>`, or an n-gram's first words are no n-gram of the order below. The
            message names file and line.
    """
    sections = _parse(path)
    in_longer = {word for section in sections[1:] for ngram in section.ngrams for word in ngram}
    unigrams = sections[0]
    first_uses = {ngram: i for i, ngram in reversed(list(enumerate(unigrams.ngrams)))}
    _check_unique(path, unigrams, list(first_uses.values()))
    is_word = [
        p > _ZERO or w not in SENTENCE_MARKS or w in in_longer for p, (w,) in zip(unigrams.log_p, unigrams.ngrams)
    ]
    words = [w for (w,), is_kept in zip(unigrams.ngrams, is_word) if is_kept and w != UNKNOWN]
    if RARE in words:
        raise BadInput(
            f'{path}: has the word {RARE}, which stands for unknown words here; name it {UNKNOWN} in the text'
        )
    ids = {UNKNOWN: 0, **{w: i for i, w in enumerate(words, start=1)}}
    vocabulary = Vocabulary((RARE, *words), (0,) * len(ids))
    keys: list[np.ndarray] = [np.arange(len(ids))]
    log_p, log_b = [np.full(len(ids), -np.inf)], [np.zeros(len(ids))]
    kept = [i for i, is_kept in enumerate(is_word) if is_kept]
    kept_ids = np.array([ids[unigrams.ngrams[i][0]] for i in kept], np.int64)
    log_p[0][kept_ids], log_b[0][kept_ids] = (_log10_to_nats(x)[kept] for x in (unigrams.log_p, unigrams.log_b))
    for section in sections[1:]:
        packed = _pack(path, section, ids, keys)
        order = np.argsort(packed)
        keys.append(packed[order])
        log_p.append(_log10_to_nats(section.log_p)[order])
        log_b.append(_log10_to_nats(section.log_b)[order])
    return BackoffModel(NgramTable(len(ids), tuple(keys)), log_p, log_b[:-1]), vocabulary


@dataclasses.dataclass
class _Section:
    """The n-grams of one order in the order of the file."""

    size: int  # the number of n-grams according to the header
    ngrams: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    log_p: list[float] = dataclasses.field(default_factory=list)
    log_b: list[float] = dataclasses.field(default_factory=list)
    lines: list[int] = dataclasses.field(default_factory=list)  # line numbers


def _parse(path: pathlib.Path) -> list[_Section]:
    """Reads the sections of a file."""
    sections: list[_Section] = []
    order = -1  # -1 before the header, 0 in it, then the order of the section
    number = 1
    for number, line in read_lines(path):
        fields = line.split(maxsplit=max(order, 0) + 2)  # one field more than the longest valid line
        if not fields:
            continue
        end = order > 0 and order == len(sections) and fields == ['\\end\\']
        if order == -1 and fields == ['\\data\\']:
            order = 0
        elif order == 0 and (size := _parse_size(fields, len(sections) + 1)) is not None:
            sections.append(_Section(size))
        elif end or (0 <= order < len(sections) and fields == [f'\\{order + 1}-grams:']):
            if order and len(sections[order - 1].ngrams) != sections[order - 1].size:
                actual, announced = len(sections[order - 1].ngrams), sections[order - 1].size
                raise BadInput(f'{path}:{number}: {actual} {order}-grams end here; the header says {announced}')
            if end:
                return sections
            order += 1
        elif order < 1 or not _add_ngram(sections[order - 1], order, fields, number):
            expected = {-1: 'the line \\data\\', 0: f'ngram {len(sections) + 1}=SIZE or \\1-grams:'}
            default = f'log10 probability, {order} words, log10 back-off weight, or the next section'
            raise BadInput(f'{path}:{number}: not an ARPA file: expected {expected.get(order, default)}')
    raise BadInput(f'{path}:{number}: not an ARPA file, or cut short: no \\end\\')


def _parse_size(fields: list[str], order: int) -> int | None:
    """Returns the number of n-grams of `order` that a line of the header announces; None for another line."""
    match = re.fullmatch(r'ngram ([0-9]{1,3})=([0-9]{1,18})', ' '.join(fields[:3]))
    return int(match[2]) if match and int(match[1]) == order <= _MAX_ORDER else None


def _add_ngram(section: _Section, order: int, fields: list[str], number: int) -> bool:
    """Adds the n-gram of one line to a section. Returns False for a malformed line."""
    if len(fields) not in (order + 1, order + 2):
        return False
    try:
        log_p, log_b = float(fields[0]), float(fields[order + 1]) if len(fields) == order + 2 else 0.0
    except ValueError:
        return False
    if math.isnan(log_p) or math.isnan(log_b) or log_p > 0 or log_b == math.inf:
        return False
    ngram = fields[1 : order + 1]
    if UNKNOWN_IN_CAPITALS in ngram:  # KenLM takes both for the unknown word
        ngram = [UNKNOWN if word == UNKNOWN_IN_CAPITALS else word for word in ngram]
    section.ngrams.append(tuple(ngram))
    section.log_p.append(log_p)
    section.log_b.append(log_b)
    section.lines.append(number)
    return True


def _pack(path: pathlib.Path, section: _Section, ids: dict[str, int], keys: list[np.ndarray]) -> np.ndarray:
    """Returns the key of each n-gram of a section. keys: those of the lower orders."""
    ids_IxK = np.array([[ids.get(w, -1) for w in ngram] for ngram in section.ngrams], np.int64)
    ids_IxK = ids_IxK.reshape(-1, len(keys) + 1)
    nodes = ids_IxK[:, 0]
    for k, lower_keys in enumerate(keys[1:], start=1):
        nodes = find(lower_keys, nodes * len(ids) + ids_IxK[:, k])
    packed = nodes * len(ids) + ids_IxK[:, -1]
    _refuse(path, section, np.any(ids_IxK < 0, axis=1), 'has a word without a 1-gram')
    _refuse(path, section, nodes < 0, 'has a beginning that is not an n-gram of the order below')
    _check_unique(path, section, np.unique(packed, return_index=True)[1])
    return packed


def _check_unique(path: pathlib.Path, section: _Section, first_uses: Sequence[int] | np.ndarray) -> None:
    """Raises BadInput for an n-gram that is not at one of the indices `first_uses`."""
    repeated = np.ones(len(section.ngrams), bool)
    repeated[np.asarray(first_uses, np.int64)] = False
    _refuse(path, section, repeated, 'stands twice')


def _refuse(path: pathlib.Path, section: _Section, bad: np.ndarray, problem: str) -> None:
    """Raises BadInput naming the first n-gram that is `bad`, if any is."""
    if bad.any():
        i = int(bad.argmax())
        raise BadInput(f'{path}:{section.lines[i]}: {" ".join(section.ngrams[i])!r} {problem}')


def _nats_to_log10(nats: np.ndarray) -> list[float]:
    """Converts natural to decimal logarithms, with -99 for -inf."""
    return np.maximum(nats / _LOG_10, _ZERO).tolist()


def _log10_to_nats(log10: list[float]) -> np.ndarray:
    """Converts decimal to natural logarithms, with -inf for -99 and less. float64."""
    values = np.array(log10, np.float64)
    return np.where(values > _ZERO, values * _LOG_10, -np.inf)
