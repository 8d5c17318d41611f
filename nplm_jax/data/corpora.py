"""Corpora, selected by `corpus.name`. A corpus is a stream of words with training, validation and test spans."""

import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from nplm_jax.config import plugins
from nplm_jax.config.sections import CorpusSettings
from nplm_jax.data import brown, formats, gutenberg, preparation, text_checks, text_files, wikitext2, wikitext103
from nplm_jax.data.dataset import Splits
from nplm_jax.data.splitting import check_default_sizes, shorten_texts, split_stream, split_text
from nplm_jax.data.text_files import TextSource
from nplm_jax.data.tokenizers.tokenizer import TextChunk, Tokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.names import require_one_of

_TEXT_PATH = 'must be a UTF-8 text file or a folder of UTF-8 text files'
_SENTENCES = 'i like dog\n\ni love coffee\n\ni hate milk'


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Corpus(Splits):
    """A stream of words and its splits.

    Attributes:
        stream: The words of the whole corpus.
        tokenizer: The tokenizer that produced the words.
        has_lines: Whether each line is a paragraph, preceded by `<p>`; each split then consists of whole lines.
        is_spelled: Whether the tokens reproduce the text except for whitespace; see `token_text.spells`.
    """

    stream: WordStream
    tokenizer: Tokenizer = WordTokenizer()
    has_lines: bool = False
    is_spelled: bool = True

    @property
    def words(self) -> list[str]:
        """The stream as a new list of words."""
        return self.stream.words()

    def __len__(self) -> int:
        return len(self.stream.type_ids_L)


class _Reader(NamedTuple):
    """The reader of a corpus.

    Attributes:
        sources: A function that finds the texts of the corpus.
        file_keys: The keys in section `corpus` that specify files and apply to this corpus, such as `path`.
        find_files: A function that finds the user's files.
        is_tokenized: Whether all tokens in the text are separated by whitespace.
        licence: A one-line description of the text and its licence.
    """

    sources: Callable[[CorpusSettings], list[TextSource]]
    file_keys: tuple[str, ...] = ()
    find_files: Callable[[CorpusSettings], list[pathlib.Path]] = lambda settings: []
    is_tokenized: bool = True
    licence: str = "Text of the model's author; ask the author for its licence."


def check_settings(settings: CorpusSettings) -> None:
    """Raises BadInput for an unknown `corpus.name`, an unused file key or incompatible settings."""
    file_keys = _reader(settings).file_keys
    for key in _FILE_KEYS:
        value, default = getattr(settings, key), getattr(CorpusSettings, key)
        allowed = f'must be {default or "empty"} for corpus.name={settings.name}'
        require(key in file_keys or value == default, f'corpus.{key}', value, allowed)
    if settings.paragraphs == 'eos':
        _check_eos(settings)
    elif file_keys != _FILE_KEYS:
        other = 'eos' if settings.name in _WITH_EOS else 'blank_lines'
        allowed = f'must be auto or {other} for corpus.name={settings.name}'
        require(settings.paragraphs in ('auto', other), 'corpus.paragraphs', settings.paragraphs, allowed)
    if settings.name in (*_WITH_EOS, 'sentences') or (settings.valid_path and settings.name == 'text'):
        check_default_sizes(settings)  # except for ap_news, whose config sets the sizes
    if settings.tokenizer.name == 'lmplz':
        problem = 'reads one sentence per line, so it requires corpus.name=text and corpus.paragraphs=lines or auto'
        is_read = file_keys == _FILE_KEYS and settings.paragraphs != 'blank_lines'
        require(is_read, 'corpus.tokens', 'lmplz', problem)


def _check_eos(settings: CorpusSettings) -> None:
    """Raises BadInput if other settings are incompatible with corpus.paragraphs=eos."""
    tokenizer = settings.tokenizer
    needs = {
        'name': (settings.name, _WITH_EOS),
        'tokens': (tokenizer.name, ('words', 'whitespace')),
        'boundary_tokens': (tokenizer.boundary_tokens, (True,)),
        'context': (settings.context, ('auto', 'stream')),
    }
    for key, (value, allowed) in needs.items():
        needed = f'requires corpus.{key} to be {" or ".join(map(str, allowed))}, not {value}'
        problem = f'{needed}; otherwise, set --config.corpus.paragraphs=auto'
        require(value in allowed, 'corpus.paragraphs', 'eos', problem)


def make_tokenizer(settings: CorpusSettings) -> Tokenizer:
    """Returns the tokenizer for the settings.

    Corpora that are already tokenized are split at whitespace, and other texts are adapted to their vocabulary. With
    `corpus.tokens=whitespace` or `lmplz`, other texts are assumed to be tokenized too.
    """
    if plugins.is_file(settings.tokenizer.name):
        return cast(Any, settings.tokenizer).read()  # a FileTokenizer; its module is imported only if needed
    kind, rules = settings.tokenizer.name, {}
    if kind in ('whitespace', 'lmplz'):
        rules = {'split_punctuation': False, 'match_quotes': False, 'is_verbatim': kind == 'lmplz'}
    elif kind == 'words' and _reader(settings).is_tokenized:
        kind = 'whitespace'
    return dataclasses.replace(settings.tokenizer, kind=kind, **rules)


