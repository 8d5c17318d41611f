"""Builds character corpora from the words outside a vocabulary.

Dims: N context characters.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from nplm_jax.data import vocabulary as vocabularies
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import require

END = '<end>'  # the symbol after the last character of a word
MIN_COUNT = 2  # rarer characters in the training words become the rare-word symbol
BLANKS = frozenset(c for c in map(chr, range(0x3001)) if c.isspace())  # all whitespace; the last character is U+3000
# Code points allowed in a word: all except whitespace and surrogates.
NUM_CHARACTERS = 0x110000 - 0x800 - len(BLANKS)


def is_character(symbol: str) -> bool:
    """Returns whether a symbol is a single character allowed in a word."""
    return len(symbol) == 1 and symbol not in BLANKS and not '\ud800' <= symbol <= '\udfff'


def is_word(word: str) -> bool:
    """Returns whether a string can be spelled, that is, has characters but no whitespace or unpaired surrogates."""
    return bool(word) and all(map(is_character, word))


def check_word(word: str) -> None:
    """Raises BadInput unless a word can be spelled; see `is_word`."""
    require(is_word(word), 'word', word, 'must not be empty or contain whitespace or unpaired surrogates')


def rare_words(corpus: Corpus, vocabulary: Vocabulary) -> dict[str, list[str]]:
    """Returns, for each split, the words outside the vocabulary in text order, with repetitions."""
    types, type_ids_L = corpus.stream
    is_rare_K = np.array([word not in vocabulary.ids for word in types], bool)
    spans = {split: type_ids_L[span.start : span.stop] for split, span in corpus.splits.items()}
    return {split: WordStream(types, ids[is_rare_K[ids]]).words() for split, ids in spans.items()}


def spell_out(words: Sequence[str], num_context: int) -> list[str]:
    """Spells words as one stream of characters.

    `num_context` end symbols follow each word and precede the first word. The context of a character therefore contains
    only end symbols and characters from the same word. The first end symbol after a word makes the others certain.

    Args:
        words: The words.
        num_context: The number of context characters, N.

    Examples:
        >>> spell_out(['ab', 'c'], num_context=2)
        ['<end>', '<end>', 'a', 'b', '<end>', '<end>', 'c', '<end>', '<end>']
    """
    ends = [END] * num_context
    return [*ends, *(symbol for word in words for symbol in (*word, *ends))]


def build_dataset(words: Mapping[str, Sequence[str]], num_context: int) -> Dataset:
    """Builds a corpus of characters from words.

    The vocabulary consists of the characters that occur at least twice in the training words.

    Args:
        words: The words of each split: train, valid and test.
        num_context: The number of context characters of the model, N.

    Raises:
        BadInput: A split has no words, or a word cannot be spelled.
    """
    symbols: list[str] = []
    spans = {}
    for split, split_words in words.items():
        require(len(split_words) > 0, split, [], 'must contain at least one word')
        for word in set(split_words):
            check_word(word)
        start = len(symbols)
        symbols += spell_out(split_words, num_context)
        spans[split] = Span(start, len(symbols))
    characters = vocabularies.build(symbols[spans['train'].start : spans['train'].stop], MIN_COUNT)
    return Dataset(spans['train'], spans['valid'], spans['test'], characters.encode(symbols), characters)
