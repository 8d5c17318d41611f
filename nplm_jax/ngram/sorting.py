"""Extracts all n-grams from a word stream by sorting their start positions, one range at a time.

A window consists of n consecutive words and the word before them. Windows are divided into ranges by the first two of
their n words, so the n-grams of a range are adjacent in the sorted arrays of each order. The job consists of tasks that
hold at most one range in memory:

1. `_divide_chunk` divides the windows of a chunk of the stream into ranges;
2. `_count_range` counts the n-grams of all orders in a range, and collects the nodes that other ranges need;
3. `_join_range` finds the suffix node of each n-gram in a range, the node of the n-gram without its first word. This
   node is usually in another range.

Dims: L words of a sequence, S windows, N n-grams of an order.
"""

import functools
import pathlib
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple

import numpy as np

from nplm_jax.data.mapped_arrays import chunks, release
from nplm_jax.ngram.integers import node_dtype, sort_with_order, stable_order
from nplm_jax.ngram.scratch import Scratch, blocks

_SAMPLED = 2**20  # number of bigrams sampled to choose the bounds of the ranges

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


class Problem(NamedTuple):
    """The parameters of a counting job.

    Attributes:
        n: The highest n-gram order.
        vocabulary_size: |V|. In windows, this value is the padding id for positions before the first and after the last
            word.
        early: The first bigram of each of the first n-1 windows, int64. These windows contain the n-grams that are not
            counted: those of order k that start at positions 0..n-k-1 end before the first counted word.
        bounds: The first bigram, w1 * |V| + w2, of each range, int64, sorted.
    """

    n: int
    vocabulary_size: int
    early: np.ndarray
    bounds: np.ndarray

    def ranges(self, bigrams: np.ndarray) -> np.ndarray:
        """Returns the range of each bigram."""
        return np.searchsorted(self.bounds, bigrams, 'right') - 1


class Counted(NamedTuple):
    """The n-grams of a range, order by order from 2 to n.

    Attributes:
        sizes: The number of n-grams of each order.
        keys: `prefix node * |V| + last word`, int64. The prefix node is relative to the first node of the range; at
            order 2 it is the first word.
        counts: The number of times each n-gram ends at a counted word.
        lookups: For each order below n, the nodes of the n-grams that follow a word, relative to the first node of the
            range. They are sorted by the word before the n-gram, so the nodes that another range needs are adjacent.
        offsets: The end of the lookups for each range, order by order.
    """

    sizes: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    lookups: np.ndarray
    offsets: np.ndarray

    def lookups_for(self, number: int, num_ranges: int) -> list[np.ndarray]:
        """Returns a copy of the nodes needed by a range, for each order below n."""
        starts = np.append(0, self.offsets)
        return [np.array(self.lookups[starts[i] : starts[i + 1]]) for i in range(number, len(self.offsets), num_ranges)]


