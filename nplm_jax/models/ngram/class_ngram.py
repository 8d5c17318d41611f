"""Word classes, and n-grams of classes (the paper's section 4.1; Ney & Kneser, 1993; Martin, Liermann & Ney, 1998).

Dims: G classes, V vocabulary, T words of a span, B contexts.
"""

from __future__ import annotations

import pathlib
import warnings

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram import kneser_ney
from nplm_jax.models.ngram.counts import check_ids, count, with_history
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import read_numbers, write_atomically

_BLOCK = 4096  # contexts whose class probabilities are computed at once


class ClassNgram(LanguageModel):
    """P(w | h) = P(w | class of w) P(class of w | the n-1 classes before it); answers the LanguageModel protocol.

    The class n-gram is modified Kneser-Ney over class ids. P(w | class) is the relative frequency in training
    less an absolute discount D = n1 / (n1 + 2 n2) of the word counts. What that frees goes to the words that do
    not occur in training, evenly: such a word belongs to every class (to give it one class would cost 5 nats
    each time it occurs), and the class it has in classes_V is only what it counts as in a context.

    classes_V: the class of each word, as `exchange` or `load` give it.
    Raises: BadInput as `count` does.
    """

    def __init__(self, tokens_T: jax.Array | np.ndarray, train: Span, n: int, classes_V: np.ndarray):
        self.classes_V = renumber(classes_V)
        num_classes = int(self.classes_V.max()) + 1
        with warnings.catch_warnings():
            # Classes are few and frequent: hardly one has a count of 1, and a fixed discount is harmless.
            warnings.simplefilter('ignore', kneser_ney.DiscountWarning)
            self.class_ngram = kneser_ney.fit_modified(self._as_classes(tokens_T), train, n, num_classes)
        counts_V = np.bincount(np.asarray(tokens_T[train.start : train.stop]), minlength=len(classes_V))
        self._unseen_V = counts_V == 0
        self._log_p_V, self._unseen_share_G = _membership(counts_V, self.classes_V, num_classes)

    @property
    def n(self) -> int:
        """See `LanguageModel.n`."""
        return self.class_ngram.n

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """log P(w_t | the n-1 words before it) for each t in `span`. float32, nats."""
        classes_L = self._as_classes(tokens_T[: span.stop])
        words_T = np.asarray(tokens_T[span.start : span.stop])
        scores_T = self.class_ngram.score(classes_L, span) + self._log_p_V[words_T]
        contexts_TxN = sliding_window_view(with_history(classes_L, span, self.class_ngram.n), self.class_ngram.n)
        unseen = np.flatnonzero(self._unseen_V[words_T])
        for block in np.split(unseen, range(_BLOCK, len(unseen), _BLOCK)):
            scores_T[block] = self._unseen(self.class_ngram.next_word(contexts_TxN[block]))
        return scores_T.astype(np.float32)

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """log P(w | context) for all words; contexts in reading order. float32, B x V, nats."""
        of_classes_BxG = self.class_ngram.next_word(self._as_classes(contexts_BxN))
        scores_BxV = of_classes_BxG[:, self.classes_V] + self._log_p_V
        scores_BxV[:, self._unseen_V] = self._unseen(of_classes_BxG)[:, None]
        return scores_BxV.astype(np.float32)

    def _unseen(self, of_classes_BxG: np.ndarray) -> np.ndarray:
        """log P of any one word that does not occur in training, given log P of all classes."""
        with np.errstate(divide='ignore'):
            return np.log(np.exp(of_classes_BxG.astype(np.float64)) @ self._unseen_share_G)

    def _as_classes(self, words: jax.Array | np.ndarray) -> np.ndarray:
        return self.classes_V[check_ids(np.asarray(words), len(self.classes_V))]


