"""The tokens of stimuli as one stream, with the mask of tokens that contribute to the surprisal of their word.

Dims: T tokens of all items, W words.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.tokenizers.words import is_punctuation
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput


class TokenTable(NamedTuple):
    """The tokens of all items of an experiment.

    Attributes:
        tokens_T: The tokens.
        ids_T: The token ids, int32.
        words_T: The row of the word of each token.
        is_head_T: Whether each token is not punctuation; all tokens of a word that is only punctuation are heads.
        counted_T: Whether the surprisal of each token contributes to the surprisal of its word.
        lines: The slice of tokens of each item.
        joins_before_W: Whether no space precedes a word, in scripts without spaces between words.
        joins_after_W: Whether no space follows a word, in such scripts.
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
            punctuation: `attached` to count all tokens of a word, `word` to exclude its punctuation.
            before: The text before each item on the same line. A space separates it from the first word, except in
                scripts without spaces.

        Raises:
            BadInput: A word has no tokens.
        """
        strings = list(stimuli.words)
        joins_before, joins_after = [False] * len(strings), [False] * len(strings)
        if tokenizer.is_lossless:  # the tokens of a word include the space before it
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


def is_head(tokenizer: Tokenizer, token: str) -> bool:
    """Returns whether a token is not just punctuation, apart from whitespace around it."""
    text = tokenizer.decode([token]).strip()
    return not text or not is_punctuation(text)


def _find_heads(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[bool]:
    """Returns the mask of the tokens of a word that are not punctuation; all True if the word is only punctuation.

    For a lossless tokenizer, the mask is contiguous: it includes punctuation and whitespace between the other tokens,
    and the whitespace before them.
    """
    texts = [tokenizer.decode([token]).strip() for token in tokens]
    heads = [i for i, text in enumerate(texts) if text and not is_punctuation(text)] or range(len(tokens))
    if not tokenizer.is_lossless:
        return [i in heads for i in range(len(tokens))]
    first = heads[0] if any(texts[: heads[0]]) else 0
    return [first <= i <= heads[-1] for i in range(len(tokens))]
