"""Where text comes from: a named corpus becomes one stream of words and three ranges of it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os

from nplm_jax.config import CorpusSettings
from nplm_jax.data import brown, wikitext2
from nplm_jax.data.tokenization import paragraphs, require_words, token_streams
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_text

_SENTENCES = 'i like dog\n\ni love coffee\n\ni hate milk'


@dataclasses.dataclass(frozen=True)
class Span:
    """Words [start, stop) of a stream."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclasses.dataclass(frozen=True)
class Corpus:
    """One stream of words and the ranges of it that train, validate and test a model."""

    name: str
    words: list[str]
    train: Span
    valid: Span
    test: Span

    @property
    def splits(self) -> dict[str, Span]:
        return {'train': self.train, 'valid': self.valid, 'test': self.test}


def check_settings(settings: CorpusSettings) -> None:
    """Raises: BadInput for an unknown `corpus.name`, or a path that this corpus does not read."""
    require(settings.name in _LOADERS, 'corpus.name', settings.name, f'must be one of {", ".join(_LOADERS)}')
    for key in ('path', 'valid_path', 'test_path'):
        value = getattr(settings, key)
        reads = key in _PATH_KEYS.get(settings.name, ())
        require(reads or not value, f'corpus.{key}', value, f'corpus.name={settings.name} does not read it')


def load(settings: CorpusSettings) -> Corpus:
    """Reads, tokenises and splits the corpus that `settings.name` names.

    Returns: a Corpus whose splits are in stream order (`sentences` is its own validation and test set).
    Raises: BadInput when the text is missing, empty, not text, damaged, or too short for its split.
    """
    words, splits = _LOADERS[settings.name](settings)
    corpus = Corpus(settings.name, words, *splits)
    for name, span in corpus.splits.items():
        if len(span) < 1:
            raise BadInput(
                f'corpus.train={settings.train:g}, corpus.valid={settings.valid:g}: leave no word to {name} on; '
                f'the {settings.name} stream has {len(words):,} words'
            )
    return corpus


def _cut(num_words: int, settings: CorpusSettings) -> tuple[Span, Span, Span]:
    """Cuts a stream in order; a size below 1 is a fraction of the stream, otherwise a number of words."""
    size = [round(s * num_words) if s < 1 else int(s) for s in (settings.train, settings.valid)]
    train = min(size[0], num_words)
    valid = min(train + size[1], num_words)
    return Span(0, train), Span(train, valid), Span(valid, num_words)


def _join(parts: list[list[str]]) -> tuple[list[str], tuple[Span, Span, Span]]:
    """One stream of the words to train, validate and test on, and where each of the three lies in it."""
    ends = [0, *itertools.accumulate(map(len, parts))]
    train, valid, test = map(Span, ends, ends[1:])
    return [word for part in parts for word in part], (train, valid, test)


def _load_sentences(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    (words,) = token_streams([[_SENTENCES]], lambda text: paragraphs(text, 'whitespace'), settings)
    everything = Span(0, len(words))
    return words, (everything, everything, everything)


def _load_brown(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    (words,) = token_streams([brown.texts()], brown.paragraphs, settings)
    return words, _cut(len(words), settings)


def _load_wikitext2(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    parts = token_streams(wikitext2.texts(settings.path), wikitext2.paragraphs, settings)
    for split, words in zip(wikitext2.FILES, parts):
        require_words(f'corpus.path ({split} file)', settings.path, words)
    return _join(parts)


def _load_ap_news(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    """The paper's preparation is the keys that configs/ap_news.py sets: lowercase, numbers, proper_nouns."""
    is_folder = bool(settings.path) and os.path.isdir(expand('corpus.path', settings.path))
    require(is_folder, 'corpus.path', settings.path, 'must be a folder of text files of AP News, which you bring')
    return _load_text(settings)


def _load_text(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    require(bool(settings.path), 'corpus.path', settings.path, 'a UTF-8 text file or a folder of such files')
    keys = ['path']
    if settings.valid_path or settings.test_path:
        require(bool(settings.valid_path), 'corpus.valid_path', '', 'needed when corpus.test_path is given')
        require(bool(settings.test_path), 'corpus.test_path', '', 'needed when corpus.valid_path is given')
        keys += ['valid_path', 'test_path']
    texts = [_read_texts(f'corpus.{key}', getattr(settings, key)) for key in keys]
    parts = token_streams(texts, functools.partial(paragraphs, kind=settings.tokens), settings)
    for key, words in zip(keys, parts):
        require_words(f'corpus.{key}', getattr(settings, key), words)
    return _join(parts) if len(parts) == 3 else (parts[0], _cut(len(parts[0]), settings))


def _read_texts(key: str, path: str) -> list[str]:
    """A text a file; those of a folder in the order of their names, without what it only links to."""
    root = expand(key, path)
    require(os.path.exists(root), key, path, 'no such file or folder')
    inside = (p for p in root.rglob('*') if os.path.isfile(p) and not p.is_symlink())
    shown = (p for p in inside if not any(part.startswith('.') for part in p.relative_to(root).parts))
    files = sorted(shown) if os.path.isdir(root) else [root]
    require(bool(files), key, path, 'this folder holds no file')
    return [read_text(key, file) for file in files]


_LOADERS = {
    'brown': _load_brown,
    'ap_news': _load_ap_news,
    'wikitext2': _load_wikitext2,
    'text': _load_text,
    'sentences': _load_sentences,
}
_PATH_KEYS = {
    'text': ('path', 'valid_path', 'test_path'),
    'ap_news': ('path', 'valid_path', 'test_path'),
    'wikitext2': ('path',),
}
