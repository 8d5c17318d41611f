"""A user's text as the tokens of a trained model: how a word is cut, and which of its tokens are punctuation."""

import dataclasses
import re
import unicodedata
from collections.abc import Collection, Iterable

from nplm_jax.config import CorpusSettings
from nplm_jax.data.punctuation import match_quotes
from nplm_jax.data.tokenization import RAW_TEXTS, paragraphs, split_possessives, tokenize_word

MAX_KEPT = 3  # punctuation marks that may stay on one side of a word, as in `Mr.`

_HYPHENS = re.compile('([-‐‑])')
_DASHES = re.compile(r'(—|–|--+|…|\.\.\.+)')  # between words, unlike a hyphen
_APOSTROPHES = "'’"
_OPENING = {'"': '``', '—': '--', '–': '--', '…': '...'}  # as Brown and the Penn Treebank write them
_CLOSING = {**_OPENING, '"': "''"}


def is_punctuation(token: str) -> bool:
    """Tells whether a token is of punctuation marks alone.

    Examples:
        >>> [token for token in (',', '``', "'s", '<p>', '--', '$') if is_punctuation(token)]
        [',', '``', '--']
    """
    return all(unicodedata.category(c).startswith('P') or c == '`' for c in token)


def tokenize_prompt(text: str, settings: CorpusSettings, known: Collection[str], kind: str = '') -> list[str]:
    """Returns a user's text as the tokens of a trained model, without boundary tokens.

    Args:
        text: The text.
        settings: The `corpus.*` choices of the model's run.
        known: The words of the vocabulary.
        kind: How words are cut, see `WordCutter`; `whitespace` for text that is tokenized already.
    """
    return WordCutter(settings, known, kind).cut_texts([text])[0]


@dataclasses.dataclass(frozen=True)
class WordCutter:
    """Cuts words, which punctuation is attached to, into tokens. Every command reads text with it.

    With kind '' a word is cut as the corpus was. Where the corpus was separated at white space alone, punctuation is
    split off the two ends of a word unless the vocabulary has the word with it, as Brown has `Mr.`; a word outside the
    vocabulary is cut at dashes, and a contraction where the vocabulary has both parts, such as `do` and `n't`.

    Apostrophes and quotation marks become those of the vocabulary. Under corpus.proper_nouns a capitalised word outside
    the vocabulary in both cases becomes <proper>, because a run does not store the proper nouns of its corpus.

    Attributes:
        settings: The `corpus.*` choices of the model's run.
        known: The words of the vocabulary.
        kind: '', or `words` or `whitespace` as in `tokenization.paragraphs`.
        splits_hyphens: Whether a word outside the vocabulary is cut at its hyphens if the vocabulary has all parts.
    """

    settings: CorpusSettings
    known: Collection[str]
    kind: str = ''
    splits_hyphens: bool = False

    def cut(self, word: str) -> list[str]:
        """Returns the tokens of a word; of white space none."""
        own = self.settings.tokens if self.settings.name in RAW_TEXTS else 'whitespace'
        kind = self.kind or own
        chunks = [chunk for chunks in paragraphs(word, kind) for chunk in chunks]
        if not self.kind and kind == 'whitespace':
            chunks = [piece for chunk in chunks for piece in self._split_punctuation(chunk)]
        if self.splits_hyphens:
            chunks = [piece for chunk in chunks for piece in self._split_hyphens(chunk)]
        tokens = [token for chunk in chunks for token in tokenize_word(chunk, self.settings, self._proper_nouns(chunk))]
        return match_quotes(tokens, self.known)

    def cut_texts(self, texts: Iterable[str]) -> list[list[str]]:
        """Returns the tokens of each text: of its words between white space. Each different word is cut once."""
        cut: dict[str, list[str]] = {}
        tokens = []
        for text in texts:
            words = text.split()
            cut |= {word: self.cut(word) for word in words if word not in cut}
            tokens.append([token for word in words for token in cut[word]])
        return tokens

    def _proper_nouns(self, chunk: str) -> set[str]:
        """Returns the words of a chunk that are taken for proper nouns, in lower case."""
        words = split_possessives([chunk], self.settings) if self.settings.proper_nouns else []
        return {w.lower() for w in words if w not in self.known and w.lower() not in self.known}

    def _is_known(self, piece: str) -> bool:
        return all(t in self.known for t in match_quotes(tokenize_word(piece, self.settings), self.known))

    def _split_punctuation(self, chunk: str) -> list[str]:
        """Splits punctuation off the ends of a chunk without blanks, and a contraction into two known parts."""
        first = next((i for i, c in enumerate(chunk) if not is_punctuation(c)), len(chunk))
        if first == len(chunk) or self._is_known(chunk):
            return [chunk] if self._is_known(chunk) else self._split_marks(chunk, _OPENING)
        stop = next(i for i in range(len(chunk), 0, -1) if not is_punctuation(chunk[i - 1]))
        kept = [
            (a, b) for a in range(MAX_KEPT + 1) for b in range(MAX_KEPT + 1) if a <= first and stop + b <= len(chunk)
        ]
        for a, b in sorted(kept, key=lambda ab: -sum(ab)):
            if self._is_known(chunk[first - a : stop + b]):
                first, stop = first - a, stop + b
                middle = [chunk[first:stop]]
                break
        else:
            middle = self._split_unknown(chunk[first:stop])
        return [*self._split_marks(chunk[:first], _OPENING), *middle, *self._split_marks(chunk[stop:], _CLOSING)]

    def _split_marks(self, marks: str, spellings: dict[str, str]) -> list[str]:
        """Splits punctuation marks into the longest tokens of the vocabulary, from the left."""
        pieces = []
        while marks:
            size = next((k for k in range(min(len(marks), MAX_KEPT), 1, -1) if self._is_known(marks[:k])), 1)
            piece, marks = marks[:size], marks[size:]
            other = spellings.get(piece, piece)
            pieces.append(other if not self._is_known(piece) and self._is_known(other) else piece)
        return pieces

    def _split_unknown(self, piece: str) -> list[str]:
        """Splits a word outside the vocabulary: a contraction into two known parts, others at dashes."""
        places = [i for i, c in enumerate(piece) if c in _APOSTROPHES]
        for place in (*(i - 1 for i in places if i > 1 and piece[i - 1] in 'nN'), *places):
            parts = [piece[:place], piece[place:]]
            if all(parts) and all(map(self._is_known, parts)):
                return parts
        parts = [part for part in _DASHES.split(piece) if part]
        if len(parts) == 1:
            return parts
        return [small for part in parts for small in self._split_punctuation(part)]

    def _split_hyphens(self, chunk: str) -> list[str]:
        """Splits an unknown word at its hyphens if all parts are known; a hyphen stays where it is known itself."""
        parts = [part for part in _HYPHENS.split(chunk) if part]
        words = [part for part in parts if not _HYPHENS.fullmatch(part)]
        if len(words) < 2 or self._is_known(chunk) or not all(map(self._is_known, words)):
            return [chunk]
        return [part for part in parts if self._is_known(part)]
