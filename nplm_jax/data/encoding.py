"""Encodes a corpus as token ids: its vocabulary, its dataset, and the size and digest of its splits.

Dims: T tokens of a text, K different tokens, L tokens of a part of the text.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from nplm_jax.config.sections import CorpusSettings
from nplm_jax.data import mapped_arrays, prepared_texts, text_checks
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.dataset import Dataset, Size
from nplm_jax.data.stream import BOUNDARY_TOKENS, SPECIAL_TOKENS, Span
from nplm_jax.data.tokenizers import token_text
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, check_tokens
from nplm_jax.data.vocabulary import Vocabulary, from_counts
from nplm_jax.utils.errors import require

IDENTITY_FORMAT = 1  # of the bytes of `identity`
MAX_WORDS_IN_MEMORY = 2**25  # longer streams are memory-mapped


def build_vocabulary(corpus: Corpus, settings: CorpusSettings) -> Vocabulary:
    """Builds the vocabulary that `corpus.count_over`, `corpus.min_count` and `corpus.max_vocabulary` describe.

    A tokenizer with a list of tokens of its own gives all of them, counted in the training words.

    The boundary tokens of the stream are in it, however rare they are.

    Raises:
        BadInput: The vocabulary has fewer than two words beside the special tokens.
    """
    tokens = corpus.tokenizer.tokens
    check_tokens(corpus.tokenizer.kind, tokens or ())
    span = Span(0, len(corpus)) if settings.count_over == 'all' and tokens is None else corpus.train
    types, type_ids_L = corpus.stream
    counts = mapped_arrays.bincount(type_ids_L[span.start : span.stop], len(types)).tolist()
    frequencies = {word: count for word, count in zip(types, counts) if count}
    if tokens is None:
        marks = [word for word in types if word in BOUNDARY_TOKENS]
        vocabulary = from_counts(frequencies, settings.min_count, settings.max_vocabulary, marks)
    else:
        vocabulary = from_counts({token: frequencies.get(token, 0) for token in tokens}, min_count=0)
    key = text_checks.limiting_key(settings, len(vocabulary)) or 'train'
    has_words = len({*vocabulary.words} - {*SPECIAL_TOKENS}) > 1
    require(has_words, f'corpus.{key}', getattr(settings, key), 'leaves fewer than two words')
    return dataclasses.replace(vocabulary, tokenizer=corpus.tokenizer)


def build_dataset(corpus: Corpus, vocabulary: Vocabulary) -> Dataset:
    """Returns a corpus as the ids of its words; those of a large one are mapped from a file of the cache."""
    types, type_ids_T = corpus.stream
    token_ids_K = vocabulary.encode(types)
    is_large = isinstance(type_ids_T, np.memmap) and len(type_ids_T) > MAX_WORDS_IN_MEMORY
    tokens_T = prepared_texts.encode(type_ids_T, token_ids_K) if is_large else token_ids_K[type_ids_T]
    tokens_T.flags.writeable = False  # so that a digest of it stays valid
    texts = [type_ids_T[span.start : span.stop] for span in corpus.splits.values()]
    sizes = dict(zip(corpus.splits, measure(corpus.tokenizer, types, texts)))
    test_sha256 = digest(corpus.tokenizer, types, type_ids_T[corpus.test.start : corpus.test.stop])
    spans = corpus.train, corpus.valid, corpus.test
    return Dataset(*spans, tokens_T, vocabulary, sizes, test_sha256, corpus.has_lines)


def digest(tokenizer: Tokenizer, types: Sequence[str], type_ids_T: np.ndarray) -> str:
    """Returns the SHA-256 of a text without its white space: the same however it is cut into tokens.

    Args:
        tokenizer: The tokenizer of the text.
        types: The different tokens.
        type_ids_T: The tokens of the text as numbers of `types`, int.
    """
    letters_K, total = [token_text.letters(tokenizer, token) for token in types], hashlib.sha256()
    for part_L in mapped_arrays.parts(type_ids_T):
        total.update(b''.join([letters_K[i] for i in part_L.tolist()]))
    return total.hexdigest()


def identity(data: Dataset) -> str:
    """Returns the SHA-256 of a dataset: its format number, ids, splits and words.

    The bytes are those of a text file, with the ids as little-endian int32 after its first line::

        nplm text 1
        train 0 12
        valid 12 14
        test 14 16
        6 <rare>
        ...

    A line of a word has its length in bytes of UTF-8 before it, so that no two vocabularies have the same bytes.
    """
    total = hashlib.sha256(f'nplm text {IDENTITY_FORMAT}\n'.encode())
    for part_L in mapped_arrays.parts(data.tokens_T):
        total.update(part_L.astype('<i4', copy=False).data)
    for name, span in data.splits.items():
        total.update(f'{name} {span.start} {span.stop}\n'.encode())
    for word in data.vocabulary.words:
        total.update(b'%d %s\n' % (len(word.encode()), word.encode()))
    return total.hexdigest()


def measure(tokenizer: Tokenizer, types: Sequence[str], texts: Iterable[np.ndarray]) -> list[Size]:
    """Returns the size of each text, the first token of which begins a word.

    Args:
        tokenizer: The tokenizer of the texts.
        types: The different tokens.
        texts: The tokens of each text as numbers of `types`, int.
    """
    sizes_K = (token_text.size(tokenizer, token) for token in types)
    characters_K, bytes_K, begins_blank_K, ends_blank_K, has_text_K = map(np.array, zip(*sizes_K))
    sizes = []
    for type_ids_T in texts:
        counts_K = mapped_arrays.bincount(type_ids_T, len(types))
        num_words = int(counts_K @ (has_text_K & begins_blank_K))
        if not begins_blank_K.all():  # a token without a blank begins a word where the token before it ends in one
            after_blank = True
            for part_L in mapped_arrays.parts(type_ids_T):
                after_blank_L = np.append(after_blank, ends_blank_K[part_L])
                num_words += int(np.count_nonzero((has_text_K & ~begins_blank_K)[part_L] & after_blank_L[:-1]))
                after_blank = after_blank_L[-1]
        sizes.append(Size(len(type_ids_T), num_words, int(counts_K @ characters_K), int(counts_K @ bytes_K)))
    return sizes
