"""Files of text, of any length: finds them, and reads them in pieces of about a million characters.

A .txt file, or one with a suffix that is not named here, is one text in UTF-8. In .jsonl (a JSON object a line),
.parquet and .arrow (a folder that Hugging Face's `datasets` saved), each row is a text. Text and .jsonl may be
compressed: .gz, .zst.
"""

import functools
import glob
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from nplm_jax.data import formats
from nplm_jax.data.tokenizers.tokenizer import BLANK_LINES, Piece
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import decode_blocks, open_regular, read_json

PIECE_CHARACTERS = 2**20
_BLOCK_BYTES = 2**18  # that are read at a time
_PART_CHARACTERS = 2**18  # after which a border is looked for
_WORD = re.compile(r'\S+', re.ASCII)


class Part(NamedTuple):
    """A part of a corpus: all of it, or its training, validation or test texts.

    Attributes:
        read: Reads its pieces, anew at each call.
        files: The user's files that they are read from.
        choices: What they depend on beside the files.
        key: The config's key that names the files, for error messages; empty for a published corpus.
        has_lines: Whether each line is a paragraph.
    """

    read: Callable[[], Iterable[Piece]]
    files: Sequence[pathlib.Path] = ()
    choices: Sequence[Any] = ()
    key: str = ''
    has_lines: bool = False


def find_files(key: str, path: str) -> list[pathlib.Path]:
    """Finds the files that a path of the config names.

    Args:
        key: The config's key, for error messages.
        path: A file; a folder, with the files below it; a folder that `datasets` saved, whose split `train` is taken if
            it has splits; or a pattern with *, ?, [ or **, unless a file of that name exists. Hidden files, and
            symbolic links that are not the path itself, are left out.

    Returns:
        The files in the order of their paths; those of a `datasets` folder in the order of its rows.

    Raises:
        BadInput: There is no such file.
    """
    root = expand(key, path)
    if not os.path.exists(root) and glob.has_magic(path):
        matches = sorted(map(pathlib.Path, glob.glob(str(root), recursive=True)))
        files = [p for p in matches if p.is_file() and not p.is_symlink()]
        require(bool(files), key, path, 'no file matches this pattern (hidden files and links are ignored)')
        return files
    require(os.path.exists(root), key, path, 'no such file or folder')
    if not os.path.isdir(root):
        return [root]
    if files := _find_dataset(key, root):
        return files
    regular = (p for p in root.rglob('*') if os.path.isfile(p) and not p.is_symlink())
    files = sorted(p for p in regular if not any(part.startswith('.') for part in p.relative_to(root).parts))
    require(bool(files), key, path, 'this folder contains no files')
    return files


