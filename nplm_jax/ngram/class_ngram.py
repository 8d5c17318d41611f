"""Class-based n-gram models (section 4.1; Ney & Kneser, 1993; Martin, Liermann & Ney, 1998).

Dims: G classes, V vocabulary, A words of an inner vocabulary, T words of a span, B contexts.
"""

import dataclasses
import pathlib
import warnings
from typing import Self

import numpy as np
import scipy.sparse
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data.stream import RARE_ID, Span, with_history
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel, check_contexts
from nplm_jax.ngram import kneser_ney
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramCounts, check_ids, count
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import write_atomically

CONTEXTS_PER_BLOCK = 4096  # contexts whose class probabilities are computed at once, which bounds the memory


@dataclasses.dataclass(eq=False, repr=False)
class ClassNgram(LanguageModel):
    """A class-based n-gram model: P(w | h) = P(w | class of w) P(class of w | the n-1 classes before it).

    The class n-gram is a modified Kneser-Ney model over class ids. P(w | class) is the relative frequency in training
    with an absolute discount of D = n1 / (n1 + 2 n2) on the word counts. The freed mass is spread evenly over the words
    that do not occur in training. These words belong to every class, because assigning each of them to a single class
    would decrease their log-probabilities by 5 nats. Their classes in classes_V are used only in contexts.

    Attributes:
        classes_V: The class of each word, int64.
        class_ngram: The n-gram model over classes.
        is_unseen_V: Whether each word belongs to every class because it does not occur in training.
        log_p_V: log P of each word given its class, nats; unused for unseen words.
        unseen_p_G: P of any one unseen word given each class.
    """

    classes_V: np.ndarray
    class_ngram: BackoffModel
    is_unseen_V: np.ndarray
    log_p_V: np.ndarray
    unseen_p_G: np.ndarray

    def __post_init__(self) -> None:
        self.n = self.class_ngram.n
        self.vocabulary_size: int = len(self.classes_V)

    def _describe_size(self) -> str:
        return f'{len(self.classes_V):,} words, {self.class_ngram.table.vocabulary_size:,} classes'

    @classmethod
    def fit(cls, tokens_T: np.ndarray, train: Span, n: int, classes_V: np.ndarray) -> Self:
        """Estimates the model from the training words.

        Args:
            tokens_T: The token ids of the stream, int.
            train: The span of the words to count.
            n: The order.
            classes_V: The class of each word, from `exchange`.

        Raises:
            BadInput: See `counts.count`.
        """
        classes_V = renumber(classes_V)
        num_classes = int(classes_V.max()) + 1
        with warnings.catch_warnings():
            # Classes are few and frequent, so counts of 1 are too rare to estimate a discount, but a fixed discount
            # hardly changes the probabilities.
            warnings.simplefilter('ignore', kneser_ney.DiscountWarning)
            counts = count(_to_classes(tokens_T, classes_V), train, n, num_classes, SharedScratch())
            class_ngram = kneser_ney.fit_modified(counts)
        counts_V = np.bincount(tokens_T[train.start : train.stop], minlength=len(classes_V))
        return cls(classes_V, class_ngram, counts_V == 0, *_word_given_class(counts_V, classes_V, num_classes))

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the float32 log P(w_t | the n-1 words before it) in nats for each t in `span`."""
        classes_L, words_T = self._class_history(tokens_T, span), np.asarray(tokens_T[span.start : span.stop])
        log_p_T = self.class_ngram.score(classes_L, slice(self.class_ngram.n, None)) + self.log_p_V[words_T]
        contexts_TxN = sliding_window_view(classes_L, self.class_ngram.n)
        unseen = np.flatnonzero(self.is_unseen_V[words_T])
        for block in np.split(unseen, range(CONTEXTS_PER_BLOCK, len(unseen), CONTEXTS_PER_BLOCK)):
            log_p_T[block] = self._unseen_log_p(self.class_ngram.next_word(contexts_TxN[block]))
        return log_p_T.astype(np.float32)

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns the float32 log P(w | context) of all words in nats, B x V. Contexts are in reading order."""
        class_log_p_BxG = self.class_ngram.next_word(self.classes_V[check_contexts(contexts_BxN, self.vocabulary_size)])
        log_p_BxV = class_log_p_BxG[:, self.classes_V] + self.log_p_V
        log_p_BxV[:, self.is_unseen_V] = self._unseen_log_p(class_log_p_BxG)[:, None]
        return log_p_BxV.astype(np.float32)

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.matched_lengths`. Returns the lengths of class n-grams."""
        classes_L = self._class_history(tokens_T, span)
        return self.class_ngram.matched_lengths(classes_L, Span(self.class_ngram.n, len(classes_L)))

    def _class_history(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the classes of the n words before a span and of the words in the span."""
        return _to_classes(with_history(tokens_T, span, self.class_ngram.n), self.classes_V)

    def _unseen_log_p(self, class_log_p_BxG: np.ndarray) -> np.ndarray:
        """Returns log P of any one unseen word from log P of all classes."""
        with np.errstate(divide='ignore'):
            return np.log(np.exp(class_log_p_BxG.astype(np.float64)) @ self.unseen_p_G)


def over_vocabulary(inner: BackoffModel, inner_vocabulary: Vocabulary, vocabulary: Vocabulary) -> ClassNgram:
    """Converts a back-off model to another vocabulary, so that the model can be mixed with models over that vocabulary.

    Words in both vocabularies keep their probabilities. The probability of the inner rare-word symbol (`<unk>`) is
    divided equally among the outer rare-word symbol and the words that are only in the outer vocabulary. The outer
    rare-word symbol also receives the probabilities of all words that are only in the inner vocabulary. In contexts,
    words that are only in the outer vocabulary are read as `<unk>`. The inner words thus act as classes of outer words,
    and <rare> can belong to several of these classes.

    Args:
        inner: The model to convert.
        inner_vocabulary: The vocabulary of the model.
        vocabulary: The outer vocabulary, to which the model is converted.
    """
    inner_ids_V = inner_vocabulary.encode(vocabulary.words).astype(np.int64)
    is_shared_V = inner_ids_V == RARE_ID
    share = 1 / is_shared_V.sum()
    rare_p_A = np.ones(len(inner_vocabulary))
    rare_p_A[inner_ids_V] = 0
    rare_p_A[RARE_ID] = share
    is_rare_V = np.arange(len(vocabulary)) == RARE_ID
    return ClassNgram(inner_ids_V, inner, is_rare_V, np.where(is_shared_V, np.log(share), 0.0), rare_p_A)


def _to_classes(words: np.ndarray, classes_V: np.ndarray) -> np.ndarray:
    """Returns the class of each word."""
    return classes_V[check_ids(np.asarray(words), len(classes_V))]


def exchange(tokens_T: np.ndarray, train: Span, num_classes: int, vocabulary_size: int, passes: int = 10) -> np.ndarray:
    """Finds word classes with the exchange algorithm, which moves one word at a time to its best class.

    Each move increases the likelihood of the class bigram model. Initially, each of the most frequent words is a class
    by itself, and all other words share the last class. Each pass visits the training words from the most to the least
    frequent. Words that do not occur in training are assigned to the class with the most words that occur once.

    Args:
        tokens_T: The token ids of the stream, int.
        train: The span of the words to count.
        num_classes: The number of classes, at least 1.
        vocabulary_size: The number of words in the vocabulary, |V|.
        passes: The maximum number of passes; the search stops earlier after a pass without a move.

    Returns:
        The class of each word, int64, V. Classes are numbered in the order of their first word, so the rare-word
        symbol is in class 0.

    Raises:
        BadInput: `num_classes` is below 1, or `counts.count` rejects the words.

    References:
        Martin, Liermann & Ney, 1998: Algorithms for bigram and trigram word clustering.
    """
    require(num_classes >= 1, 'classes', num_classes, 'must be 1 or more')
    bigrams = count(tokens_T, train, 2, vocabulary_size, SharedScratch())
    words_by_count = np.argsort(-bigrams.counts[0], kind='stable')
    classes_V = np.empty(vocabulary_size, np.int64)
    classes_V[words_by_count] = np.minimum(np.arange(vocabulary_size), num_classes - 1)
    search = _ExchangeSearch(bigrams, classes_V, num_classes)
    seen_ids = words_by_count[bigrams.counts[0][words_by_count] > 0]
    for _ in range(passes):
        if not sum([search.move(word) for word in seen_ids]):
            break
    singletons_G = np.bincount(classes_V[bigrams.counts[0] == 1], minlength=num_classes)
    classes_V[bigrams.counts[0] == 0] = singletons_G.argmax()
    return renumber(classes_V)


class _ExchangeSearch:
    """Class bigram counts, and the change in the sum of c log c when one word moves (Martin et al., section 2).

    The counts of class pairs are stored twice, because rows of an array can be read faster than columns. The rows of
    `_pairs_2xGxG[0]` are preceding classes, and the rows of `_pairs_2xGxG[1]` are following classes. Likewise,
    `_words_2[0]` holds the counts of the words after each word, and `_words_2[1]` of the words before each word.
    """

    def __init__(self, bigrams: NgramCounts, classes_V: np.ndarray, num_classes: int) -> None:
        self.classes_V = classes_V
        size, is_counted = len(classes_V), bigrams.counts[1] > 0
        before, after = np.divmod(bigrams.table.keys[1][is_counted], size)
        counts = bigrams.counts[1][is_counted].astype(np.float64)
        bigrams_VxV = scipy.sparse.csr_array((counts, (before, after)), (size, size))
        self._words_2, self._self_V = (bigrams_VxV, bigrams_VxV.T.tocsr()), bigrams_VxV.diagonal()
        pairs = np.bincount(classes_V[before] * num_classes + classes_V[after], counts, num_classes**2)
        pairs_GxG = pairs.reshape(num_classes, num_classes)
        self._pairs_2xGxG = np.stack([pairs_GxG, pairs_GxG.T])
        self._totals_2xG = self._pairs_2xGxG.sum(2)

    def move(self, word: int) -> bool:
        """Moves the word to the class that maximizes the likelihood. Returns whether its class changed."""
        counts_2xG = np.stack([self._count_by_class(words, word) for words in self._words_2])
        self_count, old = self._self_V[word], self.classes_V[word]
        counts_2xG[:, old] -= self_count
        self._add(old, -counts_2xG, -self_count)
        gains_G = self._gains(counts_2xG, self_count)
        best = int(gains_G.argmax())
        # Moves that gain no more than the rounding error could alternate indefinitely.
        new = best if gains_G[best] > gains_G[old] + 1e-6 else old
        self._add(new, counts_2xG, self_count)
        self.classes_V[word] = new
        return bool(new != old)

    def _count_by_class(self, words: scipy.sparse.csr_array, word: int) -> np.ndarray:
        """Returns the float64 sums of row `word` of the bigram counts `words` by class."""
        row = slice(words.indptr[word], words.indptr[word + 1])
        return np.bincount(self.classes_V[words.indices[row]], words.data[row], self._totals_2xG.shape[1])

    def _add(self, target: int, counts_2xG: np.ndarray, self_count: float) -> None:
        """Adds the bigram counts of one word to the counts of the class `target`."""
        for side in (0, 1):
            self._pairs_2xGxG[side, target] += counts_2xG[side]
            self._pairs_2xGxG[1 - side, :, target] += counts_2xG[side]
            self._pairs_2xGxG[side, target, target] += self_count
            self._totals_2xG[side, target] += counts_2xG[side].sum() + self_count

    def _gains(self, counts_2xG: np.ndarray, self_count: float) -> np.ndarray:
        """Returns the increase in log-likelihood, in nats, for each class that the word could join."""
        gains_G = np.zeros(counts_2xG.shape[1])
        for counts_G, pairs_GxG in zip(counts_2xG, self._pairs_2xGxG[::-1]):
            nonzero = counts_G.nonzero()[0]
            gains_G += _xlogx_increase(pairs_GxG[nonzero], counts_G[nonzero, None]).sum(0)
        diagonal_G = self._pairs_2xGxG[0].diagonal()
        gains_G += _xlogx_increase(diagonal_G, counts_2xG.sum(0) + self_count)
        for counts_G, totals_G in zip(counts_2xG, self._totals_2xG):
            gains_G -= _xlogx_increase(diagonal_G, counts_G) + _xlogx_increase(totals_G, counts_G.sum() + self_count)
        return gains_G


def _xlogx_increase(counts: np.ndarray, increments: np.ndarray | float) -> np.ndarray:
    """Returns (c + i) log(c + i) - c log c."""
    return _xlogx(counts + increments) - _xlogx(counts)


def _xlogx(counts: np.ndarray) -> np.ndarray:
    """Returns c log c, or 0 for a count of 0."""
    return counts * np.log(np.maximum(counts, 1))


def _word_given_class(counts_V: np.ndarray, classes_V: np.ndarray, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns log P(w | class of w) of each training word, and P(w | class) of any one unseen word for each class."""
    n1, n2 = (np.count_nonzero(counts_V == j) for j in (1, 2))
    num_unseen = np.count_nonzero(counts_V == 0)
    discount = (n1 / (n1 + 2 * n2) if n1 and n2 else 0.5) if num_unseen else 0.0
    freed_V = np.minimum(counts_V, discount)
    total_G, freed_G = (np.bincount(classes_V, x, num_classes) for x in (counts_V, freed_V))
    # A class without training words gives all its mass to the unseen words.
    freed_share_G = np.divide(freed_G, total_G, out=np.ones(num_classes), where=total_G > 0)
    with np.errstate(divide='ignore'):
        log_p_V = np.log((counts_V - freed_V) / np.maximum(total_G, 1)[classes_V])
    return log_p_V, freed_share_G / max(num_unseen, 1)


def renumber(classes_V: np.ndarray) -> np.ndarray:
    """Renumbers classes 0, 1, ... without gaps, in the order of their first word."""
    _, first, inverse = np.unique(classes_V, return_index=True, return_inverse=True)
    return first.argsort().argsort()[inverse]


def save(classes_V: np.ndarray, vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes UTF-8 lines `word<TAB>class` in the order of the ids."""
    write_atomically(path, ''.join(f'{w}\t{c}\n' for w, c in zip(vocabulary.words, classes_V, strict=True)))
