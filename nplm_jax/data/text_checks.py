"""Checks texts for missing words, unknown words and missing whitespace, and detects one sentence per line."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nplm_jax.data import mapped_arrays
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE, SKIPPED, UNKNOWN
from nplm_jax.utils.errors import require

if TYPE_CHECKING:
    from nplm_jax.config.sections import CorpusSettings
    from nplm_jax.data.prepared_texts import PreparedText
    from nplm_jax.data.text_files import TextSource

MAX_OOV = 0.05  # share of unknown words above which comparing perplexities is unreliable
MIN_LINES = 10  # minimum number of lines for detecting that each line is a paragraph

_CONSEQUENCE = (
    'they are scored as one word, so compare the result only with models that have the same vocabulary; check that '
    'the language, case and punctuation match those of the training text'
)
_ADVICE = {  # keyed by the result of `limiting_key`
    'max_vocabulary': 'a larger corpus.max_vocabulary leaves fewer words unknown',
    'min_count': 'a lower corpus.min_count leaves fewer words unknown',
}
_MIN_CHARACTERS = 20  # minimum length of a text in which spaces are counted
_MIN_WHITESPACE = 0.05  # share of the characters; English has 0.17, German 0.14, Chinese nearly none
_MIN_ENDS = 0.8  # share of lines that end like sentences
_WRAPPED = 0.8  # minimum ratio of the median to the longest line length in a wrapped text
_SENTENCE_END = re.compile(r'[.!?…。！？][\s"\'’”»)\]]*$')


def limiting_key(corpus: 'CorpusSettings', vocabulary_size: int) -> str:
    """Returns the name of the `corpus.*` key that limits the size of a vocabulary, or '' if no key does."""
    if corpus.max_vocabulary and vocabulary_size >= corpus.max_vocabulary:
        return 'max_vocabulary'
    return 'min_count' if corpus.min_count > 1 else ''


def describe_oov(
    share: float, words: str = 'words', corpus: 'CorpusSettings | None' = None, vocabulary_size: int = 0
) -> str:
    """Returns a warning with advice if the share of unknown words is above MAX_OOV, otherwise an empty string.

    Args:
        share: The share of words outside the vocabulary.
        words: The name of the words in the warning, such as `validation or test words`.
        corpus: The settings from which the vocabulary was built, for the advice, or None if unknown.
        vocabulary_size: |V|.

    Examples:
        >>> describe_oov(0.05)
        ''
        >>> describe_oov(0.25).partition(': ')[2].partition(': ')[0]
        '25.0% of the words are unknown (<rare>), more than 5%'
    """
    if share <= MAX_OOV:
        return ''
    unknown = f'{share:.1%} of the {words} are unknown ({RARE}), more than {MAX_OOV:.0%}'
    advice = _ADVICE.get(limiting_key(corpus, vocabulary_size), '') if corpus else ''
    return f'warning: {unknown}: {_CONSEQUENCE}{advice and f"; {advice}, and corpus.tokens=pieces leaves none"}'


def describe_written(written: Mapping[str, int]) -> str:
    """Returns a warning about special tokens written in a text, otherwise an empty string.

    Args:
        written: The number of occurrences of each special token; see `cutting.read_chunk`.

    Examples:
        >>> describe_written({'<s>': 3, '</s>': 3, '<unk>': 1})
        'warning: the text has special tokens; skipped: <s> (3 times), </s> (3 times); read as <rare>: <unk> (once)'
    """
    kinds = []
    for tokens, meaning in ((SKIPPED, 'skipped'), (UNKNOWN, f'read as {RARE}')):
        counted = ((token, count) for token, count in written.items() if token in tokens)
        if names := ', '.join(f'{token} ({"once" if count == 1 else f"{count:,} times"})' for token, count in counted):
            kinds.append(f'{meaning}: {names}')
    return f'warning: the text has special tokens; {"; ".join(kinds)}' if kinds else ''


def whitespace_share(texts: Iterable[str]) -> float | None:
    """Returns the fraction of whitespace in a text with almost none, such as Chinese text. Returns None for others."""
    text = ' '.join(' '.join(texts).split())
    share = text.count(' ') / max(len(text), 1)
    return None if len(text) < _MIN_CHARACTERS or share >= _MIN_WHITESPACE else share


def has_words(num_words: int, num_characters: int) -> bool:
    """Returns whether a text has spaces between its words, by the criterion of `whitespace_share`."""
    return num_words > 0 and (num_characters < _MIN_CHARACTERS or num_words >= _MIN_WHITESPACE * num_characters)


def describe_whitespace(texts: Iterable[str]) -> str:
    """Returns a warning if a text has almost no spaces, otherwise an empty string."""
    share = whitespace_share(texts)
    if share is None:
        return ''
    return (
        f'warning: the text has almost no spaces ({share:.1%} of the characters); words are split at spaces and '
        'punctuation, so each phrase becomes a single word; corpus.tokens=pieces and characters need no spaces'
    )


def has_line_paragraphs(texts: Iterable[str]) -> bool:
    """Returns whether each line is clearly a paragraph, as in a text with one sentence per line.

    The text must have no blank lines and more than one word in most lines. In addition, most lines must end like
    sentences, or the line lengths must rule out wrapping at a fixed width.
    """
    lines = [line.strip() for text in texts if text.strip() for line in text.strip().split('\n')]
    if len(lines) < MIN_LINES or not all(lines) or statistics.median(len(line.split()) for line in lines) < 2:
        return False
    if sum(bool(_SENTENCE_END.search(line)) for line in lines) >= _MIN_ENDS * len(lines):
        return True
    lengths = [len(line) for line in lines]
    is_wrapped = statistics.median(lengths) >= _WRAPPED * statistics.quantiles(lengths, n=20)[-1]  # 95th percentile
    return not is_wrapped and not any(line.endswith('-') for line in lines)


def require_words(sources: 'Sequence[TextSource]', prepared: 'PreparedText', settings: 'CorpusSettings') -> None:
    """Raises BadInput unless each of the user's texts has at least two distinct words."""
    types = prepared.stream.types
    is_word_K = np.array([word not in BOUNDARY_TOKENS for word in types], bool)
    stop = 0
    for source, length in zip(sources, prepared.lengths):
        start, stop = stop, stop + length
        if source.key:
            counts_K = mapped_arrays.bincount(prepared.stream.type_ids_L[start:stop], len(types))
            num_types = int((is_word_K & (counts_K > 0)).sum())
            path = getattr(settings, source.key.split()[0].removeprefix('corpus.'))
            found = 'only one distinct word' if num_types else 'no words'
            problem = f'contains {found}; at least two distinct words are required'
            require(num_types > 1, source.key, path, problem)
