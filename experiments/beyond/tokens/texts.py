"""The texts of this study, Brown and WikiText-2, as UTF-8 files. There is one file per split, for all systems."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from ml_collections import ConfigDict

from configs import brown, wikitext2
from nplm_jax.config import settings as config_lib
from nplm_jax.data import corpora
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE
from nplm_jax.data.tokenizers.tokenizer import normalize
from nplm_jax.data.wikitext2 import UNKNOWN
from nplm_jax.runs import experiment
from nplm_jax.utils.io import write_atomically

SPLITS = ('train', 'valid', 'test')


def _wikitext2() -> ConfigDict:
    return config_lib.override(wikitext2.get_config('one_minute'), wikitext2.BY_ARTICLES)


_CONFIGS = {'brown': lambda: brown.get_config('one_minute'), 'wikitext2': _wikitext2}
CORPORA = tuple(_CONFIGS)


class Size(NamedTuple):
    """The size of a file. Words are separated by whitespace."""

    words: int
    bytes: int


def write(corpus: str, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes the splits of a corpus as its config defines them, and returns the files. Existing files are kept.

    Args:
        corpus: One of CORPORA.
        folder: The folder of the files.
    """
    files = {split: folder / corpus / f'{split}.txt' for split in SPLITS}
    if not all(file.exists() for file in files.values()):
        read = corpora.load(experiment.load_settings(_CONFIGS[corpus]()).corpus)
        words = read.words
        (folder / corpus).mkdir(parents=True, exist_ok=True)
        for split, span in read.splits.items():
            write_atomically(files[split], to_text(words[span.start : span.stop]))
    return files


def to_text(words: Iterable[str]) -> str:
    r"""Joins words with spaces and paragraphs with blank lines. Writes unknown words in WikiText-2 as <unk>.

    Examples:
        >>> to_text(['<text>', '<p>', 'a', 'dog', '<p>', '<rare>', '.'])
        'a dog\n\n<unk> .\n'
    """
    paragraphs: list[list[str]] = [[]]
    for word in words:
        if word in BOUNDARY_TOKENS:
            paragraphs.append([])
        else:
            paragraphs[-1].append(UNKNOWN if word == RARE else word)
    return normalize('\n\n'.join(' '.join(paragraph) for paragraph in paragraphs if paragraph) + '\n')


def size(file: pathlib.Path) -> Size:
    """Returns the size of a file."""
    data = file.read_bytes()
    return Size(len(data.decode().split()), len(data))
