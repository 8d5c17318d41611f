"""Word probabilities for lossless tokenizers, whose tokens do not mark where a word ends.

Dims: T tokens of all items, W words, G groups of tokens.
"""

from collections.abc import Sequence

import numpy as np

from nplm_jax.apps.psycholinguistics.next_word_statistics import LineStatistics
from nplm_jax.apps.psycholinguistics.token_table import TokenTable, is_head
from nplm_jax.data.tokenizers import token_text
from nplm_jax.data.vocabulary import Vocabulary


def find_groups(vocabulary: Vocabulary, punctuation: str) -> list[np.ndarray]:
    """Returns the token ids of four groups.

    They are the tokens that begin with whitespace, all others, the tokens that end a word, and all others.

    Args:
        vocabulary: The vocabulary of a lossless tokenizer.
        punctuation: `attached` if only whitespace ends a word, `word` if punctuation does so too.
    """
    tokenizer = vocabulary.tokenizer
    begins_space_V = np.array([token_text.size(tokenizer, token).begins_space for token in vocabulary.words])
    ends_word_V = begins_space_V
    if punctuation == 'word':
        ends_word_V = begins_space_V | [not is_head(tokenizer, token) for token in vocabulary.words]
    return list(map(np.flatnonzero, (begins_space_V, ~begins_space_V, ends_word_V, ~ends_word_V)))


def correct(
    statistics: Sequence[LineStatistics],
    first_W: np.ndarray,
    last_W: np.ndarray,
    start_W: np.ndarray,
    table: TokenTable,
) -> np.ndarray:
    """Returns the corrections to add to log P of the tokens of each word to obtain log P(word), float64, W, nats.

    Subwords include the preceding space. Their probability therefore includes the end of the previous word, but not the
    end of the word itself. Let B be the event that the next token begins with whitespace. Then

        P(word | c) = P(tokens | c) P(B | c, tokens) / P(B | c).

    The first word of an item has no preceding space, and is divided by 1 - P(B | c). If words are measured without
    their punctuation, punctuation ends a word too, and a word that follows punctuation is divided by
    P(neither whitespace nor punctuation | c). The probabilities of all words with the same type of beginning thus sum
    to one. If no space separates two words, there is no correction at their boundary.

    Args:
        statistics: The statistics of each item, with the groups of `find_groups`.
        first_W: The index of the first token of each word.
        last_W: The index of the last token of each word.
        start_W: The index of the group of the first token of each word.
        table: The tokens of all words.

    References:
        Pimentel and Meister, How to compute the probability of a word, EMNLP 2024.
        Oh and Schuler, Leading whitespaces of language models' subword vocabulary pose a confound for calculating word
        probabilities, EMNLP 2024.
    """
    before_GxT = np.concatenate([line.log_groups_GxT1[:, :-1] for line in statistics], axis=1)
    after_GxT = np.concatenate([line.log_groups_GxT1[:, 1:] for line in statistics], axis=1)
    ends_W = np.where(table.joins_after_W, 0.0, after_GxT[2, last_W])
    return ends_W - np.where(table.joins_before_W, 0.0, before_GxT[start_W, first_W])