def exchange(
    tokens_T: jax.Array | np.ndarray,
    train: Span,
    num_classes: int,
    vocabulary_size: int,
    passes: int = 10,
) -> np.ndarray:
    """Classes that raise the likelihood of the class bigram, by moving one word at a time to its best class.

    It starts with the most frequent words in a class of their own and all others in the last one; each pass
    visits the training words from the most to the least frequent, and it ends early when no word has moved.
    Words that do not occur in training get the class that most words have that occur once.
    Returns: int64, V, numbered in the order of first use, so that the rare-word symbol is in class 0.
    Raises: BadInput for fewer classes than one, or as `count` does.
    """
    require(num_classes >= 1, 'classes', num_classes, 'must be 1 or more')
    bigrams = count(tokens_T, train, 2, vocabulary_size)
    words_by_count = np.argsort(-bigrams.counts[0], kind='stable')
    classes_V = np.empty(vocabulary_size, np.int64)
    classes_V[words_by_count] = np.minimum(np.arange(vocabulary_size), num_classes - 1)
    search = _Exchange(bigrams.table.keys[1], bigrams.counts[1], classes_V, num_classes)
    seen = words_by_count[bigrams.counts[0][words_by_count] > 0]
    for _ in range(passes):
        if not sum([search.move(word) for word in seen]):
            break
    once = np.bincount(classes_V[bigrams.counts[0] == 1], minlength=num_classes)
    classes_V[bigrams.counts[0] == 0] = once.argmax()
    return renumber(classes_V)


class _Exchange:
    """The class bigram counts, and what a move of one word does to sum of c log c (Martin et al., section 2)."""

    def __init__(self, keys: np.ndarray, counts: np.ndarray, classes_V: np.ndarray, num_classes: int):
        self.classes_V = classes_V
        size = len(classes_V)
        before, after = np.divmod(keys[counts > 0], size)
        counts = counts[counts > 0].astype(np.float64)
        self._after = _Neighbours(before, after, counts, size)
        by_after = np.argsort(after, kind='stable')
        self._before = _Neighbours(after[by_after], before[by_after], counts[by_after], size)
        self._self_V = np.zeros(size)
        self._self_V[before[before == after]] = counts[before == after]
        pairs = np.bincount(classes_V[before] * num_classes + classes_V[after], counts, num_classes**2)
        # Rows are the class before; the transpose is kept as well, since whole rows are what is fast to read.
        self._pairs_GxG = pairs.reshape(num_classes, num_classes)
        self._pairs_transposed_GxG = self._pairs_GxG.T.copy()
        self._as_before_G, self._as_after_G = self._pairs_GxG.sum(1), self._pairs_GxG.sum(0)

    def move(self, word: int) -> bool:
        """Puts the word where the likelihood is greatest; True when that is another class."""
        after_G, before_G = (
            x.by_class(word, self.classes_V, len(self._pairs_GxG)) for x in (self._after, self._before)
        )
        itself, old = self._self_V[word], self.classes_V[word]
        after_G[old] -= itself
        before_G[old] -= itself
        self._add(old, -after_G, -before_G, -itself)
        gains_G = self._gains(after_G, before_G, itself)
        best = int(gains_G.argmax())
        # A move that gains no more than rounding could otherwise go back and forth for ever.
        new = best if gains_G[best] > gains_G[old] + 1e-6 else old
        self._add(new, after_G, before_G, itself)
        self.classes_V[word] = new
        return bool(new != old)

    def _add(self, to: int, after_G: np.ndarray, before_G: np.ndarray, itself: float) -> None:
        self._pairs_GxG[to] += after_G
        self._pairs_GxG[:, to] += before_G
        self._pairs_GxG[to, to] += itself
        self._pairs_transposed_GxG[to] = self._pairs_GxG[:, to]
        self._pairs_transposed_GxG[:, to] = self._pairs_GxG[to]
        self._as_before_G[to] += after_G.sum() + itself
        self._as_after_G[to] += before_G.sum() + itself

    def _gains(self, after_G: np.ndarray, before_G: np.ndarray, itself: float) -> np.ndarray:
        """What the log-likelihood gains when the word joins each of the classes, in nats."""
        gains_G = np.zeros(len(after_G))
        for neighbours_G, pairs_GxG in ((after_G, self._pairs_transposed_GxG), (before_G, self._pairs_GxG)):
            some = neighbours_G.nonzero()[0]
            gains_G += _growth(pairs_GxG[some], neighbours_G[some, None]).sum(0)
        inside_G = self._pairs_GxG.diagonal()
        gains_G += _growth(inside_G, after_G + before_G + itself)
        gains_G -= _growth(inside_G, after_G) + _growth(inside_G, before_G)
        gains_G -= _growth(self._as_before_G, after_G.sum() + itself)
        return gains_G - _growth(self._as_after_G, before_G.sum() + itself)


