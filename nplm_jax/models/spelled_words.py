"""Derives a distribution over all words outside a vocabulary from a character-level language model.

Dims: W words, T characters in a word, including its end symbol.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.characters import END, NUM_CHARACTERS, check_word, is_character, is_word
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import require


class Spelling:
    """The distribution P(w | w is outside the vocabulary) over all strings w that may be words.

    The character model assigns a string the probability Q(c_1 ... c_k) = P(end | c_1 ... c_k) times the product over t
    of P(c_t | c_1 ... c_{t-1}). The rare symbol of the character model stands for all characters outside `characters`,
    which are assigned equal probabilities. For a string outside the word vocabulary, P is Q divided by the total mass
    that Q assigns to all such strings. P therefore sums to one over these strings.

    Attributes:
        model: A language model over `characters`, trained on a dataset from `data.characters.build_dataset`.
        characters: The vocabulary of the character model.
        vocabulary: The word vocabulary. Words in this vocabulary have probability zero.
        prefix: The character ids that the model reads before the first character of a word.
    """

    def __init__(self, model: LanguageModel, characters: Vocabulary, vocabulary: Vocabulary) -> None:
        """Creates the distribution from a character model, its vocabulary and the vocabulary of known words."""
        allowed = f'must be a character vocabulary that contains {END}'
        require(END in characters.ids, 'characters', characters.words[:3], allowed)
        self.model = model
        self.characters = characters
        self.vocabulary = vocabulary
        self.end_id = characters.ids[END]
        self.prefix = np.full((model.n or 2) - 1, self.end_id, np.int32)

    @functools.cached_property
    def num_other_characters(self) -> int:
        """The number of different characters for which the rare symbol stands."""
        return NUM_CHARACTERS - sum(map(is_character, self.characters.words))

    @functools.cached_property
    def log_outside(self) -> float:
        """The log of the mass that Q assigns to non-empty strings outside the vocabulary."""
        inside = [word for word in self.vocabulary.words[RARE_ID + 1 :] if is_word(word)]
        return math.log1p(-float(np.exp(self._log_q(['', *inside])).sum()))

    def log_probabilities(self, words_W: Sequence[str]) -> np.ndarray:
        """Returns the float64 log P(w | w is outside the vocabulary) of each word in nats, or -inf for known words.

        Raises:
            BadInput: A word is empty, or contains whitespace or an unpaired surrogate.
        """
        types = list(dict.fromkeys(words_W))
        for word in types:
            check_word(word)
        log_p = dict(zip(types, self._log_q(types) - self.log_outside)) if types else {}
        inside = self.vocabulary.words[RARE_ID + 1 :]
        log_p |= dict.fromkeys(log_p.keys() & set(inside), -math.inf)
        return np.array([log_p[word] for word in words_W], np.float64)

    def _log_q(self, words_W: Sequence[str]) -> np.ndarray:
        """Returns the float64 log Q of each string."""
        log_share = -math.log(self.num_other_characters)
        encoded = [np.append(self.characters.encode(list(word)), self.end_id).astype(np.int32) for word in words_W]
        scores = self.model.score_lines([np.concatenate([self.prefix, ids_T]) for ids_T in encoded])
        return np.array(
            [
                log_p_T[len(self.prefix) :].sum(dtype=np.float64) + log_share * np.sum(ids_T == RARE_ID)
                for ids_T, log_p_T in zip(encoded, scores)
            ]
        )
