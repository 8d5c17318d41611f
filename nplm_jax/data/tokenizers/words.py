"""Word tokenizers for corpora, with the preprocessing of section 4 of the paper, and for users' texts."""

import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import regex

from nplm_jax.config.component import internal, key
from nplm_jax.data.stream import BOUNDARY_TOKENS, SKIPPED
from nplm_jax.data.tokenizers.cutting import paragraphs
from nplm_jax.data.tokenizers.proper_nouns import Counts, count_capitals, find_proper_nouns
from nplm_jax.data.tokenizers.tokenizer import TextChunk, Tokenizer, lower
from nplm_jax.utils.errors import require

NUMBER = '<number>'  # replaces numbers if corpus.numbers
PROPER = '<proper>'  # replaces proper nouns if corpus.proper_nouns
MAX_KEPT = 3  # punctuation marks that may stay on one side of a word, as in `Mr.`

# Words may contain hyphens, apostrophes, points and commas; combining marks (\p{M}) belong to their letters.
# str.split also splits at \x1c to \x1f, which \s does not match.
WORD = r"<[a-z]+>|</s>|<UNK>|[\w\p{M}]+(?:[-'’.,][\w\p{M}]+)*|[^\w\s\x1c-\x1f]"
_WORD = regex.compile(WORD)
# Other Unicode whitespace is part of words. KenLM's `lmplz` splits at fewer characters than its `query`.
KENLM_WORD, LMPLZ_WORD = re.compile(r'[^ \t\n\r\v\f]+'), re.compile(r'[^\0 \t\n\r]+')
_POSSESSIVE = ("'s", "'S", '’s', '’S')
_NUMBER = re.compile(r'[-+$£€]?\.?\d+(?:[-.,:/]\d+)*(?:st|nd|rd|th|s)?%?', re.IGNORECASE)
_HYPHENS = re.compile('([-‐‑])')
_DASHES = re.compile(r'(—|–|--+|…|\.\.\.+)')  # between words, unlike a hyphen
_APOSTROPHES = "'’"
_OPENING = {'"': '``', '—': '--', '–': '--', '…': '...'}  # as in Brown and the Penn Treebank
_CLOSING = {**_OPENING, '"': "''"}
_QUOTES = (
    str.maketrans('‘’“”', '\'\'""'),
    str.maketrans("'", '’'),
    str.maketrans({'“': '``', '”': "''"}),  # as in Brown and the Penn Treebank
)


