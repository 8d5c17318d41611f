r"""ARPA files: the text format in which n-gram toolkits exchange back-off models.

A header `\data\` with the number of n-grams of each order, then for each order lines of
`log10 p<TAB>words<TAB>log10 b`, then `\end\`. A log10 of -99 or less stands for probability zero.

The rare-word symbol is written as `<unk>`. The sentence marks `<s>` and `</s>`, which other readers insist on,
are written with probability zero, since a stream has no sentences; they are not words of the vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.vocabulary import RARE, Vocabulary
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramTable, find
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_lines, write_atomically

UNKNOWN = '<unk>'
MARKS = ('<s>', '</s>')
_ZERO = -99.0
_LOG_10 = math.log(10)
_HIGHEST_ORDER = 100


def write(model: BackoffModel, vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes the model with seven digits; interpolated models are in back-off form.

    Raises: BadInput when the vocabulary is not the model's size, or has `<unk>`, `<s>` or `</s>` as a word.
    """
    if len(vocabulary) != model.table.vocabulary_size:
        raise BadInput(f'{path}: a vocabulary of {len(vocabulary)} words for a model of {model.table.vocabulary_size}')
    reserved = [w for w in (UNKNOWN, *MARKS) if w in vocabulary.ids]
    if reserved:
        raise BadInput(f'{path}: the vocabulary has {reserved[0]!r} as a word, which ARPA files reserve')
    lines = ['\\data\\']
    for k in range(1, model.n + 1):
        lines.append(f'ngram {k}={model.table.size(k) + (len(MARKS) if k == 1 else 0)}')
    words = [UNKNOWN, *vocabulary.words[1:]]
    ngrams = words
    for k in range(1, model.n + 1):
        if k > 1:
            last = model.table.keys[k - 1] % len(words)
            ngrams = [f'{ngrams[p]} {words[w]}' for p, w in zip(model.table.prefixes(k).tolist(), last.tolist())]
        lines.append(f'\n\\{k}-grams:')
        if k == 1:
            lines += [f'{_ZERO:g}\t{mark}' for mark in MARKS]
        log_p = _log10(np.minimum(model.log_p[k - 1], 0))
        if k == model.n:
            lines += [f'{p:.7g}\t{ngram}' for p, ngram in zip(log_p, ngrams)]
        else:
            log_b = _log10(model.log_b[k - 1])
            lines += [f'{p:.7g}\t{ngram}\t{b:.7g}' for p, ngram, b in zip(log_p, ngrams, log_b)]
    write_atomically(path, '\n'.join([*lines, '\n\\end\\\n']))


def read(path: pathlib.Path) -> tuple[BackoffModel, Vocabulary]:
    """Reads an ARPA file of any toolkit, of any order up to 100.

    Returns: the model, and the vocabulary whose ids it speaks: `<unk>` as the rare-word symbol (probability zero
    if the file has none), then the words in the order of the file; counts are 0. `<s>` and `</s>` are words only
    where the file gives them a probability or a longer n-gram, and then probabilities are the file's own.
    Raises: BadInput naming file and line for text that is not of the format, wrong numbers of n-grams, an n-gram
    that stands twice, a word without a 1-gram, or an n-gram whose first words are no n-gram themselves.
    """
    sections = _parse(path)
    in_longer = {word for section in sections[1:] for ngram in section.ngrams for word in ngram}
    first = sections[0]
    first_uses = {ngram: i for i, ngram in reversed(list(enumerate(first.ngrams)))}
    _check_unique(path, first, list(first_uses.values()))
    used = [p > _ZERO or w not in MARKS or w in in_longer for p, (w,) in zip(first.log_p, first.ngrams)]
    words = [w for (w,), keep in zip(first.ngrams, used) if keep and w != UNKNOWN]
    ids = {UNKNOWN: 0, **{w: i for i, w in enumerate(words, start=1)}}
    vocabulary = Vocabulary((RARE, *words), (0,) * len(ids))
    keys: list[np.ndarray] = [np.arange(len(ids))]
    log_p, log_b = [np.full(len(ids), -np.inf)], [np.zeros(len(ids))]
    kept = [i for i, keep in enumerate(used) if keep]
    where = np.array([ids[first.ngrams[i][0]] for i in kept], np.int64)
    log_p[0][where], log_b[0][where] = (_natural(x)[kept] for x in (first.log_p, first.log_b))
    for section in sections[1:]:
        packed = _pack(path, section, ids, keys)
        order = np.argsort(packed)
        keys.append(packed[order])
        log_p.append(_natural(section.log_p)[order])
        log_b.append(_natural(section.log_b)[order])
    return BackoffModel(NgramTable(len(ids), tuple(keys)), log_p, log_b[:-1]), vocabulary


