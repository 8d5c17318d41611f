"""Corpora by `corpus.name`: each is one stream of words with a training, a validation and a test span."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable

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
class Splits:
    """The spans of a stream that train, validate and test a model.

    Attributes:
        train: The training words.
        valid: The validation words.
        test: The test words.
    """

    train: Span
    valid: Span
    test: Span

    @property
    def splits(self) -> dict[str, Span]:
        """The three spans by name."""
        return {'train': self.train, 'valid': self.valid, 'test': self.test}


@dataclasses.dataclass(frozen=True)
class Corpus(Splits):
    """One stream of words and its splits.

    Attributes:
        words: The stream.
    """

    words: list[str]


def check_settings(settings: CorpusSettings) -> None:
    """Raises BadInput for an unknown `corpus.name`, or a path that this corpus does not read."""
    require(settings.name in _CORPORA, 'corpus.name', settings.name, f'must be one of {", ".join(_CORPORA)}')
    for key in ('path', 'valid_path', 'test_path'):
        value = getattr(settings, key)
        reads = key in _CORPORA[settings.name][1]
        require(reads or not value, f'corpus.{key}', value, f'corpus.name={settings.name} does not read it')


def load(settings: CorpusSettings) -> Corpus:
    """Reads, tokenizes and splits the corpus that `settings.name` names.

    Returns:
        A Corpus whose spans follow each other in the stream; those of `sentences` are all the whole stream.

    Raises:
        BadInput: The text is missing, empty, binary, damaged, or too short for its split.
    """
    corpus = _CORPORA[settings.name][0](settings)
    for name, span in corpus.splits.items():
        if len(span) < 1:
            sizes = f'corpus.train={settings.train:g}, corpus.valid={settings.valid:g}'
            raise BadInput(f'{sizes}: leave no {name} words; the corpus has {len(corpus.words):,} words')
    return corpus


def _split(words: list[str], settings: CorpusSettings) -> Corpus:
    """Splits a stream in order; `settings.train` and `.valid` below 1 are fractions of it, else numbers of words."""
    sizes = [round(s * len(words)) if s < 1 else int(s) for s in (settings.train, settings.valid)]
    train = min(sizes[0], len(words))
    valid = min(train + sizes[1], len(words))
    return Corpus(Span(0, train), Span(train, valid), Span(valid, len(words)), words)


def _concatenate(split_words: list[list[str]]) -> Corpus:
    """Joins the training, the validation and the test words to one stream."""
    ends = [0, *itertools.accumulate(map(len, split_words))]
    train, valid, test = map(Span, ends, ends[1:])
    return Corpus(train, valid, test, list(itertools.chain(*split_words)))


def _load_sentences(settings: CorpusSettings) -> Corpus:
    (words,) = token_streams([[_SENTENCES]], lambda text: paragraphs(text, 'whitespace'), settings)
    everything = Span(0, len(words))
    return Corpus(everything, everything, everything, words)


def _load_brown(settings: CorpusSettings) -> Corpus:
    (words,) = token_streams([brown.texts()], brown.paragraphs, settings)
    return _split(words, settings)


def _load_wikitext2(settings: CorpusSettings) -> Corpus:
    split_words = token_streams(wikitext2.texts(settings.path), wikitext2.paragraphs, settings)
    for split, words in zip(wikitext2.FILES, split_words):
        require_words(f'corpus.path ({split} file)', settings.path, words)
    return _concatenate(split_words)


def _load_ap_news(settings: CorpusSettings) -> Corpus:
    """Loads a folder of text; the paper's preparation is in the keys that configs/ap_news.py sets."""
    is_folder = bool(settings.path) and os.path.isdir(expand('corpus.path', settings.path))
    require(
        is_folder,
        'corpus.path',
        settings.path,
        'must be a folder of text files of AP News, which this package does not provide',
    )
    return _load_text(settings)


def _load_text(settings: CorpusSettings) -> Corpus:
    """Loads the user's text, split by the sizes of the config or by separate validation and test files."""
    require(bool(settings.path), 'corpus.path', settings.path, 'a UTF-8 text file or a folder of such files')
    keys = ['path']
    if settings.valid_path or settings.test_path:
        require(bool(settings.valid_path), 'corpus.valid_path', '', 'needed when corpus.test_path is given')
        require(bool(settings.test_path), 'corpus.test_path', '', 'needed when corpus.valid_path is given')
        keys += ['valid_path', 'test_path']
    texts = [_read_texts(f'corpus.{key}', getattr(settings, key)) for key in keys]
    split_words = token_streams(texts, functools.partial(paragraphs, kind=settings.tokens), settings)
    for key, words in zip(keys, split_words):
        require_words(f'corpus.{key}', getattr(settings, key), words)
    return _concatenate(split_words) if len(split_words) == 3 else _split(split_words[0], settings)


def _read_texts(key: str, path: str) -> list[str]:
    """Returns the text of a file, or of all files in a folder in the order of their paths.

    Hidden files and symbolic links inside the folder are left out.
    """
    root = expand(key, path)
    require(os.path.exists(root), key, path, 'no such file or folder')
    files = [root]
    if os.path.isdir(root):
        regular = (p for p in root.rglob('*') if os.path.isfile(p) and not p.is_symlink())
        files = sorted(p for p in regular if not any(part.startswith('.') for part in p.relative_to(root).parts))
    require(bool(files), key, path, 'this folder holds no file')
    return [read_text(key, file) for file in files]


# name -> the function that loads it, and the path keys of `corpus.*` that it reads
_CORPORA: dict[str, tuple[Callable[[CorpusSettings], Corpus], tuple[str, ...]]] = {
    'brown': (_load_brown, ()),
    'ap_news': (_load_ap_news, ('path', 'valid_path', 'test_path')),
    'wikitext2': (_load_wikitext2, ('path',)),
    'text': (_load_text, ('path', 'valid_path', 'test_path')),
    'sentences': (_load_sentences, ()),
}
