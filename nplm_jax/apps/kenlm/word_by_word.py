"""Reads a model one word at a time, as a decoder does that keeps thousands of contexts and asks for single words.

A context is immutable, and what is known of it is computed when it is first needed, and kept. Logarithms are decimal.
A reader gives the probability of one word after a context. It starts from one of two contexts: `null`, without words,
or `begin`, the beginning of a sentence; `after` appends a word to a context. A word is predicted from the `order` - 1
words before it, or from all words if `order` is None.

Dims: S contexts, V words.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from nplm_jax.inference.scoring import LOG_10
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram.backoff import BackoffModel

Words = tuple[Any, ...]


class Context:
    """Words that were read: `parent` and then `word`, until they are looked up; both are None afterwards.

    Attributes:
        words: The ids of the words on which predictions depend, in reading order.
        known: What a reader knows of them.
    """

    __slots__ = ('known', 'parent', 'word', 'words')

    def __init__(self, words: Words = (), parent: Context | None = None, word: int = 0, known: Any = None) -> None:
        self.words, self.parent, self.word, self.known = words, parent, word, known


class NgramReader:
    """A back-off model. Where no word was read, none is known, as in KenLM; `LanguageModel.next_word` pads instead.

    `words` of a context are as few as in KenLM's states: contexts of which no probability differs are equal. `known`
    holds the node of the last k words by k, -1 for words that are no n-gram, and the log10 of the product of the
    back-off weights of the last k and more words.
    """

    def __init__(self, model: BackoffModel, begin: Words = (), unpredicted: Words = ()) -> None:
        """Copies the probabilities of a model.

        Args:
            model: The model.
            begin: The words before a sentence.
            unpredicted: Words that `next_words` gives probability zero, whatever the model says.
        """
        self.order: int = model.n
        self._unpredicted = unpredicted
        self._table, self._size = model.table, model.table.vocabulary_size
        self._log_p = [(np.asarray(x) / LOG_10).astype(np.float32) for x in model.log_p]
        self._log_b = [(np.asarray(x) / LOG_10).astype(np.float32) for x in model.log_b]
        self._matters = [log_b != 0 for log_b in self._log_b]  # whether a context changes a probability
        for order, matters in enumerate(self._matters, start=2):
            matters[self._table.prefixes(order)] = True
        self.null = Context(known=([0], [0.0, 0.0]))
        self.begin = functools.reduce(self.after, begin, self.null)

    def words(self, context: Context) -> Words:
        """Returns the words of a context."""
        self._look_up(context)
        return context.words

    def _look_up(self, context: Context) -> None:
        """Finds what is known of a context."""
        if (parent := context.parent) is None:
            return
        self._look_up(parent)
        nodes = [0]
        for order, node in enumerate(parent.known[0][: self.order - 1], start=1):
            nodes.append(self._find(order, node, context.word))
        while len(nodes) > 1 and (nodes[-1] < 0 or not self._matters[len(nodes) - 2][nodes[-1]]):
            nodes.pop()
        weights = [0.0] * (len(nodes) + 1)
        for length in range(len(nodes) - 1, 0, -1):
            log_b = float(self._log_b[length - 1][nodes[length]]) if nodes[length] >= 0 else 0.0
            weights[length] = weights[length + 1] + log_b
        context.words = (*parent.words, context.word)[len(parent.words) + 2 - len(nodes) :]
        context.known, context.parent = (nodes, weights), None

    def _find(self, order: int, node: int, word: int) -> int:
        """Returns the node of an n-gram from that of the words before its last one; -1 if it is in no table."""
        if order == 1 or node < 0:
            return word if order == 1 else -1
        keys, key = self._table.keys[order - 1], node * self._size + word
        found = int(keys.searchsorted(key))
        return found if found < len(keys) and keys[found] == key else -1

    def after(self, context: Context, word: int) -> Context:
        """Returns the context after one more word."""
        return Context(parent=context, word=word)

    def score(self, context: Context, word: int) -> tuple[float, int]:
        """Returns log10 P of a word after a context, and the length of the n-gram that predicts it."""
        self._look_up(context)
        nodes, weights = context.known
        order = len(nodes)
        while (node := self._find(order, nodes[order - 1], word)) < 0:
            order -= 1
        return float(self._log_p[order - 1][node]) + weights[order], order

    def next_words(self, contexts: Sequence[Context]) -> np.ndarray:
        """Returns log10 P of all words after each context, float32, S x V."""
        for context in contexts:
            self._look_up(context)
        longest = max((len(context.known[0]) for context in contexts), default=1)
        nodes_SxK = np.full((len(contexts), longest), -1)
        weights_SxK = np.zeros((len(contexts), longest + 1), np.float32)
        for s, context in enumerate(contexts):
            nodes, weights = context.known
            nodes_SxK[s, : len(nodes)], weights_SxK[s, : len(weights)] = nodes, weights
        log_p_SxV = self._log_p[0] + weights_SxK[:, 1:2]
        for order in range(2, longest + 1):
            rows, words, nodes = self._table.successors(order, nodes_SxK[:, order - 1])
            log_p_SxV[rows, words] = self._log_p[order - 1][nodes] + weights_SxK[rows, order]
        log_p_SxV[:, self._unpredicted] = -np.inf
        return log_p_SxV


class NetworkReader:
    """Any model by its `prefill`, `advance` and `predict`. `known` holds its state, and log10 P of all next words.

    So the first word after a context costs a forward pass, and all others nothing; contexts that are looked up
    together share the pass.
    """

    def __init__(self, model: LanguageModel, begin: Words = ()) -> None:
        """Takes a model, and the words before a sentence."""
        self._model, self.order = model, model.n
        self.null, self.begin = Context(), Context(begin)

    def words(self, context: Context) -> Words:
        """See `NgramReader.words`."""
        return context.words

    def _look_up(self, contexts: Sequence[Context]) -> None:
        """Finds what is known of contexts, all at once."""
        for root in (self.null, self.begin):
            if root.known is None and root in contexts:
                self._keep([root], self._model.prefill(np.array([root.words], np.int32)))
        pending = {context: context.parent for context in contexts if context.parent is not None}
        if not pending:
            return
        self._look_up([*pending.values()])
        size = 1 << (len(pending) - 1).bit_length()  # few programs compile
        padded = [*pending, *[next(iter(pending))] * (size - len(pending))]
        before = jax.tree.map(lambda *x: np.concatenate(x), *(pending[context].known[0] for context in padded))
        self._keep([*pending], self._model.advance(before, np.array([context.word for context in padded], np.int32)))

    def _keep(self, contexts: Sequence[Context], state: Any) -> None:
        """Keeps in each context its row of a decoding state and of the prediction, without the rows of the others."""
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
        self._look_up([context])
        return float(context.known[1][word]), min(len(context.words) + 1, self.order or len(context.words) + 1)

    def next_words(self, contexts: Sequence[Context]) -> np.ndarray:
        """See `NgramReader.next_words`."""
        self._look_up(contexts)
        return np.stack([context.known[1] for context in contexts])


class MixtureReader:
    """The sum of the weighted probabilities of several readers. `known` holds a context of each."""

    def __init__(self, readers: Sequence[Reader], weights: Sequence[float], ids_MxV: np.ndarray) -> None:
        """Takes the parts.

        Args:
            readers: The readers.
            weights: The weight of each.
            ids_MxV: The id that each word has in each of them.
        """
        self._readers, self._ids_MxV = readers, ids_MxV
        with np.errstate(divide='ignore'):
            self._log_weights_M = np.log10(weights)
        orders = [reader.order for reader in readers if reader.order is not None]
        self.order: int | None = max(orders) if len(orders) == len(readers) else None
        self.null: Context = Context(known=[reader.null for reader in readers])
        self.begin: Context = Context(known=[reader.begin for reader in readers])

    def words(self, context: Context) -> Words:
        """See `NgramReader.words`: those of each reader."""
        return tuple(reader.words(part) for reader, part in zip(self._readers, context.known))

    def after(self, context: Context, word: int) -> Context:
        """See `NgramReader.after`."""
        ids_M = self._ids_MxV[:, word].tolist()
        return Context(known=[r.after(part, i) for r, part, i in zip(self._readers, context.known, ids_M)])

    def score(self, context: Context, word: int) -> tuple[float, int]:
        """See `NgramReader.score`; the length is the largest."""
        ids_M = self._ids_MxV[:, word].tolist()
        scores = [r.score(part, i) for r, part, i in zip(self._readers, context.known, ids_M)]
        log_p_M, lengths_M = zip(*scores)
        return float(_log10_sum(np.array(log_p_M) + self._log_weights_M)), max(lengths_M)

    def next_words(self, contexts: Sequence[Context]) -> np.ndarray:
        """See `NgramReader.next_words`."""
        rows = [
            reader.next_words([context.known[m] for context in contexts])[:, self._ids_MxV[m]] + self._log_weights_M[m]
            for m, reader in enumerate(self._readers)
        ]
        return _log10_sum(np.stack(rows)).astype(np.float32)


def _log10_sum(log10: np.ndarray) -> np.ndarray:
    """Returns log10 of the sum of the numbers with these decimal logarithms, over the first axis."""
    return np.logaddexp.reduce(log10 * LOG_10, axis=0) / LOG_10


Reader = NgramReader | NetworkReader | MixtureReader