class _Neighbours:
    """The words next to each word on one side, and how often; given in the order of the words."""

    def __init__(self, words: np.ndarray, neighbours: np.ndarray, counts: np.ndarray, vocabulary_size: int):
        self._starts = np.searchsorted(words, np.arange(vocabulary_size + 1)).tolist()
        self._neighbours, self._counts = neighbours, counts

    def by_class(self, word: int, classes_V: np.ndarray, num_classes: int) -> np.ndarray:
        which = slice(self._starts[word], self._starts[word + 1])
        return np.bincount(classes_V[self._neighbours[which]], self._counts[which], num_classes)


def _growth(counts: np.ndarray, more: np.ndarray) -> np.ndarray:
    """(c + more) log(c + more) - c log c."""
    return _c_log_c(counts + more) - _c_log_c(counts)


def _c_log_c(counts: np.ndarray) -> np.ndarray:
    return counts * np.log(np.maximum(counts, 1))


def _membership(counts_V: np.ndarray, classes_V: np.ndarray, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """log P(w | class of w) of the words of training, and of each class P(w | class) for any one unseen word."""
    n1, n2 = (np.count_nonzero(counts_V == j) for j in (1, 2))
    unseen = np.count_nonzero(counts_V == 0)
    discount = (n1 / (n1 + 2 * n2) if n1 and n2 else 0.5) if unseen else 0.0
    taken_V = np.minimum(counts_V, discount)
    total_G, freed_G = (np.bincount(classes_V, x, num_classes) for x in (counts_V, taken_V))
    # A class none of whose words occurs in training is all for the unseen words.
    share_G = np.divide(freed_G, total_G, out=np.ones(num_classes), where=total_G > 0) / max(unseen, 1)
    with np.errstate(divide='ignore'):
        return np.log((counts_V - taken_V) / np.maximum(total_G, 1)[classes_V]), share_G


def renumber(classes_V: np.ndarray) -> np.ndarray:
    """The same classes numbered 0, 1, ... in the order of their first word: no number is left out."""
    _, first, inverse = np.unique(classes_V, return_index=True, return_inverse=True)
    return first.argsort().argsort()[inverse]


def save(classes_V: np.ndarray, vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes UTF-8 lines `word<TAB>class` in the order of the ids."""
    write_atomically(path, ''.join(f'{w}\t{c}\n' for w, c in zip(vocabulary.words, classes_V, strict=True)))


def load(path: pathlib.Path, vocabulary: Vocabulary) -> np.ndarray:
    """Reads what `save` wrote, in any order of lines. Returns: int64, V, renumbered.

    Raises: BadInput naming file and line for a line of another form, a word outside the vocabulary or a word
    that stands twice, and naming a word that is missing.
    """
    classes: dict[str, int] = {}
    for number, word, name in read_numbers(path, 'class number'):
        if word not in vocabulary.ids:
            raise BadInput(f'{path}:{number}: {word!r} is not in the vocabulary')
        classes[word] = name
    missing = [word for word in vocabulary.words if word not in classes]
    if missing:
        raise BadInput(f'{path}: no class for {len(missing)} words of the vocabulary, first {missing[0]!r}')
    return renumber(np.array([classes[word] for word in vocabulary.words]))
