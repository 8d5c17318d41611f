"""Encodes a corpus as token ids: builds the vocabulary and the dataset, and computes the sizes and digests of splits.

Dims: T tokens of a text, K distinct tokens, L tokens of a chunk of the text.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from nplm_jax.config.sections import CorpusSettings
from nplm_jax.data import mapped_arrays, prepared_texts, text_checks
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.dataset import Dataset, TextSize
from nplm_jax.data.stream import BOUNDARY_TOKENS, SPECIAL_TOKENS, Span
from nplm_jax.data.tokenizers import token_text
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, check_tokens
from nplm_jax.data.vocabulary import Vocabulary, from_counts
from nplm_jax.utils.errors import require

IDENTITY_FORMAT = 1  # format number of the bytes that `identity` hashes
MAX_WORDS_IN_MEMORY = 2**25  # longer streams are memory-mapped


def build_vocabulary(corpus: Corpus, settings: CorpusSettings) -> Vocabulary:
    """Builds the vocabulary according to `corpus.count_over`, `corpus.min_count` and `corpus.max_vocabulary`.

    If the tokenizer has a fixed list of tokens, the vocabulary contains the whole list, with counts from the training
    split. The boundary tokens in the text are always included.

    Raises:
        BadInput: The vocabulary has fewer than two words apart from the special tokens.
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
    require(has_words, f'corpus.{key}', getattr(settings, key), 'must leave at least two words in the vocabulary')
    return dataclasses.replace(vocabulary, tokenizer=corpus.tokenizer)


def build_dataset(corpus: Corpus, vocabulary: Vocabulary) -> Dataset:
    """Encodes a corpus as token ids. The ids of a large corpus are memory-mapped from the cache."""
    types, type_ids_T = corpus.stream
    token_ids_K = vocabulary.encode(types)
    is_large = isinstance(type_ids_T, np.memmap) and len(type_ids_T) > MAX_WORDS_IN_MEMORY
    tokens_T = prepared_texts.encode(type_ids_T, token_ids_K) if is_large else token_ids_K[type_ids_T]
    tokens_T.flags.writeable = False  # a write would invalidate the digest
    texts = [type_ids_T[span.start : span.stop] for span in corpus.splits.values()]
    sizes = dict(zip(corpus.splits, measure(corpus.tokenizer, types, texts))) if corpus.is_spelled else {}
    test_sha256 = digest(corpus.tokenizer, types, type_ids_T[corpus.test.start : corpus.test.stop])
    spans = corpus.train, corpus.valid, corpus.test
    return Dataset(*spans, tokens_T, vocabulary, sizes, test_sha256, corpus.has_lines)


def digest(tokenizer: Tokenizer, types: Sequence[str], type_ids_T: np.ndarray) -> str:
    """Returns the SHA-256 of a text without its whitespace, which does not depend on the tokenization.

    Args:
        tokenizer: The tokenizer of the text.
        types: The distinct tokens.
        type_ids_T: The tokens of the text as indices into `types`, int.
    """
    letters_K, total = [token_text.letters(tokenizer, token) for token in types], hashlib.sha256()
    for chunk_L in mapped_arrays.chunks(type_ids_T):
        total.update(b''.join([letters_K[i] for i in chunk_L.tolist()]))
    return total.hexdigest()


def identity(data: Dataset) -> str:
    """Returns the SHA-256 of a dataset's format number, ids, splits and words.

    The hash covers the following text, with the ids as little-endian int32 after the first line::

        nplm text 1
        train 0 12
        valid 12 14
        test 14 16
        6 <rare>
        ...

    Each word is preceded by its length in UTF-8 bytes, so different vocabularies never produce the same bytes.
    """
    total = hashlib.sha256(f'nplm text {IDENTITY_FORMAT}\n'.encode())
    for chunk_L in mapped_arrays.chunks(data.tokens_T):
        total.update(chunk_L.astype('<i4', copy=False).data)
    for name, span in data.splits.items():
        total.update(f'{name} {span.start} {span.stop}\n'.encode())
    for word in data.vocabulary.words:
        total.update(b'%d %s\n' % (len(word.encode()), word.encode()))
    return total.hexdigest()


def measure(tokenizer: Tokenizer, types: Sequence[str], texts: Iterable[np.ndarray]) -> list[TextSize]:
    """Returns the sizes of texts. The first token of each text must begin a word.

    Args:
        tokenizer: The tokenizer of the texts.
        types: The distinct tokens.
        texts: The tokens of each text as indices into `types`, int.
    """
    sizes_K = (token_text.size(tokenizer, token) for token in types)
    characters_K, bytes_K, begins_space_K, ends_space_K, words_K = map(np.array, zip(*sizes_K))
    continues_K = (words_K > 0) & ~begins_space_K  # a token without whitespace before it continues a word
    sizes = []
    for type_ids_T in texts:
        counts_K = mapped_arrays.bincount(type_ids_T, len(types))
        num_words = int(counts_K @ words_K)
        if continues_K.any():
            after_space = True
            for chunk_L in mapped_arrays.chunks(type_ids_T):
                after_space_L = np.append(after_space, ends_space_K[chunk_L])
                num_words -= int(np.count_nonzero(continues_K[chunk_L] & ~after_space_L[:-1]))
                after_space = after_space_L[-1]
        sizes.append(TextSize(len(type_ids_T), num_words, int(counts_K @ characters_K), int(counts_K @ bytes_K)))
    return sizes
