"""Implements open-vocabulary models, which combine a closed-vocabulary model with a distribution over spellings.

Words outside the vocabulary have P(w | context) = P(<rare> | context) P(spelling of w | w is outside the vocabulary).
Words in the vocabulary keep their probabilities. After every context, the probabilities of all strings therefore sum to
one.

Dims: T words in a text.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.data.stream import UNKNOWN, Span
from nplm_jax.data.tokenizers.tokenizer import count_characters
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.utils.errors import require


class WordScores(NamedTuple):
    """The scores of the words in a text.

    Attributes:
        log_p_T: log P for each word, float64, nats.
        spelled_T: Whether each word is outside the vocabulary and is therefore scored by its spelling. The symbols with
            which a text replaces unknown words, such as <unk>, are not spelled.
        num_characters: The number of characters in the text; see `count_characters`.
    """

    log_p_T: np.ndarray
    spelled_T: np.ndarray
    num_characters: int


class OpenVocabulary:
    """A language model with a spelling distribution for out-of-vocabulary words.

    As in training, out-of-vocabulary words are read as <rare> in the contexts of later words.

    Attributes:
        model: A model over `vocabulary`.
        vocabulary: The vocabulary of the model and of the spelling distribution.
        spelling: The distribution over the words outside the vocabulary.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, spelling: Spelling) -> None:
        """Combines a model and a spelling distribution. Raises BadInput if their vocabularies differ."""
        same = spelling.vocabulary.words == vocabulary.words
        sizes = f'{len(spelling.vocabulary):,} words'
        require(same, 'spelling.vocabulary', sizes, f"must be the model's vocabulary of {len(vocabulary):,} words")
        self.model = model
        self.vocabulary = vocabulary
        self.spelling = spelling

    def score(self, words_T: Sequence[str], span: Span | None = None) -> WordScores:
        """Scores words in a stream, each given the previous words in the stream.

        Args:
            words_T: The words in the stream, tokenized in the same way as the model's corpus.
            span: The positions of the words to score, or None for all words.
        """
        span = Span(0, len(words_T)) if span is None else span
        ids_T = self.vocabulary.encode(words_T)
        words = words_T[span.start : span.stop]
        log_p_T = self.model.score(ids_T, span) + self.log_spellings(words)
        return WordScores(log_p_T, self.is_spelled(words), count_characters(words))

    def log_spellings(self, words_T: Sequence[str]) -> np.ndarray:
        """Returns the float64 log P(spelling | <rare>) of each out-of-vocabulary word in nats, and 0 for other words.

        Raises:
            BadInput: An out-of-vocabulary word is empty, or contains whitespace or an unpaired surrogate.
        """
        log_p_T = np.zeros(len(words_T))
        spelled_S = np.flatnonzero(self.is_spelled(words_T)).tolist()
        log_p_T[spelled_S] = self.spelling.log_probabilities([words_T[t] for t in spelled_S])
        return log_p_T

    def is_spelled(self, words_T: Sequence[str]) -> np.ndarray:
        """Returns whether each word is spelled; see `WordScores`."""
        return np.array([word not in self.vocabulary.ids and word not in UNKNOWN for word in words_T], bool)


def bits_per_character(log_p: float, num_characters: int) -> float:
    """Returns the bits per character of a text with log-probability `log_p`, in nats. Returns NaN for an empty text."""
    return -log_p / math.log(2) / num_characters if num_characters else math.nan
