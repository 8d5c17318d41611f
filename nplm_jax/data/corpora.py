"""Corpora by `corpus.name`: each is one stream of words with a training, a validation and a test span."""

import dataclasses
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.config import CorpusSettings
from nplm_jax.data import brown, gutenberg, preparation, sources, text_checks, wikitext2, wikitext103
from nplm_jax.data.prepared_texts import PreparedText
from nplm_jax.data.sources import Piece, Pieces
from nplm_jax.data.tokenizers import registry
from nplm_jax.data.tokenizers.tokenizer import BOUNDARY_TOKENS, Tokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils import mapped_arrays, plugins
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand

_TEXT_PATH = 'a UTF-8 text file or a folder of such files'
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


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus(Splits):
    """One stream of words and its splits.

    Attributes:
        stream: The words, as numbers of the different words.
        tokenizer: What made them.
    """

    stream: WordStream
    tokenizer: Tokenizer = WordTokenizer()

    @property
    def words(self) -> list[str]:
        """The stream as a list, made anew at each call."""
        return self.stream.words()

    def __len__(self) -> int:
        return len(self.stream.type_ids_L)


class _Reader(NamedTuple):
    """How a corpus is read.

    Attributes:
        load: Reads it.
        path_keys: The path keys of `corpus.*` that it reads.
        find_files: Finds the user's files.
        is_tokenized: Whether its text has a blank between any two tokens.
    """

    load: Callable[[CorpusSettings, Tokenizer], Corpus]
    path_keys: tuple[str, ...] = ()
    find_files: Callable[[CorpusSettings], list[pathlib.Path]] = lambda settings: []
    is_tokenized: bool = True


def check_settings(settings: CorpusSettings) -> None:
    """Raises BadInput for an unknown `corpus.name` or `corpus.tokens`, or a path that this corpus does not read."""
    path_keys = _reader(settings).path_keys
    make_tokenizer(settings)
    for key in ('path', 'valid_path', 'test_path'):
        value = getattr(settings, key)
        reads = key in path_keys
        require(reads or not value, f'corpus.{key}', value, f'corpus.name={settings.name} does not use it')


def make_tokenizer(settings: CorpusSettings) -> Tokenizer:
    """Returns the tokenizer that the settings describe. The words of a tokenized corpus are split at white space."""
    is_split = settings.tokens == 'words' and _reader(settings).is_tokenized
    return registry.from_settings('whitespace' if is_split else settings.tokens, settings)


def load(settings: CorpusSettings, tokenizer: Tokenizer | None = None) -> Corpus:
    """Reads, tokenizes and splits the corpus that `settings.name` names.

    Args:
        settings: The `corpus.*` choices.
        tokenizer: The tokenizer of a run, which has learned from this corpus; None makes it from the settings.

    Returns:
        A Corpus whose spans follow each other in the stream; those of `sentences` are all the whole stream.

    Raises:
        BadInput: The text is missing, empty, binary, damaged, or too short for its split.
    """
    corpus = _reader(settings).load(settings, tokenizer or make_tokenizer(settings))
    for name, span in corpus.splits.items():
        if len(span) < 1:
            sizes = f'corpus.train={settings.train:g}, corpus.valid={settings.valid:g}'
            raise BadInput(f'{sizes}: leave no {name} words; the corpus has {len(corpus):,} words')
    return corpus


def files(settings: CorpusSettings) -> list[pathlib.Path]:
    """Finds the user's files that `load` reads; none of a published corpus, whose content is verified at each reading.

    Raises:
        BadInput: A file is missing.
    """
    return _reader(settings).find_files(settings)


def _reader(settings: CorpusSettings) -> _Reader:
    """Returns what reads the corpus. Raises BadInput for an unknown name or a plug-in that is no function."""
    if plugins.is_path(settings.name):
        plugins.load_function('corpus.name', settings.name)
        return _Reader(_load_plugin, is_tokenized=False)
    allowed = f'must be one of {", ".join(_CORPORA)}, or {plugins.IMPORT_PATH}'
    require(settings.name in _CORPORA, 'corpus.name', settings.name, allowed)
    return _CORPORA[settings.name]


