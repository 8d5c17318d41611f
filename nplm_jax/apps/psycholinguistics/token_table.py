"""Tokenizes stimuli, and corrects the probabilities of words that consist of subwords.

The tokens of a lossless tokenizer do not mark the end of a word. The probability of a word therefore needs a
correction, which `correct` computes.

Dims: T tokens in all items, W words, G groups of tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from nplm_jax.apps.psycholinguistics.next_word_statistics import LineStatistics
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.tokenizers import cutting, token_text
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.tokenizers.words import is_punctuation
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput


class TokenTable(NamedTuple):
    """The tokens of all items in an experiment.

    Attributes:
        tokens_T: The tokens.
        ids_T: The token ids, int32.
        words_T: The row of the word to which each token belongs.
        is_head_T: Whether each token belongs to the word without its punctuation. True for all tokens of a word that
            consists only of punctuation.
        counted_T: Whether the surprisal of each token contributes to the surprisal of its word.
        lines: The slice of tokens that belongs to each item.
        joins_before_W: Whether each word follows the previous word without a space. True only in scripts without
            spaces.
        joins_after_W: Whether each word precedes the next word without a space.
    """

    tokens_T: list[str]
    ids_T: np.ndarray
    words_T: np.ndarray
    is_head_T: np.ndarray
    counted_T: np.ndarray
    lines: list[slice]
    joins_before_W: np.ndarray
    joins_after_W: np.ndarray

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        stimuli: Stimuli,
        punctuation: str = 'attached',
        before: str = '',
    ) -> Self:
        """Tokenizes the words of stimuli.

        Args:
            tokenizer: The tokenizer of the models.
            vocabulary: The vocabulary of the models.
            stimuli: The words.
            punctuation: `attached` to count all tokens of a word, or `word` to exclude its punctuation.
            before: The text before each item on the same line. A space separates it from the first word, except in
                scripts without spaces.

        Raises:
            BadInput: A word has no tokens.
        """
        strings = list(stimuli.words)
        joins_before, joins_after = [False] * len(strings), [False] * len(strings)
        if tokenizer.is_lossless:  # here, the tokens of a word include the preceding space
            joins_before, joins_after = unspaced_scripts.find_joined(vocabulary, stimuli.words_by_item, before)
            bare = {row for row, joins in enumerate(joins_before) if joins}
            bare |= set() if before else {rows.start for rows in stimuli.items}
            strings = [word.strip() if row in bare else f' {word.strip()}' for row, word in enumerate(strings)]
        words = list(dict.fromkeys(strings))
        cut = dict(zip(words, cutting.tokenize(tokenizer, words, vocabulary.ids, keep_marks=True)))
        for row, word in enumerate(strings):
            if not cut[word]:
                raise BadInput(stimuli.locate_word(row), f'{word!r} has no tokens')
        heads = {word: _find_heads(tokenizer, tokens) for word, tokens in cut.items()}
        tokens_T = [token for word in strings for token in cut[word]]
        is_head_T = np.array([head for word in strings for head in heads[word]])
        counted_T = is_head_T if punctuation == 'word' else np.ones(len(tokens_T), bool)
        sizes_W = np.array([len(cut[word]) for word in strings])
        stops_W = [0, *np.cumsum(sizes_W).tolist()]
        lines = [slice(stops_W[rows.start], stops_W[rows.stop]) for rows in stimuli.items]
        words_T = np.repeat(np.arange(len(sizes_W)), sizes_W)
        joins = np.array(joins_before), np.array(joins_after)
        return cls(tokens_T, vocabulary.encode(tokens_T), words_T, is_head_T, counted_T, lines, *joins)


def _find_heads(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[bool]:
    """Returns the mask of a word's tokens that are not punctuation. If all of them are punctuation, all are True.

    For a lossless tokenizer, the mask is contiguous: it includes punctuation and whitespace between the other tokens,
    and the whitespace before them.
    """
    texts = [tokenizer.decode([token]).strip() for token in tokens]
    heads = [i for i, text in enumerate(texts) if text and not is_punctuation(text)] or range(len(tokens))
    if not tokenizer.is_lossless:
        return [i in heads for i in range(len(tokens))]
    first = heads[0] if any(texts[: heads[0]]) else 0
    return [first <= i <= heads[-1] for i in range(len(tokens))]


def find_groups(vocabulary: Vocabulary, punctuation: str) -> list[np.ndarray]:
    """Groups token ids by whether they begin with whitespace and by whether they end the previous word.

    Args:
        vocabulary: The vocabulary of a lossless tokenizer.
        punctuation: `attached` if only whitespace ends a word, or `word` if punctuation also ends a word.

    Returns:
        Four arrays of ids: the tokens that begin with whitespace, the tokens that do not, the tokens that end the
        previous word, and the tokens that do not.
    """
    tokenizer = vocabulary.tokenizer
    begins_space_V = np.array([token_text.size(tokenizer, token).begins_space for token in vocabulary.words])
    ends_word_V = begins_space_V
    if punctuation == 'word':
        texts = [tokenizer.decode([token]).strip() for token in vocabulary.words]
        ends_word_V = begins_space_V | [text != '' and is_punctuation(text) for text in texts]
    return list(map(np.flatnonzero, (begins_space_V, ~begins_space_V, ends_word_V, ~ends_word_V)))


def correct(
    lines: Sequence[LineStatistics], first_W: np.ndarray, last_W: np.ndarray, start_W: np.ndarray, table: TokenTable
) -> np.ndarray:
    """Returns the float64 value of log P(word) - log P(tokens) for each word, in nats.

    Subwords include the preceding space. Their probability therefore includes the end of the previous word, but not the
    end of the word itself. Let B be the event that the next token begins with whitespace. Then

        P(word | c) = P(tokens | c) P(B | c, tokens) / P(B | c).

    The first word of an item has no preceding space, so the divisor is 1 - P(B | c). If words are measured without
    their punctuation, punctuation also ends a word, and the divisor for a word that follows punctuation is
    P(neither whitespace nor punctuation | c). With this correction, the probabilities of all words with the same type
    of beginning sum to one. If no space separates two words, there is no correction at their boundary.

    Args:
        lines: The statistics of each item, with the groups of `find_groups`.
        first_W: The index of the first token of each word.
        last_W: The index of the last token of each word.
        start_W: The group index of the first token of each word.
        table: The tokens of all words.

    References:
        Pimentel and Meister, How to compute the probability of a word, EMNLP 2024.
        Oh and Schuler, Leading whitespaces of language models' subword vocabulary pose a confound for calculating word
        probabilities, EMNLP 2024.
    """
    before_GxT = np.concatenate([line.log_groups_GxT1[:, :-1] for line in lines], axis=1)
    after_GxT = np.concatenate([line.log_groups_GxT1[:, 1:] for line in lines], axis=1)
    ends_W = np.where(table.joins_after_W, 0.0, after_GxT[2, last_W])
    return ends_W - np.where(table.joins_before_W, 0.0, before_GxT[start_W, first_W])