def load(settings: CorpusSettings, tokenizer: Tokenizer | None = None) -> Corpus:
    """Reads, tokenizes and splits the corpus named by `settings.name`.

    Args:
        settings: The `corpus.*` settings.
        tokenizer: The trained tokenizer of an existing run on this corpus, or None to build it from the settings.

    Returns:
        The corpus. Its spans are consecutive, except that all spans of `sentences` are the whole stream.

    Raises:
        BadInput: The text is missing, empty, binary or damaged, or it is too short to be split.
    """
    sources = find_sources(settings)
    prepared = preparation.prepare(sources, tokenizer or make_tokenizer(settings), settings.name)
    if _reads_user_text(settings) and (warning := text_checks.describe_written(prepared.written)):
        print(f'{settings.path or settings.name}: {warning}', file=sys.stderr)
    text_checks.require_words(sources, prepared, settings)
    has_lines = sources[0].has_lines and prepared.tokenizer.boundary_tokens
    keeps_all = not settings.words or prepared.tokenizer.is_lossless  # `find_sources` has shortened their texts
    stream, (train, valid, test) = split_stream(prepared.stream, prepared.lengths, settings, has_lines, keeps_all)
    return Corpus(train, valid, test, stream, prepared.tokenizer, has_lines, prepared.is_spelled)


def find_sources(settings: CorpusSettings) -> list[TextSource]:
    """Returns the sources of a corpus: a single text, or the training, validation and test texts."""
    sources = _reader(settings).sources(settings)
    if not settings.tokenizer.is_lossless:
        return sources
    if len(sources) == 1 and settings.name != 'sentences':
        return split_text(sources[0], settings)
    return shorten_texts(sources, settings) if settings.words else sources


def files(settings: CorpusSettings) -> list[pathlib.Path]:
    """Returns the user's files that `load` reads. Excludes downloaded corpora, which are verified when they are read.

    Raises:
        BadInput: A file is missing.
    """
    return _reader(settings).find_files(settings)


def describe(settings: CorpusSettings) -> str:
    """Describes a corpus and its licence in one line, without importing plug-ins. Raises BadInput for unknown names."""
    return (_PLUGIN if plugins.is_path(settings.name) else _reader(settings)).licence


def _reader(settings: CorpusSettings) -> _Reader:
    """Returns the reader of the corpus. Raises BadInput for an unknown name or a plug-in that is not a function."""
    if plugins.is_path(settings.name):
        plugins.check_arguments('corpus.name', settings.name, _function(settings))
        return _PLUGIN
    require_one_of('corpus.name', settings.name, _CORPORA, f', or {plugins.IMPORT_PATH}')
    return _CORPORA[settings.name]


def _function(settings: CorpusSettings) -> Callable[..., Any]:
    """Returns the function of a plug-in. Raises BadInput if the user did not name its module."""
    return settings.options.function or plugins.load_function('corpus.name', settings.name)


def _reads_user_text(settings: CorpusSettings) -> bool:
    """Returns whether the text comes from the user rather than from a published corpus."""
    return plugins.is_path(settings.name) or _CORPORA[settings.name].file_keys == _FILE_KEYS


def _of_texts(texts: Iterable[str]) -> TextSource:
    chunks = [TextChunk(text, True) for text in texts]
    return TextSource(lambda: chunks)


def _wikitext2_sources(settings: CorpusSettings) -> list[TextSource]:
    splits = zip(wikitext2.FILES, wikitext2.read(settings.path, settings.paragraphs == 'eos'))
    return [TextSource(functools.partial(iter, chunks), key=f'corpus.path ({split} file)') for split, chunks in splits]


def _wikitext103_sources(settings: CorpusSettings) -> list[TextSource]:
    path, eos = settings.path, settings.paragraphs == 'eos'
    held_out = [TextSource(functools.partial(wikitext103.chunks, path, split, eos)) for split in ('valid', 'test')]
    train = functools.partial(wikitext103.checked_chunks, path, eos)
    return [TextSource(train, wikitext103.find(path), choices=('eos',) if eos else ()), *held_out]


def _ap_news_sources(settings: CorpusSettings) -> list[TextSource]:
    """Finds the text in a folder. The keys in configs/ap_news.py prepare the text as in the paper."""
    is_folder = bool(settings.path) and os.path.isdir(expand('corpus.path', settings.path))
    allowed = 'must be a folder of AP News text files, which this package does not provide'
    require(is_folder, 'corpus.path', settings.path, allowed)
    return _text_sources(settings)


