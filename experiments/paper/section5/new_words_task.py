"""The words that the study of new words leaves out of a corpus, and their positions.

Dims: W left-out words, K occurrences shown, B later occurrences.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.induction import CONTEXT_WORDS, Occurrence

SEED = 1  # for the choice of the words and for the bootstrap
NUM_WORDS = 500
COUNTS = 20, 60  # total occurrences of a left-out word
MIN_TRAIN, MIN_LATER = 10, 3  # minimum number of occurrences in the training split, and after it
MOST_SHOWN = 10
NUM_AFTER = 4  # number of words after an occurrence that are used as evidence and are later scored


@dataclasses.dataclass(frozen=True)
class Task:
    """A corpus with and without some words, and the positions of these words.

    Attributes:
        full: The corpus with all words. As in `left_out`, the counts in the vocabulary are from the training split.
        left_out: The corpus in which the words are <rare>.
        ids_W: The ids of the words in `full`.
        shown_WxK: The positions of the first K occurrences of each word in the training split.
        later_words_B: The index of the word at each occurrence after the training split.
        later_positions_B: The positions of these occurrences.
    """

    full: Dataset
    left_out: Dataset
    ids_W: np.ndarray
    shown_WxK: np.ndarray
    later_words_B: np.ndarray
    later_positions_B: np.ndarray

    @property
    def words(self) -> list[str]:
        """The words."""
        return self.full.vocabulary.decode(self.ids_W)

    @property
    def counts_W(self) -> np.ndarray:
        """The number of occurrences of each word in the training split."""
        return np.asarray(self.full.vocabulary.counts)[self.ids_W]

    def select(self, numbers: slice) -> Task:
        """Returns the task for some of the words. The other words remain left out."""
        first, stop, _ = numbers.indices(len(self.ids_W))
        keep_B = (self.later_words_B >= first) & (self.later_words_B < stop)
        return dataclasses.replace(
            self,
            ids_W=self.ids_W[numbers],
            shown_WxK=self.shown_WxK[numbers],
            later_words_B=self.later_words_B[keep_B] - first,
            later_positions_B=self.later_positions_B[keep_B],
        )

    def seen(self, num_shown: int) -> list[list[Occurrence]]:
        """Returns the first occurrences of each word."""
        tokens_T = self.left_out.tokens_T
        return [
            [Occurrence(tokens_T[max(0, p - CONTEXT_WORDS) : p], tokens_T[p + 1 : p + 1 + NUM_AFTER]) for p in row]
            for row in self.shown_WxK[:, :num_shown]
        ]

    def grown_tokens(self) -> np.ndarray:
        """Returns the stream in which the words have the ids that follow the last id in `left_out`."""
        grown = np.zeros(len(self.full.vocabulary), np.int32)
        grown[self.ids_W] = len(self.left_out.vocabulary) + np.arange(len(self.ids_W))
        return np.where(grown[self.full.tokens_T] > 0, grown[self.full.tokens_T], self.left_out.tokens_T)


def make_task(data: Dataset) -> Task:
    """Chooses the words and leaves them out of the corpus."""
    tokens_T, V = data.tokens_T, len(data.vocabulary)
    train_V = np.bincount(data.train_words, minlength=V)
    all_V = np.bincount(tokens_T, minlength=V)
    ok_V = (all_V >= COUNTS[0]) & (all_V <= COUNTS[1]) & (train_V >= MIN_TRAIN) & (all_V - train_V >= MIN_LATER)
    ok_V[RARE_ID] = False
    ids_W = np.random.default_rng(SEED).permutation(np.flatnonzero(ok_V))[:NUM_WORDS]
    kept_V = np.ones(V, bool)
    kept_V[ids_W] = False
    new_ids_V = np.where(kept_V, np.cumsum(kept_V) - 1, RARE_ID).astype(np.int32)
    counts_V = np.where(kept_V, train_V, 0)
    counts_V[RARE_ID] += train_V[ids_W].sum()
    words, kept = data.vocabulary.words, np.flatnonzero(kept_V)
    vocabulary = Vocabulary(tuple(words[i] for i in kept), tuple(counts_V[kept].tolist()))
    occurrences = [np.flatnonzero(tokens_T == i) for i in ids_W]
    later = [positions[positions >= data.train.stop] for positions in occurrences]
    return Task(
        full=dataclasses.replace(data, vocabulary=Vocabulary(words, tuple(train_V.tolist()))),
        left_out=dataclasses.replace(data, tokens_T=new_ids_V[tokens_T], vocabulary=vocabulary),
        ids_W=ids_W,
        shown_WxK=np.stack([positions[:MOST_SHOWN] for positions in occurrences]),
        later_words_B=np.repeat(np.arange(len(ids_W)), [len(positions) for positions in later]),
        later_positions_B=np.concatenate(later),
    )
