"""Finds text files and reads them in chunks of about a million characters.

Each row of a .jsonl file (one JSON object per line), .parquet file or .arrow file (in folders saved by Hugging Face's
`datasets`) is a text. Any other file, such as .txt, is one UTF-8 text. Text and .jsonl files may be compressed (.gz,
.zst).
"""

import functools
import glob
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.data import formats
from nplm_jax.data.tokenizers.tokenizer import BLANK_LINES, TextChunk
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import decode_blocks, open_regular, read_json

CHUNK_CHARACTERS = 2**20
_BLOCK_BYTES = 2**18  # bytes per read
_SEARCH_CHARACTERS = 2**18  # characters between searches for the end of a chunk
_WORD = re.compile(r'\S+', re.ASCII)


class TextSource(NamedTuple):
    """The source of a whole corpus, or of its training, validation or test text.

    Attributes:
        read: A function that returns a new iterator over the chunks of the text.
        files: The files that contain the text if it is the user's own.
        choices: All values other than the files that determine the chunks.
        key: The config key of the text, for error messages, or '' for a published corpus.
        has_lines: Whether each line is a paragraph.
    """

    read: Callable[[], Iterable[TextChunk]]
    files: Sequence[pathlib.Path] = ()
    choices: Sequence[Any] = ()
    key: str = ''
    has_lines: bool = False


def find_files(key: str, path: str) -> list[pathlib.Path]:
    """Finds the files at a path in the config.

    Args:
        key: The config key, for error messages.
        path: A file, a folder, or a glob pattern if no file has this name. Folders are searched recursively. If a
            folder saved by `datasets` has several splits, the split `train` is used. Hidden files and symbolic links,
            except the path itself, are ignored.

    Returns:
        The files, sorted by path. The files in a `datasets` folder are in row order.

    Raises:
        BadInput: There is no such file.
    """
    root = expand(key, path)
    if not os.path.exists(root) and glob.has_magic(path):
        matches = sorted({*map(pathlib.Path, glob.glob(str(root), recursive=True))})  # `**/**` finds files twice
        num_fixed = sum(1 for _ in itertools.takewhile(lambda part: not glob.has_magic(part), root.parts))
        regular = (p for p in matches if os.path.isfile(p))
        files = [p for p in regular if not any(q.is_symlink() for q in (p, *p.parents)[: len(p.parts) - num_fixed])]
        require(bool(files), key, path, 'no file matches this pattern (hidden files and links are ignored)')
        return files
    require(bool(path) and os.path.exists(root), key, path, 'the file or folder does not exist')
    if not os.path.isdir(root):
        return [root]
    if files := _find_dataset(key, root):
        return files
    regular = (p for p in root.rglob('*') if os.path.isfile(p) and not p.is_symlink())
    files = sorted(p for p in regular if not any(part.startswith('.') for part in p.relative_to(root).parts))
    require(bool(files), key, path, 'the folder contains no files')
    return files


def find_parts(paths: Mapping[str, str]) -> dict[str, list[pathlib.Path]]:
    """Finds the files of a text, or of its training, validation and test texts; see `find_files`.

    Args:
        paths: The path of each part by config key, the training text first.

    Raises:
        BadInput: A file is missing, or one of several files is both a training file and a validation or test file. All
            parts may consist of the same single file.
    """
    files = {key: find_files(key, path) for key, path in paths.items()}
    (_, train), *held_out = files.items()
    names = {os.path.realpath(file) for file in train} if held_out else set[str]()
    for key, group in held_out:
        for file in group:
            is_allowed = len(train) == len(group) == 1 or os.path.realpath(file) not in names
            require(is_allowed, key, str(file), 'must not be one of the files of corpus.path')
    return files


