"""Tests words outside the vocabulary that are generated character by character."""

import numpy as np

from nplm_jax.data.characters import END
from nplm_jax.data.stream import RARE
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.drawn_spellings import decode_and_spell, spell
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.spelled_words import Spelling

CHARACTERS = Vocabulary((RARE, END, 'a', 'b'), (1, 4, 3, 2))
WORDS = Vocabulary((RARE, 'a', 'the'), (2, 4, 2))


class Chain(LanguageModel):
    """Generates an a at the start of a word, a b after an a, and the end of the word after a b."""

    n = 2

    def score_span(self, tokens_T, span):
        raise NotImplementedError

    def next_word(self, contexts_BxN):
        return np.where(np.arange(4) == np.array([1, 2, 3, 1])[contexts_BxN[:, -1:]], 0.0, -1e9).astype(np.float32)


def test_a_spelling_ends_before_its_end_symbol():
    spelling = Spelling(Chain(), CHARACTERS, WORDS)
    assert spell(spelling, [0, 5, 0]) == ['ab'] * 3
    assert decode_and_spell(spelling, np.array([[2, 0], [0, 1]])) == [['the', 'ab'], ['ab', 'a']]