@dataclasses.dataclass(frozen=True)
class WordTokenizer(Tokenizer):
    """A tokenizer that splits a text at whitespace and, for the kind `words`, also at punctuation.

    The kind `words` keeps 3.14, well-known and <symbol> as one word each.

    A user's text is tokenized in the same way as the corpus and adapted to the vocabulary. If the tokens of the corpus
    were already separated by spaces, punctuation is split off both ends of a word unless the vocabulary contains the
    word with its punctuation, such as `Mr.` for Brown. Words outside the vocabulary are split at dashes.
    Contractions are split if the vocabulary contains both parts, such as `do` and `n't`. Apostrophes and quotation
    marks are rewritten as in the vocabulary. With `corpus.tokens=whitespace`, a user's text is not adapted.

    Attributes:
        lowercase: Whether tokens are in lower case.
        split_possessive: Whether to split the possessive 's off a word, so that dog's becomes dog 's.
        numbers: Whether numeric forms become <number>.
        proper_nouns: Whether capitalized proper nouns become <proper>. In a user's text, capitalized words outside
            the vocabulary count as proper nouns, unless the vocabulary contains their lower-case forms.
        names: The proper nouns of the corpus in lower case.
        split_punctuation: Whether to split punctuation off the words of a user's text.
        match_quotes: Whether to rewrite the quotation marks of a user's text as in the vocabulary.
        split_hyphens: Whether to split unknown words of a user's text at hyphens if the vocabulary contains all parts.
        is_verbatim: Whether to leave a text unchanged, even if it is not NFC, and to split it only where KenLM does.
            The kind `lmplz` splits at the whitespace of KenLM's lmplz, and other kinds split at the whitespace of
            KenLM's query.

    Examples:
        >>> WordTokenizer('words').split('A well-known 3.14, again.')
        ['A', 'well-known', '3.14', ',', 'again', '.']
        >>> WordTokenizer('whitespace').split('A well-known 3.14, again.')
        ['A', 'well-known', '3.14,', 'again.']
        >>> WordTokenizer('words', lowercase=True, split_possessive=True).cut(['The', "dog's"])
        [['the'], ['dog', "'s"]]
    """

    kind: str = internal('whitespace')
    lowercase: bool = key(True, 'convert the text to lower case, as in the paper (section 4)', by_hand=False)
    split_possessive: bool = key(True, "split possessives, such as dog's into dog 's", by_hand=False)
    numbers: bool = key(False, 'replace numbers with <number>, as the paper does for AP News')
    proper_nouns: bool = key(
        False, 'replace proper nouns with <proper>, as the paper does for AP News (data/tokenizers/proper_nouns.py)'
    )
    names: Collection[str] = internal((), repr=False)
    split_punctuation: bool = internal(True)
    match_quotes: bool = internal(True)
    split_hyphens: bool = internal(False)
    is_verbatim: bool = internal(False)

    def normalize(self, text: str) -> str:
        """See `Tokenizer.normalize`."""
        return text if self.is_verbatim else super().normalize(text)

    def split(self, text: str) -> list[str]:
        """See `Tokenizer.split`."""
        if self.is_verbatim:
            return (LMPLZ_WORD if self.kind == 'lmplz' else KENLM_WORD).findall(text)
        return text.split() if self.kind == 'whitespace' else _WORD.findall(text)

    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """See `Tokenizer.cut`."""
        return [self._cut(string, known) for string in strings]

    def _cut(self, string: str, known: Collection[str] | None) -> list[str]:
        if known is None:
            return [self._token(part, lower(part) in self._names) for part in self._parts(string)]
        chunks = [string]
        if self.kind == 'whitespace' and self.split_punctuation:
            chunks = self._split_punctuation(string, known)
        if self.split_hyphens:
            chunks = [part for chunk in chunks for part in self._split_hyphens(chunk, known)]
        return [self._fit(part, known) for chunk in chunks for part in self._parts(chunk)]

    def decode(self, tokens: Sequence[str], clean_up: bool = False) -> str:
        """See `Tokenizer.decode`, and `detokenize` for clean_up."""
        return detokenize(tokens) if clean_up else super().decode(tokens)

    def learn(
        self, texts: Sequence[Callable[[], Iterable[TextChunk]]], parallel_map: Callable[..., Iterator[Any]]
    ) -> Self:
        """If `proper_nouns` is true, finds the proper nouns in all texts together.

        Raises:
            BadInput: No word is capitalized.
        """
        if not self.proper_nouns or self.names:
            return self
        counted = parallel_map(self._count_capitals, (chunk for read in texts for chunk in read()))
        counts = (Counts({(word, place): count for (word, place), count in items}) for items in counted)
        return dataclasses.replace(self, names=find_proper_nouns(counts))

    @functools.cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)

    def _count_capitals(self, chunk: TextChunk) -> list[tuple[tuple[str, str], int]]:
        in_case = (
            [part for word in words for part in self._parts(word) if part not in SKIPPED]
            for words in paragraphs(self, chunk)
        )
        return list(count_capitals(in_case).items())

    def _parts(self, word: str) -> list[str]:
        return split_possessive(word) if self.split_possessive else [word]

    def _token(self, part: str, is_name: bool) -> str:
        """Returns the token of a word. `is_name` states whether the word, if capitalized, is a proper noun."""
        if self.numbers and is_number(part):
            return NUMBER
        if self.proper_nouns and is_name and part[:1].isupper():
            return PROPER
        return lower(part) if self.lowercase else part

    # --- users' texts --------------------------------------------------------------------------------------

    def _fit(self, part: str, known: Collection[str]) -> str:
        is_name = lower(part) in self._names or (part not in known and lower(part) not in known)
        return self._fit_quotes(self._token(part, is_name), known)

    def _fit_quotes(self, token: str, known: Collection[str]) -> str:
        return match_quotes(token, known) if self.match_quotes else token

    def _is_known(self, part: str, known: Collection[str]) -> bool:
        return all(self._fit_quotes(self._token(small, False), known) in known for small in self._parts(part))

    def _split_punctuation(self, chunk: str, known: Collection[str]) -> list[str]:
        """Splits punctuation off the ends of a chunk without whitespace, and splits contractions into known parts."""
        if self._is_known(chunk, known):
            return [chunk]
        marks = ''.join(filter(is_punctuation, chunk))
        first, stop = len(chunk) - len(chunk.lstrip(marks)), len(chunk.rstrip(marks))
        if first == len(chunk):
            return self._split_marks(chunk, _OPENING, known)
        num_opening, num_closing = min(first, MAX_KEPT), min(len(chunk) - stop, MAX_KEPT)
        kept = sorted(itertools.product(range(num_opening + 1), range(num_closing + 1)), key=sum, reverse=True)
        words = ((first - a, stop + b) for a, b in kept)
        first, stop = next((word for word in words if self._is_known(chunk[slice(*word)], known)), (first, stop))
        word = chunk[first:stop]
        middle = [word] if self._is_known(word, known) else self._split_unknown(word, known)
        opening, closing = chunk[:first], chunk[stop:]
        return [*self._split_marks(opening, _OPENING, known), *middle, *self._split_marks(closing, _CLOSING, known)]

    def _split_marks(self, marks: str, spellings: Mapping[str, str], known: Collection[str]) -> list[str]:
        """Splits punctuation marks greedily, from the left, into tokens spelled as in the vocabulary."""
        pieces = []
        while marks:
            sizes = range(min(len(marks), MAX_KEPT), 1, -1)
            size = next((k for k in sizes if self._is_known(marks[:k], known)), 1)
            piece, marks = marks[:size], marks[size:]
            spelling = spellings.get(piece, piece)
            respelled = not self._is_known(piece, known) and self._is_known(spelling, known)
            pieces.append(spelling if respelled else piece)
        return pieces

    def _split_unknown(self, chunk: str, known: Collection[str]) -> list[str]:
        """Splits an unknown contraction into two known parts, and other words outside the vocabulary at dashes."""
        places = [i for i, c in enumerate(chunk) if c in _APOSTROPHES]
        for place in (*(i - 1 for i in places if i > 1 and chunk[i - 1] in 'nN'), *places):
            parts = [chunk[:place], chunk[place:]]
            if all(part and self._is_known(part, known) for part in parts):
                return parts
        parts = [part for part in _DASHES.split(chunk) if part]
        if len(parts) == 1:
            return parts
        return [small for part in parts for small in self._split_punctuation(part, known)]

    def _split_hyphens(self, chunk: str, known: Collection[str]) -> list[str]:
        """Splits an unknown word at its hyphens if all parts are known. Unknown hyphens are then dropped."""
        parts = [part for part in _HYPHENS.split(chunk) if part]
        words = [part for part in parts if not _HYPHENS.fullmatch(part)]
        if len(words) < 2 or self._is_known(chunk, known) or not all(self._is_known(word, known) for word in words):
            return [chunk]
        return [part for part in parts if self._is_known(part, known)]