def _find_dataset(key: str, root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the .arrow files of a folder saved by `datasets`, or an empty list for other folders."""
    if os.path.isfile(root / 'dataset_dict.json'):
        splits = sorted(p.parent.name for p in root.glob('*/state.json'))
        message = f'the dataset has no split `train`; specify the folder of one split: {" or ".join(splits)}'
        require('train' in splits, key, str(root), message)
        root = root / 'train'
    state = root / 'state.json'
    if not (os.path.isfile(state) and os.path.isfile(root / 'dataset_info.json')):
        return []
    try:
        files = [root / pathlib.Path(data_file['filename']).name for data_file in read_json(state)['_data_files']]
    except (KeyError, TypeError):
        raise BadInput(state, 'must list the data files in the format of the `datasets` library') from None
    require(bool(files), key, str(root), 'the dataset contains no files')
    return files


def size(file: pathlib.Path) -> int:
    """Returns the size of a file in bytes. Raises BadInput if it is missing."""
    with open_regular(str(file), file) as opened:
        return os.fstat(opened.fileno()).st_size


def read_chunks(
    key: str, file: pathlib.Path, column: str, lines: bool = False, keeps_empty: bool = False
) -> Iterator[TextChunk]:
    """Reads the texts of a file in chunks, with only a few chunks or one block of rows in memory.

    Rows that contain only whitespace are skipped. A file that contains only whitespace is an empty text.

    Args:
        key: The config key, for error messages.
        file: The path of the file.
        column: The text column of .jsonl, .parquet and .arrow.
        lines: Whether each line is a paragraph; a blank line is then inserted after each line.
        keeps_empty: Whether empty lines are paragraphs too.

    Raises:
        BadInput: The file is missing, damaged, truncated or not text; a row lacks the column; or the package that
            reads the format is missing.
    """
    name = f'{key}={str(file)!r}'
    kind, compression = formats.split_suffix(file)
    with open_regular(name, file) as opened, formats.decompress(name, opened, compression) as content:
        if kind in formats.TABLES:
            rows = (text for _, texts in formats.read_batches(name, content, kind, column) for text in texts)
        elif kind == '.jsonl':
            rows = (text for _, text in formats.read_json_rows(file, content, column))
        else:
            blocks = decode_blocks(name, iter(functools.partial(content.read, _BLOCK_BYTES), b''))
            yield from cut(blocks, lines, keeps_empty)
            return
        for row in rows:
            if row and not row.isspace():
                yield from cut([row], lines, keeps_empty)


def count_words(text: str) -> int:
    """Returns the number of words in a text. Words are separated by ASCII whitespace."""
    return len(text.encode().split())


def read_words(read: Callable[[], Iterable[TextChunk]], start: int, stop: int) -> Iterator[TextChunk]:
    """Reads words [start, stop) of texts, including the whitespace before each word.

    Args:
        read: A function that returns the chunks of the texts.
        start: The index of the first word.
        stop: The index after the last word.
    """
    first = 0  # index of the first word of the chunk
    for chunk in read():
        num_words = count_words(chunk.text)
        begin, end = (_find_word(chunk.text, word - first, num_words) for word in (start, stop))
        if begin < end or (chunk.begins_text and start <= first < stop):
            yield TextChunk(
                chunk.text[begin:end], chunk.begins_text and not begin, chunk.begins_paragraph and not begin
            )
        first += num_words


def _find_word(text: str, number: int, num_words: int) -> int:
    """Returns the start of the whitespace before a word. If there is no such word, returns 0 or the end of the text."""
    if not 0 < number < num_words:
        return 0 if number <= 0 else len(text)
    return next(itertools.islice(_WORD.finditer(text), number - 1, None)).end()


def cut(blocks: Iterable[str], lines: bool = False, keeps_empty: bool = False) -> Iterator[TextChunk]:
    """Cuts a text, given in blocks of any length, into chunks. An empty text produces one empty chunk.

    Args:
        blocks: The blocks.
        lines: See `read_chunks`. Blank lines are inserted here, so that no chunk ends between the two newlines.
        keeps_empty: See `read_chunks`.
    """
    held: list[str] = []
    num_held, limit = 0, CHUNK_CHARACTERS
    begins_text = begins_paragraph = True
    for block in blocks:
        for start in range(0, len(block), _SEARCH_CHARACTERS):
            part = block[start : start + _SEARCH_CHARACTERS]
            held.append(part.replace('\n', '\n\n') if lines else part)
            num_held += len(held[-1])
            if num_held < limit:
                continue
            text = ''.join(held)
            border, is_blank_line = _find_border(text)
            if border:
                yield TextChunk(text[:border], begins_text, begins_paragraph, keeps_empty=keeps_empty)
                begins_text, begins_paragraph = False, is_blank_line
            held, num_held = [text[border:]], len(text) - border
            limit = CHUNK_CHARACTERS if border else 2 * num_held  # doubling keeps the time linear in a very long word
    text = ''.join(held)
    if text or begins_text:
        yield TextChunk(text, begins_text, begins_paragraph, keeps_empty=keeps_empty)


def _find_border(text: str) -> tuple[int, bool]:
    """Returns the last position where a text may be cut, and whether a blank line ends there.

    The position is 0 if the text must not be cut. If no blank line ends at the position, it has a word on each side, so
    a sequence of newlines is never cut.
    """
    border = 0
    for match in BLANK_LINES.finditer(text):
        border = match.end()
    if border:
        return border, True
    words = text.rstrip()
    border = words.rfind('\n') + 1
    if not words[:border].strip():
        # A subword may begin with the space before a word. KenLM does not split words at U+00A0 and similar characters.
        border = max(0, *map(words.rfind, ' \t'))
    return (border if words[:border].strip() else 0), False
