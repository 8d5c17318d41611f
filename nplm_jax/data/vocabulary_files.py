"""Reads and writes vocabulary files, which contain one line `word<TAB>count` per word, in id order."""

import dataclasses
import pathlib

from nplm_jax.data.stream import RARE
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.untrusted import read_numbers


def save(vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes UTF-8 lines `word<TAB>count` in id order, and writes the tokenizer to the same folder."""
    tokenizer_files.save(vocabulary.tokenizer, vocabulary.ids, path.parent)
    write_atomically(path, ''.join(f'{w}\t{c}\n' for w, c in zip(vocabulary.words, vocabulary.counts)))


def load(path: pathlib.Path) -> Vocabulary:
    """Reads a vocabulary and its tokenizer from the files written by `save`.

    Raises:
        BadInput: The file is malformed; the key names the file and line.
    """
    vocabulary = load_words(path)
    return dataclasses.replace(vocabulary, tokenizer=tokenizer_files.load(vocabulary.ids, path.parent))


def load_words(path: pathlib.Path) -> Vocabulary:
    """Reads a vocabulary file like `load`, but not the tokenizer, so that no plug-in is imported."""
    words, counts = [], []
    for _, word, count in read_numbers(path, 'count'):
        words.append(word)
        counts.append(count)
    if words[:1] != [RARE]:
        raise BadInput(f'{path}:1', f'the first word must be {RARE}')
    return Vocabulary(tuple(words), tuple(counts))