def sort_ngrams(words_L: np.ndarray, n: int, vocabulary_size: int, scratch: Scratch) -> list[Arrays]:
    """Returns the n-grams of orders 2..n.

    Args:
        words_L: Ids in reading order, all in the vocabulary. The first n-1 words are contexts and are not counted.
        n: The highest n-gram order.
        vocabulary_size: The number of words in the vocabulary, |V|.
        scratch: The allocator of the arrays.

    Returns:
        For each order k, three arrays: the sorted keys `node of the first k-1 words * |V| + last word`, int64; the
        number of times each n-gram ends at a counted word, int32 or int64; and its suffix node, the node without the
        first word, int32 or int64.

    Raises:
        BadInput: The disk is full, or all workers are lost.
    """
    if n == 1:
        return []
    first = words_L[:n].astype(np.int64)
    problem = Problem(n, vocabulary_size, first[:-1] * vocabulary_size + first[1:], np.zeros(1, np.int64))
    dtype = node_dtype(len(words_L))
    if len(words_L) <= scratch.block:
        counted = _count(problem, 0, _windows(problem, words_L, 0, len(words_L)))
        suffix_nodes = _find_suffixes(problem, 0, counted, counted.sizes[None], [counted.lookups_for(0, 1)])
        return _assemble(problem, [(counted, suffix_nodes)], dtype, scratch)
    size = max(scratch.block // 2, 1)  # half a block, because several chunks or ranges are processed at once
    problem = problem._replace(bounds=_choose_bounds(words_L, vocabulary_size, -(-len(words_L) // size)))
    identity = {'n': n, 'vocabulary': vocabulary_size, 'block': scratch.block}
    with scratch.open_job(words_L, identity) as job:
        job.write('words.npy', functools.partial(_save_words, words_L))
        words_file, ranges = job.folder / 'words.npy', range(len(problem.bounds))
        spans = [(span.start, span.stop) for span in blocks(len(words_L), size)]
        chunks = job.run('dividing n-grams', functools.partial(_divide_chunk, problem, words_file), spans)
        counted_folders = job.run('counting n-grams', functools.partial(_count_range, problem, chunks), ranges)
        join = functools.partial(_join_range, problem, counted_folders, dtype)
        joined_folders = job.run('joining n-grams', join, ranges)
        joined = (np.load(folder / 'suffix_nodes.npy', allow_pickle=False) for folder in joined_folders)
        return _assemble(problem, zip(map(_load, counted_folders), joined), dtype, scratch)


def _save_words(words_L: np.ndarray, file: IO[bytes]) -> None:
    """Writes words as .npy, chunk by chunk."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(words_L))
    for chunk_L in chunks(words_L):
        file.write(chunk_L.data)


def _choose_bounds(words_L: np.ndarray, vocabulary_size: int, number: int) -> np.ndarray:
    """Returns the first bigrams of at most `number` ranges of about equal size."""
    places = np.arange(0, len(words_L) - 1, max((len(words_L) - 1) // _SAMPLED, 1))
    bigrams = np.sort(words_L[places].astype(np.int64) * vocabulary_size + words_L[places + 1])
    release(words_L)
    return np.unique([0, *bigrams[len(bigrams) * np.arange(1, number) // number]])


# --- tasks ------------------------------------------------------------------------------------------------------------


def _divide_chunk(problem: Problem, words_file: pathlib.Path, span: tuple[int, int], folder: pathlib.Path) -> None:
    """Writes the windows that start in a span of the words, sorted by range. Each range is in reading order."""
    windows = _windows(problem, np.load(words_file, mmap_mode='r', allow_pickle=False), *span)
    ranges_S = problem.ranges(windows[1] * np.int64(problem.vocabulary_size) + windows[2])
    np.save(folder / 'windows.npy', windows[:, stable_order(ranges_S)])
    np.save(folder / 'ends.npy', np.cumsum(np.bincount(ranges_S, minlength=len(problem.bounds))))


def _count_range(problem: Problem, chunks: Sequence[pathlib.Path], number: int, folder: pathlib.Path) -> None:
    """Writes the n-grams of a range."""
    windows = []
    for chunk in chunks:
        ends = np.load(chunk / 'ends.npy', allow_pickle=False)
        start = ends[number - 1] if number else 0
        windows.append(
            np.array(np.load(chunk / 'windows.npy', mmap_mode='r', allow_pickle=False)[:, start : ends[number]])
        )
    for name, array in _count(problem, number, np.concatenate(windows, axis=1))._asdict().items():
        np.save(folder / f'{name}.npy', array)


def _join_range(
    problem: Problem, counted: Sequence[pathlib.Path], dtype: type[np.signedinteger], number: int, folder: pathlib.Path
) -> None:
    """Writes the suffix node of each n-gram of a range."""
    # Ranges are read one at a time, because opening the files of all ranges could exceed the limit on open files.
    sizes = np.array([np.load(range_folder / 'sizes.npy', allow_pickle=False) for range_folder in counted])
    lookups = [_load(range_folder).lookups_for(number, len(counted)) for range_folder in counted]
    suffix_nodes = _find_suffixes(problem, number, _load(counted[number]), sizes, lookups)
    np.save(folder / 'suffix_nodes.npy', suffix_nodes.astype(dtype))


def _load(folder: pathlib.Path) -> Counted:
    return Counted(*(np.load(folder / f'{name}.npy', mmap_mode='r', allow_pickle=False) for name in Counted._fields))


# --- arrays -----------------------------------------------------------------------------------------------------------


def _windows(problem: Problem, words_L: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Returns the windows that start in a span, a view of shape n + 1 x S: the preceding word, then the n words."""
    n, size, none = problem.n, len(words_L), problem.vocabulary_size
    words = np.pad(
        words_L[max(start - 1, 0) : min(stop + n - 1, size)],
        (start == 0, max(stop + n - 1 - size, 0)),
        constant_values=none,
    )
    return np.lib.stride_tricks.sliding_window_view(words, n + 1).T


def _count(problem: Problem, number: int, windows: np.ndarray) -> Counted:
    """Counts the n-grams of a range.

    Args:
        problem: The parameters of the job.
        number: The index of the range.
        windows: The windows of the range in reading order, n + 1 x S; see `_windows`.
    """
    V = problem.vocabulary_size
    early = np.flatnonzero(problem.ranges(problem.early) == number)  # where the first windows of the range start
    # Windows are first sorted by the preceding word. The sorts below are stable, so the windows of equal n-grams remain
    # sorted by that word.
    _, windows_S = sort_with_order(windows[0].astype(np.int64))
    prefixes_S = windows[1, windows_S].astype(np.int64)
    keys, counts, lookups, offsets = [], [], [], []
    for k in range(2, problem.n + 1):
        words_S = windows[k, windows_S]
        if not (fits_S := words_S < V).all():
            windows_S, prefixes_S, words_S = windows_S[fits_S], prefixes_S[fits_S], words_S[fits_S]
        keys_S, order_S = sort_with_order(prefixes_S * V + words_S)
        windows_S = windows_S[order_S]
        is_first_S = _differs(keys_S)
        first, nodes_S = np.flatnonzero(is_first_S), np.cumsum(is_first_S) - 1
        uncounted_S = np.isin(windows_S, np.flatnonzero(early < problem.n - k))
        keys.append(keys_S[first])
        counts.append(np.diff(first, append=len(keys_S)) - np.bincount(nodes_S[uncounted_S], minlength=len(first)))
        if k < problem.n:
            before_S = windows[0, windows_S]
            requested = np.flatnonzero((is_first_S | _differs(before_S)) & (before_S < V))
            before, order = sort_with_order(before_S[requested].astype(np.int64))
            requested = requested[order]
            lookups.append(nodes_S[requested])
            bigrams = before * V + windows[1, windows_S[requested]]
            offsets.append(np.append(np.searchsorted(bigrams, problem.bounds[1:]), len(bigrams)))
        prefixes_S = nodes_S
    sizes = np.array([len(array) for array in keys])
    starts = np.cumsum([0, *map(len, lookups)])[:-1]
    dtype = node_dtype(windows.shape[1])
    return Counted(
        sizes,
        np.concatenate(keys),
        np.concatenate(counts).astype(dtype),
        np.concatenate([np.zeros(0, dtype), *lookups]).astype(dtype),
        np.array([end + start for end, start in zip(offsets, starts)]).reshape(-1),
    )


def _find_suffixes(
    problem: Problem, number: int, counted: Counted, sizes: np.ndarray, lookups: Sequence[Sequence[np.ndarray]]
) -> np.ndarray:
    """Returns the int64 suffix node of each n-gram in a range, order by order.

    Args:
        problem: The parameters of the job.
        number: The index of the range.
        counted: The n-grams of the range.
        sizes: The number of n-grams of each range and order.
        lookups: The nodes that each range provides for this range, for each order below n.
    """
    V = problem.vocabulary_size
    first_nodes = np.cumsum(sizes, axis=0) - sizes  # the first node of each range and order
    tables = _by_order(counted.sizes, counted.keys)
    last_words = tables[0] % V
    suffix_nodes, ranges_N = [last_words], np.zeros(0, np.int64)
    for i, keys in enumerate(tables[1:]):  # of order i + 3; the nodes are of order i + 2
        prefixes, words = np.divmod(keys, V)
        # The suffix of an n-gram begins with its second and third words, which determine the range of the suffix.
        ranges_N = ranges_N[prefixes] if i else problem.ranges(last_words[prefixes] * V + words)
        nodes = np.empty(len(keys), np.int64)
        of_ranges = (of_orders[i] + first for of_orders, first in zip(lookups, first_nodes[:, i]))
        nodes[stable_order(ranges_N)] = np.concatenate(list(of_ranges))
        suffix_nodes.append(nodes)
    return np.concatenate(suffix_nodes)


def _assemble(
    problem: Problem, ranges: Iterable[tuple[Counted, np.ndarray]], dtype: type[np.signedinteger], scratch: Scratch
) -> list[Arrays]:
    """Concatenates the arrays of the ranges and their suffix nodes."""
    num_orders = problem.n - 1
    writers = [[scratch.writer(t) for t in (np.int64, dtype, dtype)] for _ in range(num_orders)]
    first_nodes = np.zeros(num_orders, np.int64)
    for counted, suffix_nodes in ranges:
        arrays = [_by_order(counted.sizes, array) for array in (counted.keys, counted.counts, suffix_nodes)]
        for i, (keys, *others) in enumerate(zip(*arrays)):
            shift = first_nodes[i - 1] * problem.vocabulary_size if i else 0
            for writer, array in zip(writers[i], (keys + shift, *others)):
                writer.append(array)
        first_nodes += counted.sizes
        release(*counted)
    made = [tuple(writer.finish() for writer in of_order) for of_order in writers]
    return [(keys, counts, suffix_nodes) for keys, counts, suffix_nodes in made]


def _by_order(sizes: np.ndarray, array: np.ndarray) -> list[np.ndarray]:
    """Splits an array that covers the n-grams of all orders into one array per order."""
    return np.split(array, np.cumsum(sizes)[:-1])


def _differs(values_S: np.ndarray) -> np.ndarray:
    """Returns whether each value differs from the previous one. The result is True for the first value."""
    return np.append(np.ones(min(len(values_S), 1), bool), values_S[1:] != values_S[:-1])
