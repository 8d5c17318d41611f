"""Defines readers, which score many lines at once, or single words for decoders with thousands of contexts.

A reader returns the probability of a word after a context. There are two initial contexts: `null`, which contains no
words, and `begin`, the beginning of a sentence. `after` appends a word to a context. Words are predicted from the
`order` - 1 preceding words, or from all preceding words if `order` is None. `step` combines `score` and `after`, and
`score_lines` scores many lines at once. Contexts are immutable. Logarithms are to base 10. A reader whose `uses_jax` is
True must not be used in a forked process, because JAX is multithreaded.

Dims: S contexts, V words, T words in all lines, B lines.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.inference import scoring
from nplm_jax.inference.scoring import LOG_10
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import find

Words = tuple[Any, ...]


class Context:
    """The words that a reader has read so far.

    Attributes:
        words: The ids of the words on which predictions depend, in reading order.
        parent: The context before `word`, or None once the reader has computed `known`.
        word: The id of the last word; used together with `parent`.
        known: The data that the reader has computed from `words`.
    """

    __slots__ = ('known', 'parent', 'word', 'words')

    def __init__(self, words: Words = (), parent: Context | None = None, word: int = 0, known: Any = None) -> None:
        self.words, self.parent, self.word, self.known = words, parent, word, known


class NgramReader:
    """A reader for a back-off model. As in KenLM, contexts are not padded; `LanguageModel.next_word` does pad them.

    As in KenLM's states, the `words` of a context exclude the oldest words if these affect no prediction. Contexts with
    identical predictions therefore compare equal. `known[k - 1]` is the node of the last k words, or -1 if they are not
    in the table.

    The n-grams that share a context are adjacent, so most searches cover few keys. The arrays are accessed through
    memory views, because indexing a memory view returns a Python number faster than indexing a NumPy array.
    """

    uses_jax = False

    def __init__(self, model: BackoffModel, begin: Words = (), unpredicted: Words = ()) -> None:
        """Initializes the reader with a float32 copy of a model's probabilities.

        Args:
            model: The back-off model.
            begin: The ids of the words that precede each sentence.
            unpredicted: The ids of words to which `next_words` assigns probability zero, regardless of the model.
        """
        self.order: int = model.n
        self._begin, self._unpredicted = np.array(begin, np.int64), unpredicted
        self._table, self._size = model.table, model.table.vocabulary_size
        self._log_p = [(np.asarray(x) / LOG_10).astype(np.float32) for x in model.log_p]
        self._log_b = [(np.asarray(x) / LOG_10).astype(np.float32) for x in model.log_b]
        self._log_p_views, self._log_b_views = _views(self._log_p), _views(self._log_b)
        self._firsts = [model.table.first_successors(order) for order in range(2, self.order + 1)]
        self.null = Context(known=())

    @functools.cached_property
    def begin(self) -> Context:
        """The context at the beginning of a sentence."""
        return functools.reduce(self.after, self._begin.tolist(), self.null)

    @functools.cached_property
    def _tables(self) -> list[tuple[Any, Any]]:
        """The first successor of each node and the last word of each n-gram, one pair per order; for single words."""
        last_words = [(keys % self._size).astype(np.int32) for keys in self._table.keys[1 : self.order]]
        return [*zip(_views(self._firsts), _views(last_words))]

    @functools.cached_property
    def _matters(self) -> list[Any]:
        """Whether each node affects any probability as a context, one array per order."""
        return _views([(b != 0) | (np.diff(first) > 0) for b, first in zip(self._log_b, self._firsts)])

    def words(self, context: Context) -> Words:
        """Returns the words of a context."""
        nodes = self._known(context)
        words, node = [], nodes[-1] if nodes else 0
        for keys in reversed(self._table.keys[: len(nodes)]):
            node, word = divmod(int(keys[node]), self._size)
            words.append(word)
        return tuple(reversed(words))

    def _known(self, context: Context) -> Sequence[int]:
        """Returns the nodes of a context, without those of the longest suffixes that affect no probability."""
        nodes, last = context.known, len(context.known)
        while last and (nodes[last - 1] < 0 or not self._matters[last - 1][nodes[last - 1]]):
            last -= 1
        return nodes[:last]

    def after(self, context: Context, word: int) -> Context:
        """Appends a word to a context."""
        return self.step(context, word)[2]

    def score(self, context: Context, word: int) -> tuple[float, int]:
        """Returns log10 P of a word after a context, and the length of the n-gram that predicts it."""
        return self.step(context, word)[:2]

    def step(self, context: Context, word: int) -> tuple[float, int, Context]:
        """Returns log10 P of a word after a context, the length of the n-gram, and the context extended by the word."""
        before = context.known
        nodes, longest, longest_node = [word], 1, word
        for prefix, (firsts, last_words) in zip(before, self._tables):
            node = -1
            if prefix >= 0 and (first := firsts[prefix]) < (stop := firsts[prefix + 1]):
                found = bisect_left(last_words, word, first, stop)
                if found < stop and last_words[found] == word:
                    node = longest_node = found
                    longest = len(nodes) + 1
            nodes.append(node)
        log10_p = self._log_p_views[longest - 1][longest_node]
        for length in range(longest - 1, len(before)):
            if (node := before[length]) >= 0:
                log10_p += self._log_b_views[length][node]
        if len(nodes) > longest or longest == self.order:
            del nodes[min(longest, self.order - 1) :]
        return log10_p, longest, Context((), None, 0, nodes)

    def score_lines(self, ids_T: np.ndarray, stops_B: np.ndarray, begins: bool) -> tuple[np.ndarray, np.ndarray]:
        """Scores many lines by looking up all their words at once.

        Args:
            ids_T: The words in all lines, one line after another.
            stops_B: The index after the last word of each line.
            begins: Whether lines start from `begin` rather than from `null`.

        Returns:
            log10 P of each word, float64, and the length of the n-gram that predicts it.
        """
        starts_B = np.append(0, stops_B[:-1])
        begin = self._begin[: len(self._begin) * begins]
        words_L = np.insert(ids_T.astype(np.int64), np.repeat(starts_B, len(begin)), np.tile(begin, len(stops_B)))
        starts_B += np.arange(len(stops_B)) * len(begin)
        nodes_L, log_p_L, lengths_L = words_L, self._log_p[0][words_L].astype(np.float64), np.ones_like(words_L)
        for order in range(2, self.order + 1):
            contexts_L = np.append(-1, nodes_L[:-1])
            contexts_L[starts_B[starts_B < len(words_L)]] = -1
            rows = np.flatnonzero(contexts_L >= 0)
            log_p_L[rows] += self._log_b[order - 2][contexts_L[rows]]
            firsts = self._firsts[order - 2]
            rows = rows[firsts[contexts_L[rows]] < firsts[contexts_L[rows] + 1]]
            found = find(self._table.keys[order - 1], contexts_L[rows] * self._size + words_L[rows])
            nodes_L = np.full_like(words_L, -1)
            nodes_L[rows] = found
            rows, found = rows[found >= 0], found[found >= 0]
            log_p_L[rows], lengths_L[rows] = self._log_p[order - 1][found], order
        is_scored_L = np.ones(len(words_L), bool)
        for i in range(len(begin)):
            is_scored_L[starts_B + i] = False
        return log_p_L[is_scored_L], lengths_L[is_scored_L]

    def look_up(self, contexts: Sequence[Context]) -> None:
        """Prepares contexts for `step` and `score` in one batch. For n-gram models, this method does nothing."""

    def next_words(self, contexts: Sequence[Context]) -> np.ndarray:
        """Returns the float32 log10 P of all words after each context, S x V."""
        longest = max((len(context.known) for context in contexts), default=0)
        nodes_SxK = np.full((len(contexts), longest), -1)
        for s, context in enumerate(contexts):
            nodes_SxK[s, : len(context.known)] = context.known
        weights_SxK = np.zeros((len(contexts), longest + 1))
        for k in range(longest - 1, -1, -1):
            log_b = np.where(nodes_SxK[:, k] >= 0, self._log_b[k][nodes_SxK[:, k]], 0)
            weights_SxK[:, k] = weights_SxK[:, k + 1] + log_b
        weights_SxK = weights_SxK.astype(np.float32)
        log_p_SxV = self._log_p[0] + weights_SxK[:, :1]
        for order in range(2, longest + 2):
            rows, words, nodes = self._table.successors(order, nodes_SxK[:, order - 2])
            log_p_SxV[rows, words] = self._log_p[order - 1][nodes] + weights_SxK[rows, order - 1]
        log_p_SxV[:, self._unpredicted] = -np.inf
        return log_p_SxV


class PaddedReader(NgramReader):
    """A reader for a run, which pads the context before a sentence with unknown words, as `nplm score` does.

    N-gram lengths do not include the padding. `Context.word` is the number of words read so far, without the padding.
    """

    def __init__(self, model: BackoffModel, begin: Words) -> None:
        """Initializes the reader with a model and the words that follow the padding and precede each sentence."""
        super().__init__(model, (*[RARE_ID] * (model.n - 1), *begin))

    @functools.cached_property
    def begin(self) -> Context:
        """The context at the beginning of a sentence."""
        context = super().begin
        context.word = len(self._begin) - self.order + 1
        return context

    def step(self, context: Context, word: int) -> tuple[float, int, Context]:
        """See `NgramReader.step`."""
        log10_p, length, after = super().step(context, word)
        after.word = context.word + 1
        return log10_p, min(length, after.word), after

    def score_lines(self, ids_T: np.ndarray, stops_B: np.ndarray, begins: bool) -> tuple[np.ndarray, np.ndarray]:
        """See `NgramReader.score_lines`."""
        log10_p_T, lengths_T = super().score_lines(ids_T, stops_B, begins)
        starts_B = np.append(0, stops_B[:-1])
        reach_T = np.arange(1, len(ids_T) + 1) - np.repeat(starts_B, stops_B - starts_B)
        return log10_p_T, np.minimum(lengths_T, reach_T + (len(self._begin) - self.order + 1) * begins)


class NetworkReader:
    """A reader for any model with `prefill`, `advance` and `predict`.

    `Context.known` holds the model's state and log10 P of all next words. The first word scored after a context
    therefore requires a forward pass, but other words after the same context do not. Contexts that are passed to
    `look_up` together share a single forward pass.
    """

    uses_jax = True

    def __init__(self, model: LanguageModel, begin: Words = ()) -> None:
        """Initializes the reader with a model and the words that precede each sentence."""
        self._model, self.order = model, model.n
        self.null, self.begin = Context(), Context(begin)
        self._begin_words = begin

    def words(self, context: Context) -> Words:
        """See `NgramReader.words`."""
        return context.words

    def look_up(self, contexts: Sequence[Context]) -> None:
        """See `NgramReader.look_up`. Computes the `known` attribute of all contexts."""
        for root in (self.null, self.begin):
            if root.known is None and root in contexts:
                self._keep([root], self._model.prefill(np.array([root.words], np.int32)))
        pending = {context: context.parent for context in contexts if context.parent is not None}
        if not pending:
            return
        self.look_up([*pending.values()])
        size = 1 << (len(pending) - 1).bit_length()  # a power of two, which limits the number of compilations
        padded = [*pending, *[next(iter(pending))] * (size - len(pending))]
        before = jax.tree.map(lambda *x: np.concatenate(x), *(pending[context].known[0] for context in padded))
        self._keep([*pending], self._model.advance(before, np.array([context.word for context in padded], np.int32)))

    def _keep(self, contexts: Sequence[Context], state: Any) -> None:
        """Stores the decoding state and the predictions of each context in the context."""
        log_p_SxV = np.asarray(self._model.predict(state), np.float32) / np.float32(LOG_10)
        state = jax.device_get(state)
        for i, context in enumerate(contexts):
            context.known = jax.tree.map(lambda x, i=i: x[i : i + 1].copy(), state), log_p_SxV[i].copy()
            context.parent = None

    def after(self, context: Context, word: int) -> Context:
        """See `NgramReader.after`."""
        words = (*context.words, word)
        return Context(words if self.order is None else words[max(0, len(words) + 1 - self.order) :], context, word)

    def score(self, context: Context, word: int) -> tuple[float, int]:
        """See `NgramReader.score`."""
        self.look_up([context])
        num_words = len(context.words) + 1
        if self.order is None:
            return float(context.known[1][word]), num_words
        lengths = self._model.matched_lengths(np.array([*context.words, word]), Span(0, num_words))
        return float(context.known[1][word]), min(num_words, int(lengths[-1]))

    def step(self, context: Context, word: int) -> tuple[float, int, Context]:
        """See `NgramReader.step`."""
        return *self.score(context, word), self.after(context, word)

    def score_lines(self, ids_T: np.ndarray, stops_B: np.ndarray, begins: bool) -> tuple[np.ndarray, np.ndarray]:
        """See `NgramReader.score_lines`."""
        start = LineStart(self._begin_words if begins else ())
        lines = scoring.score(self._model, np.split(ids_T, stops_B[:-1]), start)
        log10_p_T, lengths_T = zip(*((line.log10_p_T, line.lengths_T) for line in lines))
        return np.concatenate(log10_p_T), np.concatenate(lengths_T)

    def next_words(self, contexts: Sequence[Context]) -> np.ndarray:
        """See `NgramReader.next_words`."""
        self.look_up(contexts)
        return np.stack([context.known[1] for context in contexts])


def _views(arrays: Sequence[np.ndarray]) -> list[Any]:
    """Returns a memory view of each array."""
    return [np.ascontiguousarray(array).data for array in arrays]