def reading(tokenizer: Tokenizer, tokens: str = '', hyphens: str = 'keep') -> Tokenizer:
    """Returns the tokenizer for a user's text.

    Args:
        tokenizer: The tokenizer of the corpus.
        tokens: The kind to use: `words`, or `whitespace` for tokenized text. '' means the kind of the corpus.
        hyphens: `split` to split unknown words at hyphens, or `keep`.

    Raises:
        BadInput: The options do not apply to this tokenizer.
    """
    if not isinstance(tokenizer, WordTokenizer):
        problem = f'cannot be used with a model that was trained with corpus.tokens={tokenizer.kind}'
        require(not tokens, 'tokens', tokens, problem)
        require(hyphens == 'keep', 'hyphens', hyphens, problem)
        return tokenizer
    require(tokens in ('', 'words', 'whitespace'), 'tokens', tokens, 'must be words or whitespace')
    changes: dict[str, Any] = {'split_hyphens': tokenizer.split_hyphens or hyphens == 'split'}
    if tokens and not (tokenizer.kind == 'lmplz' and tokens == 'whitespace'):
        changes |= {'kind': tokens, 'split_punctuation': False}
        changes['match_quotes'] = tokenizer.match_quotes or tokens == 'words'
        changes['is_verbatim'] = tokenizer.is_verbatim and tokens == 'whitespace'
    return dataclasses.replace(tokenizer, **changes)


def is_number(word: str) -> bool:
    """Returns whether a word is numeric, such as 7, 1,995.5, -3, $5, 50%, 10-12, 9:30, 1/2, 1990s or 21st.

    B52 and five are not numeric. Deviation: the paper (section 4) does not define numeric forms.
    """
    return _NUMBER.fullmatch(word) is not None


def is_punctuation(token: str) -> bool:
    """Returns whether a token consists only of punctuation marks.

    Examples:
        >>> [token for token in (',', '``', "'s", '<p>', '--', '$') if is_punctuation(token)]
        [',', '``', '--']
    """
    return all(unicodedata.category(c).startswith('P') or c == '`' for c in token)


def split_possessive(word: str) -> list[str]:
    """Splits a possessive 's off its noun."""
    return [word[:-2], word[-2:]] if len(word) > 2 and word.endswith(_POSSESSIVE) else [word]


def match_quotes(word: str, known: Collection[str]) -> str:
    """Rewrites straight or curly apostrophes and quotation marks as in the vocabulary.

    A word is rewritten only if it is outside the vocabulary and its new form is in the vocabulary.
    """
    return next((form for form in (word, *(word.translate(table) for table in _QUOTES)) if form in known), word)


def detokenize(tokens: Sequence[str]) -> str:
    """Joins tokens into ordinary text. Removes the spaces before punctuation and 's and inside quotation marks.

    Boundary tokens become line breaks. Straight quotation marks alternately open and close in each paragraph. Doubled
    ; ? and !, as in Brown, are merged.
    """
    paragraphs: list[list[str]] = [[]]
    for token in tokens:
        if token in BOUNDARY_TOKENS:
            paragraphs.append([])
        else:
            paragraphs[-1].append(token)
    return '\n'.join(_join(paragraph) for paragraph in paragraphs if paragraph)


def _join(tokens: Sequence[str]) -> str:
    from nltk.tokenize.treebank import TreebankWordDetokenizer  # noqa: PLC0415 (a second to import)

    is_open, marked = False, []
    for before, token in zip(['', *tokens], tokens):
        if token == before and token in (';', '?', '!'):
            continue
        if token == '"':
            is_open = not is_open
            token = '``' if is_open else "''"
        marked.append(token)
    return TreebankWordDetokenizer().detokenize(marked)