def _find_dataset(key: str, root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the .arrow files of a folder that `datasets` saved; an empty list for another folder."""
    if (root / 'dataset_dict.json').is_file():
        splits = sorted(p.parent.name for p in root.glob('*/state.json'))
        message = f'this dataset has no split `train`; give the folder of a split, {" or ".join(splits)}'
        require('train' in splits, key, str(root), message)
        root = root / 'train'
    state = root / 'state.json'
    if not (state.is_file() and (root / 'dataset_info.json').is_file()):
        return []
    try:
        files = [root / pathlib.Path(data_file['filename']).name for data_file in read_json(state)['_data_files']]
    except (KeyError, TypeError):
        raise BadInput(state, 'does not list the files as `datasets` does') from None
    require(bool(files), key, str(root), 'this dataset has no files')
    return files


def size(file: pathlib.Path) -> int:
    """Returns the size of a file in bytes. Raises BadInput if it is missing."""
    with open_regular(str(file), file) as opened:
        return os.fstat(opened.fileno()).st_size


def read_pieces(
    key: str, file: pathlib.Path, column: str, lines: bool = False, keeps_empty: bool = False
) -> Iterator[Piece]:
    """Reads the texts of a file in pieces, in the memory of a few of them, of a row and of a block of rows.

    A row without a word is no text; a file without a word is an empty one.

    Args:
        key: The config's key, for error messages.
        file: The file.
        column: The column of .jsonl, .parquet and .arrow that holds the text.
        lines: Whether each line is a paragraph; then a blank line is put after each.
        keeps_empty: Whether empty lines are paragraphs too.

    Raises:
        BadInput: The file is missing, damaged, ends in the middle or is not text; a row lacks the column; or the
            package that reads the file is missing.
    """
    name = f'{key}={str(file)!r}'
    kind, compression = formats.split_suffix(file)
    with open_regular(name, file) as opened, formats.decompress(name, opened, compression) as content:
        if kind in formats.TABLES:
            rows = formats.read_table(name, content, kind, column)
        elif kind == '.jsonl':
            rows = formats.read_json_lines(file, content, column)
        else:
            parts = decode_blocks(name, iter(functools.partial(content.read, _BLOCK_BYTES), b''))
            yield from cut(map(_separate_lines, parts) if lines else parts, keeps_empty)
            return
        for row in rows:
            if row and not row.isspace():
                text = _separate_lines(row) if lines else row
                yield from cut([text], keeps_empty)


def count_words(text: str) -> int:
    """Returns the number of words of a text, which white space of ASCII separates."""
    return len(text.encode().split())


def read_words(read: Callable[[], Iterable[Piece]], start: int, stop: int) -> Iterator[Piece]:
    """Reads words [start, stop) of texts; the white space between two words belongs to the second.

    Args:
        read: Reads the pieces of the texts.
        start: The first word.
        stop: The word after the last one.
    """
    first = 0  # word of the piece
    for piece in read():
        num_words = count_words(piece.text)
        begin, end = (_find_word(piece.text, word - first, num_words) for word in (start, stop))
        if begin < end or (piece.begins_text and start <= first < stop):
            yield Piece(piece.text[begin:end], piece.begins_text and not begin, piece.begins_paragraph and not begin)
        first += num_words


def _find_word(text: str, number: int, num_words: int) -> int:
    """Returns where a word of a text begins, with the white space before it; 0 or the end for one outside the text."""
    if not 0 < number < num_words:
        return 0 if number <= 0 else len(text)
    return next(itertools.islice(_WORD.finditer(text), number - 1, None)).end()


def _separate_lines(text: str) -> str:
    return text.replace('\n', '\n\n')


def cut(parts: Iterable[str], keeps_empty: bool = False) -> Iterator[Piece]:
    """Cuts a text, given in parts of any length, into pieces; the parts of an empty text make one empty piece."""
    held: list[str] = []
    num_held, limit = 0, PIECE_CHARACTERS
    begins_text = begins_paragraph = True
    for part in parts:
        for start in range(0, len(part), _PART_CHARACTERS):
            held.append(part[start : start + _PART_CHARACTERS])
            num_held += len(held[-1])
            if num_held < limit:
                continue
            text = ''.join(held)
            border, is_blank_line = _find_border(text)
            if border:
                yield Piece(text[:border], begins_text, begins_paragraph, keeps_empty=keeps_empty)
                begins_text, begins_paragraph = False, is_blank_line
            held, num_held = [text[border:]], len(text) - border
            limit = PIECE_CHARACTERS if border else 2 * num_held  # so that a long word takes linear time
    text = ''.join(held)
    if text or begins_text:
        yield Piece(text, begins_text, begins_paragraph, keeps_empty=keeps_empty)


def _find_border(text: str) -> tuple[int, bool]:
    """Returns the last position at which a text may be cut, 0 for none, and whether a blank line is before it.

    After a border that is no blank line a word follows, and one is before it, so that no blank line is split.
    """
    border = 0
    for match in BLANK_LINES.finditer(text):
        border = match.end()
    if border:
        return border, True
    words = text.rstrip()
    border = words.rfind('\n') + 1
    if not words[:border].strip():
        border = len(words) - len(words.rsplit(None, 1)[-1]) if words else 0
    return (border if words[:border].strip() else 0), False
