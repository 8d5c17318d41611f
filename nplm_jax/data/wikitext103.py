"""WikiText-103: articles of Wikipedia, 103 million words to train on, from the official archive that the user gives.

The archive is wikitext-103-v1.zip, published at https://s3.amazonaws.com/research.metamind.io/wikitext/; nothing is
downloaded. Its files have the form of WikiText-2's.

References:
    Merity et al. (2017), "Pointer Sentinel Mixture Models".
"""

import contextlib
import hashlib
import io
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import IO

from nplm_jax.data import wikitext2
from nplm_jax.data.sources import Piece
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, open_regular

# Bytes and SHA-256 of the archive, as the `datasets` of Hugging Face record them.
ARCHIVE = (190_229_076, '242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590')
# SHA-1 of the files in it, as MXNet and GluonNLP record them.
FILES = {
    'train': 'b7497e2dfe77e72cfef5e3dbc61b7b53712ac211',
    'valid': 'c326ac59dc587676d58c422eb8a03e119582f92b',
    'test': '8a5befc548865cec54ed4273cf87dbbad60d1e47',
}
_MEMBER = 'wikitext-103/wiki.{}.tokens'
_EXPECTED = 'give wikitext-103-v1.zip, or the folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens'


def find(path: str) -> list[pathlib.Path]:
    """Returns the archive, or the three files of the folder.

    Args:
        path: The value of corpus.path: the archive, or the folder of the unpacked files or the one above it.

    Raises:
        BadInput: A file is missing.
    """
    root = _find(path)
    return [root / f'wiki.{split}.tokens' for split in FILES] if os.path.isdir(root) else [root]


def check(path: str) -> None:
    """Checks all bytes of the files. Raises: BadInput if one is missing, or is not the published one."""
    root = _find(path)
    if not os.path.isdir(root):
        with open_regular(str(root), root) as opened:
            num_bytes = os.fstat(opened.fileno()).st_size
            is_published = num_bytes == ARCHIVE[0] and hashlib.file_digest(opened, 'sha256').hexdigest() == ARCHIVE[1]
        if not is_published:
            sizes = f'{num_bytes:,} bytes, {ARCHIVE[0]:,} expected, or another sha256'
            raise BadInput(f'{root}: damaged or not wikitext-103-v1.zip ({sizes})')
        return
    for file, (split, sha1) in zip(find(path), FILES.items()):
        with open_regular(str(file), file) as opened:
            if hashlib.file_digest(opened, 'sha1').hexdigest() != sha1:
                raise BadInput(f"{file}: damaged or not WikiText-103's {split} file (another sha1)")


def checked_pieces(path: str) -> Iterator[Piece]:
    """Reads the training file after a check of all files, so that they are checked once and not at each start."""
    check(path)
    yield from pieces(path, 'train')


def pieces(path: str, split: str) -> Iterator[Piece]:
    """Reads a file that `check` has checked, in the memory of a few pieces.

    Args:
        path: The value of corpus.path, as for `check`.
        split: `train`, `valid` or `test`.

    Raises:
        BadInput: The file is missing or cannot be read.
    """
    root = _find(path)
    file = root / f'wiki.{split}.tokens' if os.path.isdir(root) else root
    try:
        with open_regular(str(file), file) as opened, contextlib.ExitStack() as stack:
            binary: IO[bytes] = opened
            if file is root:
                archive = stack.enter_context(zipfile.ZipFile(opened))
                binary = archive.open(_MEMBER.format(split))
            lines = stack.enter_context(io.TextIOWrapper(binary, 'utf-8', newline='\n'))
            yield from wikitext2.pieces(lines)
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadInput(f'{file}: cannot be read ({error})') from None


def _find(path: str) -> pathlib.Path:
    """Returns the archive or the folder with the three files."""
    root = expand('corpus.path', path)
    require(bool(path) and os.path.exists(root), 'corpus.path', path, f'no such file or folder; {_EXPECTED}')
    if not os.path.isdir(root):
        return root
    for folder in (root, root / 'wikitext-103'):
        if os.path.isfile(folder / 'wiki.train.tokens'):
            return folder
    raise BadInput(f'corpus.path={path!r}: this folder has no wiki.train.tokens; {_EXPECTED}')
