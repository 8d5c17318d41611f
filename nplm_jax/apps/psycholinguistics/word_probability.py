"""P(word) from the tokens of a lossless tokenizer, which do not say where a word ends.

Dims: T tokens of all items, W words, G groups of tokens.
"""

from collections.abc import Sequence

import numpy as np

from nplm_jax.apps.psycholinguistics.next_word_statistics import LineStatistics
from nplm_jax.apps.psycholinguistics.token_table import TokenTable, is_head
from nplm_jax.data.tokenizers import token_text
from nplm_jax.data.vocabulary import Vocabulary


def find_groups(vocabulary: Vocabulary, punctuation: str) -> list[np.ndarray]:
    """Returns the ids of tokens: that begin with white space, all others, that end a word, all others.

    Args:
        vocabulary: That of a lossless tokenizer.
        punctuation: `attached` if white space alone ends a word, `word` if a punctuation mark does as well.
    """
    tokenizer = vocabulary.tokenizer
    begins_blank_V = np.array([token_text.size(tokenizer, token).begins_blank for token in vocabulary.words])
    ends_word_V = begins_blank_V
    if punctuation == 'word':
        ends_word_V = begins_blank_V | [not is_head(tokenizer, token) for token in vocabulary.words]
    return list(map(np.flatnonzero, (begins_blank_V, ~begins_blank_V, ends_word_V, ~ends_word_V)))


def correct(
    statistics: Sequence[LineStatistics],
    first_W: np.ndarray,
    last_W: np.ndarray,
    start_W: np.ndarray,
    table: TokenTable,
) -> np.ndarray:
    """Returns what is added to the sum of log P of a word's tokens to get log P(word), float64, W.

    A piece holds the blank before it, so that its probability says that the word before has ended, and no token says
    that this word ends. With B for `the next token begins with white space`,

        P(word | c) = P(tokens | c) P(B | c, tokens) / P(B | c)

    (Pimentel and Meister, 2024, How to compute the probability of a word; Oh and Schuler, 2024, Leading whitespaces of
    language models' subword vocabulary pose a confound for calculating word probabilities). The first word of an item
    has no blank: it is divided by 1 - P(B | c). Where a word is measured without its punctuation, a mark ends it as a
    blank does, and what follows a mark is divided by P(neither a blank nor a mark | c). Thus the probabilities of all
    words that begin alike sum to one. Where the text has no blank between two words, nothing says that one of them
    ends, and neither is corrected there.

    Args:
        statistics: Of each item, with the groups of `find_groups`.
        first_W: The place of the first token of each word.
        last_W: That of its last token.
        start_W: The number of the group that its first token is one of.
        table: The tokens of all words, and which words are joined.
    """
    before_GxT = np.concatenate([line.log_groups_GxT1[:, :-1] for line in statistics], axis=1)
    after_GxT = np.concatenate([line.log_groups_GxT1[:, 1:] for line in statistics], axis=1)
    ends_W = np.where(table.joins_after_W, 0.0, after_GxT[2, last_W])
    return ends_W - np.where(table.joins_before_W, 0.0, before_GxT[start_W, first_W])
