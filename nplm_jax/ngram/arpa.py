r"""Reader and writer for ARPA files, the exchange format of back-off models.

A file consists of a header `\data\` with the number of n-grams of each order, a section for each order with lines of
the form `log10 p<TAB>words<TAB>log10 b`, and `\end\`. Lines before the header that begin with `#` are skipped. A log10
of -99 or less means probability zero.

The rare-word symbol is written as `<unk>`, and the paragraph mark as the sentence marks `<s>` and `</s>`; see
`sentence_marks.split`. If the vocabulary has no paragraph mark, both marks are written with probability zero, because
other toolkits require them.
"""

import contextlib
import functools
import itertools
import math
import operator
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.data.stream import RARE
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import sentence_marks
from nplm_jax.ngram.arpa_blocks import BlockParser, parse_number
from nplm_jax.ngram.arpa_files import read_blocks
from nplm_jax.ngram.backoff import BackoffModel, renumber
from nplm_jax.ngram.counts import NgramTable, find
from nplm_jax.ngram.integers import sort_with_order
from nplm_jax.ngram.sentence_marks import UNKNOWN, UNKNOWN_IN_CAPITALS
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically

SENTENCE_MARKS = (sentence_marks.BEGIN, sentence_marks.END)
_ZERO = sentence_marks.LOG10_ZERO
_KENLM_UNKNOWN = -100.0  # KenLM's log10 probability of unknown words if the file has no <unk>
FIELD = re.compile(r'[^ \t\n\r]+')  # as in KenLM's ARPA reader; KenLM splits texts with `words.KENLM_WORD`
_LOG_10 = math.log(10)
_MAX_ORDER = 100
_BLOCK = 2**18  # bytes parsed at once
_IN_SECTION = 'a log10 probability, {} words and a log10 back-off weight, or the next section'