@dataclasses.dataclass
class _Section:
    """The n-grams of one order as the file has them, and the lines on which they stand."""

    size: int  # what the header says
    ngrams: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    log_p: list[float] = dataclasses.field(default_factory=list)
    log_b: list[float] = dataclasses.field(default_factory=list)
    lines: list[int] = dataclasses.field(default_factory=list)


def _parse(path: pathlib.Path) -> list[_Section]:
    sections: list[_Section] = []
    order = -1  # -1 before the header, 0 in it, then the order of the section
    number = 1
    for number, line in read_lines(path):
        fields = line.split(maxsplit=max(order, 0) + 2)  # one more than any line has
        if not fields:
            continue
        end = order > 0 and order == len(sections) and fields == ['\\end\\']
        if order == -1 and fields == ['\\data\\']:
            order = 0
        elif order == 0 and (size := _size(fields, len(sections) + 1)) is not None:
            sections.append(_Section(size))
        elif end or (0 <= order < len(sections) and fields == [f'\\{order + 1}-grams:']):
            if order and len(sections[order - 1].ngrams) != sections[order - 1].size:
                found, said = len(sections[order - 1].ngrams), sections[order - 1].size
                raise BadInput(f'{path}:{number}: {found} {order}-grams end here; the header says {said}')
            if end:
                return sections
            order += 1
        elif order < 1 or not _add(sections[order - 1], order, fields, number):
            wanted = {-1: 'the line \\data\\', 0: f'ngram {len(sections) + 1}=SIZE or \\1-grams:'}
            default = f'log10 probability, {order} words, log10 back-off weight, or the next section'
            raise BadInput(f'{path}:{number}: not an ARPA file: expected {wanted.get(order, default)}')
    raise BadInput(f'{path}:{number}: not an ARPA file, or cut short: no \\end\\')


def _size(fields: list[str], order: int) -> int | None:
    """How many n-grams of `order` a line of the header announces; None when it is no such line."""
    found = re.fullmatch(r'ngram ([0-9]{1,3})=([0-9]{1,18})', ' '.join(fields[:3]))
    return int(found[2]) if found and int(found[1]) == order <= _HIGHEST_ORDER else None


def _add(section: _Section, order: int, fields: list[str], number: int) -> bool:
    """Takes in the line of one n-gram; False when it is not of that form."""
    if len(fields) not in (order + 1, order + 2):
        return False
    try:
        log_p, log_b = float(fields[0]), float(fields[order + 1]) if len(fields) == order + 2 else 0.0
    except ValueError:
        return False
    if math.isnan(log_p) or math.isnan(log_b) or log_p > 0 or log_b == math.inf:
        return False
    section.ngrams.append(tuple(fields[1 : order + 1]))
    section.log_p.append(log_p)
    section.log_b.append(log_b)
    section.lines.append(number)
    return True


def _pack(path: pathlib.Path, section: _Section, ids: dict[str, int], keys: list[np.ndarray]) -> np.ndarray:
    """The key of each n-gram, given those of the shorter ones."""
    ids_IxK = np.array([[ids.get(w, -1) for w in ngram] for ngram in section.ngrams], np.int64)
    ids_IxK = ids_IxK.reshape(-1, len(keys) + 1)
    nodes = ids_IxK[:, 0]
    for k, shorter in enumerate(keys[1:], start=1):
        nodes = find(shorter, nodes * len(ids) + ids_IxK[:, k])
    packed = nodes * len(ids) + ids_IxK[:, -1]
    _refuse(path, section, (ids_IxK < 0).any(1), 'has a word without a 1-gram')
    _refuse(path, section, nodes < 0, 'has a beginning that is not an n-gram of the order below')
    _check_unique(path, section, np.unique(packed, return_index=True)[1])
    return packed


def _check_unique(path: pathlib.Path, section: _Section, first_uses: Sequence[int]) -> None:
    again = np.ones(len(section.ngrams), bool)
    again[np.asarray(first_uses, np.int64)] = False
    _refuse(path, section, again, 'stands twice')


def _refuse(path: pathlib.Path, section: _Section, bad: np.ndarray, problem: str) -> None:
    if bad.any():
        i = int(bad.argmax())
        raise BadInput(f'{path}:{section.lines[i]}: {" ".join(section.ngrams[i])!r} {problem}')


def _log10(nats: np.ndarray) -> list[float]:
    return np.maximum(nats / _LOG_10, _ZERO).tolist()


def _natural(log10: list[float]) -> np.ndarray:
    log10 = np.array(log10, np.float64)
    return np.where(log10 > _ZERO, log10 * _LOG_10, -np.inf)
