"""Tokenizes corpus chunks and user texts with any tokenizer."""

import collections
from collections.abc import Collection, Iterable

import numpy as np

from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE, SKIPPED, UNKNOWN
from nplm_jax.data.tokenizers.token_text import spells
from nplm_jax.data.tokenizers.tokenizer import BLANK_LINES, TextChunk, Tokenizer
from nplm_jax.data.word_stream import WordStream

_PLACED = {f'\0{mark}': mark for mark in BOUNDARY_TOKENS}  # placeholders, which do not occur in texts


def paragraphs(tokenizer: Tokenizer, chunk: TextChunk) -> list[list[str]]:
    """Splits a chunk into paragraphs, and each paragraph into strings for `Tokenizer.cut`.

    If `<p>` ends each line, each line is a paragraph.
    """
    text = tokenizer.normalize(chunk.text)
    if chunk.ends_lines:
        return list(map(tokenizer.split, text.split('\n')))
    if chunk.keeps_empty:
        *blocks, last = text.split('\n\n')
        return list(map(tokenizer.split, [*blocks, last] if last else blocks))
    return [strings for block in BLANK_LINES.split(text) if (strings := tokenizer.split(block))]


def read_chunk(tokenizer: Tokenizer, chunk: TextChunk) -> tuple[WordStream, dict[str, int], bool, int]:
    """Tokenizes a chunk of a corpus and adds the boundary tokens.

    Special tokens written in the text do not become boundary tokens. Those in SKIPPED are dropped, and those in UNKNOWN
    become RARE. A lossless tokenizer treats special tokens in a text as ordinary text and does not add `<p>`.

    Returns:
        Four values: the stream of tokens; the number of occurrences of each special token in the text; whether the
        tokens reproduce the text except for whitespace; and the number of paragraphs that begin in the chunk, which is
        0 for a lossless tokenizer.
    """
    text_mark, paragraph_mark = _PLACED
    strings = [text_mark] if chunk.begins_text and tokenizer.boundary_tokens else []
    blocks = [] if tokenizer.is_lossless else paragraphs(tokenizer, chunk)
    if tokenizer.is_lossless:
        strings += tokenizer.split(tokenizer.normalize(chunk.text))
    for number, paragraph in enumerate(blocks):
        if tokenizer.boundary_tokens and not chunk.ends_lines and (number or chunk.begins_paragraph):
            strings.append(paragraph_mark)
        strings += paragraph
        if chunk.ends_lines:
            strings.append(paragraph_mark)
    stream = WordStream.from_words(strings)  # each distinct string is cut only once
    written: collections.Counter[str] = collections.Counter()
    counts = np.bincount(stream.type_ids_L, minlength=len(stream.types)).tolist()
    cut = iter(tokenizer.cut([string for string in stream.types if string not in _PLACED]))
    parts = []
    for string, count in zip(stream.types, counts):
        tokens = [_PLACED[string]] if string in _PLACED else next(cut)
        if string not in _PLACED and not tokenizer.is_lossless:
            for token in tokens:
                if token in SKIPPED or token in UNKNOWN:
                    written[token] += count
            tokens = [RARE if token in UNKNOWN else token for token in tokens if token not in SKIPPED]
        parts.append(tokens)
    is_spelled = spells(tokenizer, (pair for pair in zip(stream.types, parts) if pair[0] not in _PLACED))
    return stream.replace_types(parts), dict(written), is_spelled, len(blocks[not chunk.begins_paragraph :])


def separates_paragraphs(tokenizer: Tokenizer) -> bool:
    """Returns whether the tokens of adjacent paragraphs have whitespace between them without boundary tokens.

    Byte-level tokenizers of other models usually add no space before the first word of a paragraph.
    """
    data = b''.join(map(tokenizer.utf8, *tokenizer.cut(['a'])))
    return data != data.strip()


def tokenize(
    tokenizer: Tokenizer, texts: Iterable[str], known: Collection[str] | None = None, keep_marks: bool = False
) -> list[list[str]]:
    """Returns the tokens of each text.

    As in a corpus, special tokens written in a text are dropped if they are in SKIPPED. Tokens in UNKNOWN are kept;
    they are outside every vocabulary.

    Args:
        tokenizer: The tokenizer.
        texts: The texts.
        known: See `Tokenizer.cut`.
        keep_marks: Whether to keep boundary tokens written in a text, for example in a user's context.
    """
    skipped = () if tokenizer.is_lossless else SKIPPED[len(BOUNDARY_TOKENS) :] if keep_marks else SKIPPED
    split = [tokenizer.split(tokenizer.normalize(text)) for text in texts]
    strings = list(dict.fromkeys(string for text in split for string in text))
    cut = dict(zip(strings, tokenizer.cut(strings, known)))
    kept = {string: [token for token in tokens if token not in skipped] for string, tokens in cut.items()}
    return [[token for string in text for token in kept[string]] for text in split]


def drop_last(tokenizer: Tokenizer, text: str) -> str:
    """Returns a text without its last word, or without its last token if the tokenizer is lossless.

    If the last token is part of a character, the whole character is dropped.
    """
    if not tokenizer.is_lossless:
        return ' '.join(text.split()[:-1])
    (tokens,) = tokenize(tokenizer, [text])
    return b''.join(map(tokenizer.utf8, tokens[:-1])).decode(errors='ignore')
