"""WikiText-103: Wikipedia articles with 103 million training words, from a local copy of the official archive.

The archive is wikitext-103-v1.zip, published at https://s3.amazonaws.com/research.metamind.io/wikitext/. It is not
downloaded automatically. Its files have the same format as WikiText-2.

References:
    Merity et al. (2017), "Pointer Sentinel Mixture Models".
"""

import contextlib
import hashlib
import io
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from nplm_jax.data import wikitext2
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.zips import open_zip
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import open_regular

# SHA-1 of the files, as recorded by MXNet and GluonNLP.
FILES = {
    'train': 'b7497e2dfe77e72cfef5e3dbc61b7b53712ac211',
    'valid': 'c326ac59dc587676d58c422eb8a03e119582f92b',
    'test': '8a5befc548865cec54ed4273cf87dbbad60d1e47',
}
_EXPECTED = 'must be wikitext-103-v1.zip or a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens'


def find(path: str) -> list[pathlib.Path]:
    """Returns the archive, or the three files of the folder.

    Args:
        path: The value of corpus.path: the archive, the folder of the unpacked files, or its parent folder.

    Raises:
        BadInput: A file is missing.
    """
    root = _find(path)
    return [root / f'wiki.{split}.tokens' for split in FILES] if root.is_dir() else [root]


def checked_chunks(path: str, eos: bool = False) -> Iterator[TextChunk]:
    """Verifies the digests of all three files, then reads the training file. Not called if the tokens are cached."""
    for split, sha1 in FILES.items():
        with _open(path, split) as opened:
            is_published = hashlib.file_digest(opened, 'sha1').hexdigest() == sha1
            require(is_published, 'corpus.path', path, f'wiki.{split}.tokens is damaged or is not the original file')
    yield from chunks(path, 'train', eos)


def chunks(path: str, split: str, eos: bool = False) -> Iterator[TextChunk]:
    """Reads a file in chunks, in bounded memory.

    Args:
        path: The value of corpus.path, as for `find`.
        split: `train`, `valid` or `test`.
        eos: See `wikitext2.chunks`.

    Raises:
        BadInput: The file is missing or cannot be read.
    """
    with _open(path, split) as opened, io.TextIOWrapper(opened, 'utf-8', newline='\n') as lines:
        yield from wikitext2.chunks(lines, eos)


@contextlib.contextmanager
def _open(path: str, split: str) -> Iterator[Any]:
    """Opens one of the three files."""
    root = _find(path)
    file = root / f'wiki.{split}.tokens' if root.is_dir() else root
    with open_regular(str(file), file) as opened:
        if root.is_dir():
            yield opened
            return
        with open_zip(file, 'the file is damaged or is not wikitext-103-v1.zip', opened, max_members=99) as archive:
            with archive.open(f'wikitext-103/wiki.{split}.tokens') as member:
                yield member


def _find(path: str) -> pathlib.Path:
    """Returns the archive or the folder with the three files."""
    root = expand('corpus.path', path)
    if path and os.path.isfile(root):
        return root
    folders = [folder for folder in (root, root / 'wikitext-103') if os.path.isfile(folder / 'wiki.train.tokens')]
    require(bool(path and folders), 'corpus.path', path, _EXPECTED)
    return folders[0]