def _text_sources(settings: CorpusSettings) -> list[TextSource]:
    """Finds the user's text: one stream, or separate training, validation and test texts."""
    found = _files_by_key(settings)
    has_lines = not settings.tokenizer.is_lossless and _has_lines(settings, found['corpus.path'])
    choices = settings.column, has_lines, settings.tokenizer.name == 'lmplz'
    reads = {key: functools.partial(_read_files, key, files, *choices) for key, files in found.items()}
    return [TextSource(reads[key], files, choices, key, has_lines) for key, files in found.items()]


def _plugin_sources(settings: CorpusSettings) -> list[TextSource]:
    """Returns the texts of a plug-in corpus: one stream, or the texts of each split."""
    made = _function(settings)(**settings.options)
    parts = [made]
    if isinstance(made, Mapping):
        check_default_sizes(settings)
        parts = [made.get(split, ()) for split in ('train', 'valid', 'test')]
    texts = [[] if isinstance(part, str) or not isinstance(part, Iterable) else list(part) for part in parts]
    are_texts = all(part and all(isinstance(text, str) for text in part) for part in texts)
    fault = next(filter(None, (formats.find_fault(text) for part in texts for text in part)), '')
    allowed = 'must return a list of strings or a dict that maps train, valid and test to lists of strings'
    require(are_texts and not fault, 'corpus.name', settings.name, f'a text {fault}' if are_texts else allowed)
    return [_of_texts(part)._replace(key='corpus.name') for part in texts]


def _files_by_key(settings: CorpusSettings) -> dict[str, list[pathlib.Path]]:
    """Returns the files of the user's whole text, or of its training, validation and test texts, by config key."""
    require(bool(settings.path), 'corpus.path', settings.path, _TEXT_PATH)
    paths = {'corpus.path': settings.path}
    if settings.valid_path or settings.test_path:
        require(bool(settings.valid_path), 'corpus.valid_path', '', 'must be set if corpus.test_path is set')
        require(bool(settings.test_path), 'corpus.test_path', '', 'must be set if corpus.valid_path is set')
        paths |= {'corpus.valid_path': settings.valid_path, 'corpus.test_path': settings.test_path}
    return text_files.find_parts(paths)


def _find_text(settings: CorpusSettings) -> list[pathlib.Path]:
    return [file for group in _files_by_key(settings).values() for file in group]


def _find_wikitext2(settings: CorpusSettings) -> list[pathlib.Path]:
    return wikitext2.find(settings.path) if settings.path else []


def _has_lines(settings: CorpusSettings, files: Sequence[pathlib.Path]) -> bool:
    """Returns whether each line is a paragraph; `auto` detects this from the beginning of the training text.

    If lines are detected as paragraphs, a note is printed to stderr. If a text has almost no whitespace, a warning is
    issued.
    """
    texts, size = [], 0
    for chunk in _read_files('corpus.path', files, settings.column):
        texts.append(chunk.text)
        size += len(chunk.text)
        if size >= text_files.CHUNK_CHARACTERS:
            break
    if isinstance(settings.tokenizer, WordTokenizer) and (warning := text_checks.describe_whitespace(texts)):
        print(f'{settings.path}: {warning}', file=sys.stderr)
    is_lmplz = settings.tokenizer.name == 'lmplz'
    if settings.paragraphs != 'auto' or is_lmplz:
        return settings.paragraphs == 'lines' or is_lmplz
    if has_lines := text_checks.has_line_paragraphs(texts):
        note = 'so each line is read as a paragraph; to read a single paragraph, set corpus.paragraphs=blank_lines'
        print(f'{settings.path}: the text has one sentence per line and no blank lines, {note}', file=sys.stderr)
    return has_lines


def _read_files(key: str, files: Sequence[pathlib.Path], column: str, *choices: bool) -> Iterator[TextChunk]:
    """Reads the chunks of files in order. For `choices`, see `text_files.read_chunks`."""
    for file in files:
        yield from text_files.read_chunks(key, file, column, *choices)


_FILE_KEYS = ('path', 'valid_path', 'test_path', 'column')
_WITH_EOS = 'wikitext2', 'wikitext103'  # corpora that support corpus.paragraphs=eos
_CORPORA = {
    'brown': _Reader(lambda settings: [_of_texts(brown.texts())], licence=brown.PACKAGE.licence),
    'ap_news': _Reader(_ap_news_sources, _FILE_KEYS, _find_text, False, 'AP News: licensed text.'),
    'wikitext2': _Reader(_wikitext2_sources, ('path',), _find_wikitext2, licence=wikitext2.PACKAGE.licence),
    'wikitext103': _Reader(_wikitext103_sources, ('path',), licence=wikitext2.PACKAGE.licence.replace('-2', '-103')),
    'gutenberg': _Reader(
        lambda settings: [_of_texts(gutenberg.texts())], is_tokenized=False, licence=gutenberg.PACKAGE.licence
    ),
    'text': _Reader(_text_sources, _FILE_KEYS, _find_text, is_tokenized=False),
    'sentences': _Reader(lambda settings: [_of_texts([_SENTENCES])], licence='Three sentences of nplm-jax.'),
}
_PLUGIN = _Reader(_plugin_sources, is_tokenized=False)