def write(model: BackoffModel, vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes a model with seven significant digits.

    Raises:
        BadInput: The vocabulary differs in size from the model, or contains `<unk>`, `<UNK>`, `<s>`, `</s>` or a word
            with whitespace.
    """
    if len(vocabulary) != model.table.vocabulary_size:
        problem = f'the vocabulary has {len(vocabulary)} words, but the model has {model.table.vocabulary_size}'
        raise BadInput(path, problem)
    sentence_marks.check_words(str(path), vocabulary)
    if (spaced := next((word for word in vocabulary.words if not FIELD.fullmatch(word)), None)) is not None:
        raise BadInput(path, f'the vocabulary contains {spaced!r}; words in ARPA files cannot contain whitespace')
    write_with_marks(*sentence_marks.split(model, vocabulary), path)


def write_with_marks(model: BackoffModel, vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes a model whose vocabulary has `<s>` and `</s>`, as returned by `read`, with seven significant digits.

    Args:
        model: The model.
        vocabulary: The vocabulary of the model; the rare-word symbol becomes `<unk>`.
        path: The path of the file.
    """
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
    """Reads an ARPA file from any toolkit, up to order 100.

    Args:
        path: The path of the file.
        as_kenlm: Whether to reproduce KenLM's log-probabilities exactly. A log10 of -99 is then an ordinary number, and
            a missing `<unk>` has a log10 of -100. `<s>` and `</s>` are words whenever the file contains them.

    Returns:
        The model and its vocabulary. The vocabulary begins with the rare-word symbol, which is read from `<unk>` or
        `<UNK>` and has probability zero if the file has neither. The other words follow in file order. All counts are
        0. `<s>` and `</s>` are words only if the file gives them a positive probability or contains them in longer
        n-grams, or if `<s>` has a back-off weight. In these cases, both marks keep the probabilities in the file.

    Raises:
        BadInput: The file is not a valid ARPA file. In a valid file, each section has as many n-grams as the header
            states, no n-gram is repeated, no word is `<rare>`, each word has a 1-gram, and the prefix of each n-gram is
            in the order below. Back-off weights are finite, no greater than 99 (log10), and zero at the highest order.
            The message names the file and the line.
    """
    ids, zero = {UNKNOWN: 0, UNKNOWN_IN_CAPITALS: 0}, -math.inf if as_kenlm else _ZERO  # KenLM accepts both spellings
    keys: list[np.ndarray] = []
    log_p, log_b = [], []
    for order, of_order in itertools.groupby(_parse(path, ids), operator.itemgetter(0)):
        blocks = [encode() for _, encode in of_order]
        lines, ids_KxI, log_p_I, log_b_I = (np.concatenate(arrays, axis=-1) for arrays in zip(*blocks))
        del blocks
        packed = _pack(path, lines, ids_KxI, keys, ids)
        del ids_KxI
        if order == 1 and 0 not in packed:  # no <unk>
            packed, log_b_I = np.append(packed, 0), np.append(log_b_I, 0.0)
            log_p_I = np.append(log_p_I, _KENLM_UNKNOWN if as_kenlm else _ZERO)
        packed, rows = sort_with_order(packed)
        repeated = np.flatnonzero(packed[1:] == packed[:-1]) + 1
        if len(repeated):
            i = repeated[rows[repeated].argmin()]  # the first in the file
            raise BadInput(f'{path}:{lines[rows[i]]}', 'the n-gram must occur only once')
        keys.append(packed)
        log_p.append(_log10_to_nats(log_p_I, zero)[rows])
        log_b.append(_log10_to_nats(log_b_I, zero)[rows])
    words = (RARE, *itertools.islice(ids, 2, None))
    model = BackoffModel(NgramTable(len(words), tuple(keys)), log_p, log_b[:-1])
    return (model, Vocabulary(words, (0,) * len(words))) if as_kenlm else _without_unused_marks(model, words)


class _Block(NamedTuple):
    """The n-grams of one order in a block: their line numbers, word ids, log10 P and log10 back-off weights."""

    lines: np.ndarray
    ids_KxI: np.ndarray
    log_p_I: np.ndarray
    log_b_I: np.ndarray


def _parse(path: pathlib.Path, ids: dict[str, int]) -> Iterator[tuple[int, Callable[[], _Block]]]:
    """Yields the n-gram order of each block of the file, and a function that returns the n-grams in the block.

    Args:
        path: The path of the file.
        ids: The id of each word; updated with the words of the 1-grams.
    """
    sizes: list[int] = []  # the section sizes given in the header
    in_header, order, count, number = False, 0, 0, 1
    parser: BlockParser | None = None  # for all orders except the first
    for first, text, data in read_blocks(path, _BLOCK):
        if parser and (parsed := parser.parse(data, order)) and (order < len(sizes) or not parsed[-1].any()):
            ids_KxI, log_p_I, log_b_I = parsed
            if (log_b_I <= -_ZERO).all() and (log_b_I > -math.inf).all():
                lines_I = first + np.arange(len(log_p_I))
                yield order, functools.partial(_Block, lines_I, ids_KxI, log_p_I, log_b_I)
                count, number = count + len(log_p_I), first + len(log_p_I) - 1
                continue
        lines: list[int] = []
        rows: list[list[str]] = []
        for number, line in enumerate(text.removesuffix('\n').split('\n'), first):
            # Read at most one field more than the longest valid line contains.
            fields = [match[0] for match in itertools.islice(FIELD.finditer(line), _MAX_ORDER + 3)]
            if 0 < order < len(fields) < order + 3:
                lines.append(number)
                rows.append(fields)
                continue
            is_comment = line.startswith('#') and not (in_header or order)
            if not fields or is_comment:
                continue
            if order:
                count += len(rows)
                yield order, functools.partial(_encode, path, order, order == len(sizes), lines, rows, ids)
            is_end = 0 < order == len(sizes) and fields == ['\\end\\']
            if not in_header and not order and fields == ['\\data\\']:
                in_header = True
            elif in_header and (size := _parse_size(fields, len(sizes) + 1)) is not None:
                sizes.append(size)
            elif is_end or ((in_header or order) and order < len(sizes) and fields == [f'\\{order + 1}-grams:']):
                if order and count != sizes[order - 1]:
                    problem = f'the section has {count} {order}-grams, but the header says {sizes[order - 1]}'
                    raise BadInput(f'{path}:{number}', problem)
                if is_end:
                    return
                in_header, order, count, lines, rows = False, order + 1, 0, [], []
                parser = BlockParser(ids) if order == 2 else parser
            else:
                header = f'ngram {len(sizes) + 1}=SIZE or \\1-grams:' if in_header else 'the line \\data\\'
                expected = _IN_SECTION.format(order) if order else header
                raise BadInput(f'{path}:{number}', f'the file is not an ARPA file: expected {expected}')
        if order:
            count += len(rows)
            yield order, functools.partial(_encode, path, order, order == len(sizes), lines, rows, ids)
    raise BadInput(f'{path}:{number}', 'the file is truncated or is not an ARPA file: the line \\end\\ is missing')


def _parse_size(fields: list[str], order: int) -> int | None:
    """Returns the number of n-grams of `order` given by a header line, or None for any other line."""
    match = re.fullmatch(r'ngram ([0-9]{1,3})= ?([0-9]{1,18})', ' '.join(fields))
    return int(match[2]) if match and int(match[1]) == order <= _MAX_ORDER else None


def _encode(
    path: pathlib.Path, order: int, is_longest: bool, lines: list[int], rows: list[list[str]], ids: dict[str, int]
) -> _Block:
    """Encodes the n-grams of a block of lines.

    Args:
        path: The file, for error messages.
        order: The order.
        is_longest: Whether this is the highest order.
        lines: The number of each line.
        rows: The fields of each line.
        ids: The id of each word; updated with the words of the 1-grams.
    """
    columns = [*itertools.zip_longest(*rows, fillvalue='0')]
    columns += [('0',) * len(rows)] * (order + 2 - len(columns))
    log_p_I, log_b_I = _floats(columns[0]), _floats(columns[-1])
    if order == 1:
        ids_KxI = np.array([[ids.setdefault(word, len(ids) - 1) for word in columns[1]]], np.int32)
        if RARE in ids:
            problem = f'contains {RARE}, which is reserved for unknown words; replace it with {UNKNOWN} in the text'
            raise BadInput(path, problem)
    else:
        ids_of_words = map(ids.get, itertools.chain(*columns[1:-1]), itertools.repeat(-1))
        ids_KxI = np.fromiter(ids_of_words, np.int32, order * len(rows)).reshape(order, -1)
    limits = 'must be 0 or absent at the highest order' if is_longest else f'must be finite and at most {-_ZERO:g}'
    is_allowed = log_b_I == 0 if is_longest else (-math.inf < log_b_I) & (log_b_I <= -_ZERO)
    for is_bad, problem in (
        (~(log_p_I <= 0), f'the file is not an ARPA file: expected {_IN_SECTION.format(order)}'),  # positive or NaN
        (~is_allowed, 'the log10 back-off weight {0} ' + limits),
        ((ids_KxI < 0).any(0), 'the n-gram {1!r} contains a word that has no 1-gram'),
    ):
        if is_bad.any():
            row = int(is_bad.argmax())
            words = ' '.join(column[row] for column in columns[1:-1])
            raise BadInput(f'{path}:{lines[row]}', f'{problem.format(columns[-1][row], words)}')
    return _Block(np.array(lines, np.int64), ids_KxI, log_p_I, log_b_I)


def _pack(
    path: pathlib.Path, lines: np.ndarray, ids_KxI: np.ndarray, keys: Sequence[np.ndarray], ids: dict[str, int]
) -> np.ndarray:
    """Returns the key of each n-gram of one order; for keys, see `counts`.

    Args:
        path: The file, for error messages.
        lines: The line number of each n-gram.
        ids_KxI: The word ids of each n-gram.
        keys: The sorted keys of each lower order.
        ids: The id of each word.
    """
    nodes = ids_KxI[0].astype(np.int64)
    if len(ids_KxI) == 1:
        return nodes
    for lower_keys, ids_I in zip(keys[1:], ids_KxI[1:]):
        nodes = find(lower_keys, nodes * len(keys[0]) + ids_I)
    if (nodes < 0).any():
        row = int((nodes < 0).argmax())
        words = (UNKNOWN, *itertools.islice(ids, 2, None))
        ngram = ' '.join(words[i] for i in ids_KxI[:, row])
        raise BadInput(f'{path}:{lines[row]}', f'the prefix of {ngram!r} is not among the {len(ids_KxI) - 1}-grams')
    return nodes * len(keys[0]) + ids_KxI[-1]


def _floats(texts: Sequence[str]) -> np.ndarray:
    """Parses numbers. The first invalid number, and every number after it, becomes infinity."""
    numbers: list[float] = []
    with contextlib.suppress(ValueError):
        numbers.extend(map(parse_number, map(str.encode, texts)))
    return np.pad(numbers, (0, len(texts) - len(numbers)), constant_values=math.inf)


def _without_unused_marks(model: BackoffModel, words: Sequence[str]) -> tuple[BackoffModel, Vocabulary]:
    """Removes `<s>` and `</s>` if they occur only as 1-grams of probability zero and `<s>` has no back-off weight."""
    keys, size = model.table.keys, len(words)
    is_kept_V = np.ones(size, bool)
    for word in (i for i, name in enumerate(words) if name in SENTENCE_MARKS and np.isneginf(model.log_p[0][i])):
        begins = any(ngrams.start < ngrams.stop for ngrams in model.table.beginning_with(word)[1:])
        weighs = words[word] == sentence_marks.BEGIN and any(log_b[word] != 0 for log_b in model.log_b[:1])
        is_kept_V[word] = begins or weighs or any((longer % size == word).any() for longer in keys[1:])
    if not is_kept_V.all():
        # A removed mark gets the id of the word before it. `renumber` merges the two and keeps the values of the word.
        model, words = renumber(model, np.cumsum(is_kept_V) - 1), [*itertools.compress(words, is_kept_V)]
    return model, Vocabulary(tuple(words), (0,) * len(words))


def _nats_to_log10(nats: np.ndarray) -> list[float]:
    """Converts natural to decimal logarithms, with -99 for -inf."""
    return np.where(np.isneginf(nats), _ZERO, nats / _LOG_10).tolist()


def _log10_to_nats(log10: np.ndarray, zero: float) -> np.ndarray:
    """Converts decimal to natural float64 logarithms, with -inf for values no greater than `zero`."""
    return np.where(log10 > zero, log10 * _LOG_10, -np.inf)