def _split(prepared: PreparedText, settings: CorpusSettings) -> Corpus:
    """Splits a stream in order; `settings.train` and `.valid` below 1 are fractions of it, else numbers of words."""
    (num_words,) = prepared.lengths
    sizes = [round(s * num_words) if s < 1 else int(s) for s in (settings.train, settings.valid)]
    train = min(sizes[0], num_words)
    valid = min(train + sizes[1], num_words)
    return Corpus(Span(0, train), Span(train, valid), Span(valid, num_words), prepared.stream, prepared.tokenizer)


def _in_parts(prepared: PreparedText, settings: CorpusSettings) -> Corpus:
    """Returns a stream whose parts are the splits; one part alone is split by its sizes."""
    if len(prepared.lengths) == 1:
        return _split(prepared, settings)
    ends = [0, *itertools.accumulate(prepared.lengths)]
    train, valid, test = map(Span, ends, ends[1:])
    return Corpus(train, valid, test, prepared.stream, prepared.tokenizer)


def _of_texts(texts: Iterable[str]) -> list[Piece]:
    """Returns texts as pieces, one each."""
    return [Piece(text, True) for text in texts]


def _load_sentences(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    prepared = preparation.prepare([_of_texts([_SENTENCES])], tokenizer)
    everything = Span(0, len(prepared.stream.type_ids_L))
    return Corpus(everything, everything, everything, prepared.stream, prepared.tokenizer)


def _load_brown(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    return _split(preparation.prepare([_of_texts(brown.texts())], tokenizer), settings)


def _load_wikitext2(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    prepared = preparation.prepare(wikitext2.read(settings.path), tokenizer)
    _require_words({f'corpus.path ({split} file)': settings.path for split in wikitext2.FILES}, prepared)
    return _in_parts(prepared, settings)


def _load_wikitext103(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    files = wikitext103.find(settings.path)
    parts = [(files, Pieces(wikitext103.checked_pieces, settings.path))]
    parts += [([], Pieces(wikitext103.pieces, settings.path, split)) for split in ('valid', 'test')]
    return _in_parts(preparation.prepare_files(parts, tokenizer, settings), settings)


def _load_gutenberg(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    return _split(preparation.prepare([_of_texts(gutenberg.texts())], tokenizer), settings)


def _load_ap_news(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    """Loads a folder of text; the paper's preparation is in the keys that configs/ap_news.py sets."""
    is_folder = bool(settings.path) and os.path.isdir(expand('corpus.path', settings.path))
    require(
        is_folder,
        'corpus.path',
        settings.path,
        'must be a folder of text files of AP News, which this package does not provide',
    )
    return _load_text(settings, tokenizer)


def _load_text(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    """Loads the user's text, split by the sizes of the config or by separate validation and test files."""
    found = _find_parts(settings)
    settings = _resolve_paragraphs(settings, found['corpus.path'])
    lines = settings.paragraphs == 'lines'
    parts = [(part, Pieces(_read_files, key, part, settings.column, lines)) for key, part in found.items()]
    prepared = preparation.prepare_files(parts, tokenizer, settings)
    _require_words({key: getattr(settings, key.removeprefix('corpus.')) for key in found}, prepared)
    return _in_parts(prepared, settings)


def _load_plugin(settings: CorpusSettings, tokenizer: Tokenizer) -> Corpus:
    """Loads the texts that a plug-in returns: those of one stream, or those of each split by its name."""
    made = plugins.load_function('corpus.name', settings.name)(**dataclasses.asdict(settings.options))
    parts = [made.get(split, ()) for split in ('train', 'valid', 'test')] if isinstance(made, Mapping) else [made]
    texts = [[] if isinstance(part, str) or not isinstance(part, Iterable) else list(part) for part in parts]
    are_texts = all(part and all(isinstance(text, str) for text in part) for part in texts)
    allowed = 'must return texts (a list of str), or {"train": texts, "valid": texts, "test": texts}'
    require(are_texts, 'corpus.name', settings.name, allowed)
    return _in_parts(preparation.prepare([_of_texts(part) for part in texts], tokenizer), settings)


def _find_parts(settings: CorpusSettings) -> dict[str, list[pathlib.Path]]:
    """Returns the files of each part of the user's text by config key."""
    require(bool(settings.path), 'corpus.path', settings.path, _TEXT_PATH)
    paths = {'corpus.path': settings.path}
    if settings.valid_path or settings.test_path:
        require(bool(settings.valid_path), 'corpus.valid_path', '', 'needed when corpus.test_path is given')
        require(bool(settings.test_path), 'corpus.test_path', '', 'needed when corpus.valid_path is given')
        paths |= {'corpus.valid_path': settings.valid_path, 'corpus.test_path': settings.test_path}
    return {key: sources.find_files(key, path) for key, path in paths.items()}


def _find_text(settings: CorpusSettings) -> list[pathlib.Path]:
    return [file for part in _find_parts(settings).values() for file in part]


def _find_wikitext2(settings: CorpusSettings) -> list[pathlib.Path]:
    return wikitext2.find(settings.path) if settings.path else []


def _resolve_paragraphs(settings: CorpusSettings, files: Sequence[pathlib.Path]) -> CorpusSettings:
    """Replaces corpus.paragraphs=auto by what the beginning of the training text shows; says so on stderr."""
    texts, size = [], 0
    for piece in _read_files('corpus.path', files, settings.column):
        texts.append(piece.text)
        size += len(piece.text)
        if size >= sources.PIECE_CHARACTERS:
            break
    if warning := text_checks.describe_blanks(texts):
        print(f'{settings.path}: {warning}', file=sys.stderr)
    if settings.paragraphs != 'auto':
        return settings
    has_lines = text_checks.has_line_paragraphs(texts)
    if has_lines:
        note = 'each line is read as a paragraph (corpus.paragraphs=lines); blank_lines reads the text as one paragraph'
        print(f'{settings.path}: one sentence a line, no blank lines: {note}', file=sys.stderr)
    return dataclasses.replace(settings, paragraphs='lines' if has_lines else 'blank_lines')


def _read_files(key: str, files: Sequence[pathlib.Path], column: str, lines: bool = False) -> Iterator[Piece]:
    """Reads the pieces of files one after the other."""
    for file in files:
        yield from sources.read_pieces(key, file, column, lines)


def _require_words(values: Mapping[str, str], prepared: PreparedText) -> None:
    """Raises BadInput unless each part has at least two types beside the boundary tokens.

    Args:
        values: The path of each part by its config key, for the message.
        prepared: The words of the parts.
    """
    types = prepared.stream.types
    is_word_K = np.array([word not in BOUNDARY_TOKENS for word in types], bool)
    start = 0
    for (key, value), length in zip(values.items(), prepared.lengths):
        ids = prepared.stream.type_ids_L[start : start + length]
        num_types = int((is_word_K & (mapped_arrays.bincount(ids, len(types)) > 0)).sum())
        require(num_types > 0, key, value, 'holds no words')
        require(num_types > 1, key, value, 'contains only one distinct word; at least two are needed')
        start += length


_PATHS = ('path', 'valid_path', 'test_path')
_CORPORA = {
    'brown': _Reader(_load_brown),
    'ap_news': _Reader(_load_ap_news, _PATHS, _find_text, is_tokenized=False),
    'wikitext2': _Reader(_load_wikitext2, ('path',), _find_wikitext2),
    'wikitext103': _Reader(_load_wikitext103, ('path',)),
    'gutenberg': _Reader(_load_gutenberg, is_tokenized=False),
    'text': _Reader(_load_text, _PATHS, _find_text, is_tokenized=False),
    'sentences': _Reader(_load_sentences),
}
