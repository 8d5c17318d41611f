"""Reads plain or compressed ARPA files in blocks. If a file has another known format, the error names that format."""

import io
import os
import pathlib
from collections.abc import Iterator

from nplm_jax.data import formats
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.progress import progress_bar
from nplm_jax.utils.untrusted import decode_lines, open_regular

_MAX_BYTES = 2**32  # maximum size of the text
_MAX_RATIO, _FREE_BYTES = 200, 2**26  # maximum ratio of a text above _FREE_BYTES to its compressed size
_MAX_LINE = 2**20  # maximum size of a line, bytes
_START = 512  # bytes read to identify the file format
_IRSTLM = 'convert it with `compile-lm --text=yes FILE FILE.arpa`'
_FOREIGN = {
    b'version https://git-lfs': 'a Git LFS pointer, not the model; run `git lfs pull` to get the model',
    b'mmap lm http://kheafield.com/code': 'a binary file of KenLM; use the ARPA file that it was built from',
    b'iarpa': f'an iARPA file of IRSTLM; {_IRSTLM}',
    b'blmt': f'a binary file of IRSTLM; {_IRSTLM}',
    b'srilm_binary': 'a binary file of SRILM; convert it with `ngram -lm FILE -write-lm FILE.arpa`',
    b'<!doctype html': 'a web page, not the model; download it again',
    b'<html': 'a web page, not the model; download it again',
    b'<?xml': 'an XML file, not the model; download it again',
    b'pk\3\4': 'a zip archive; unpack the archive first',
}


def read_blocks(path: pathlib.Path, size: int) -> Iterator[tuple[int, str, bytes]]:
    """Yields the lines of a file in blocks of about `size` bytes and shows a progress bar.

    The text may be compressed with gzip, bzip2, xz or Zstandard. The compression is detected from the first bytes of
    the file rather than from its name.

    Args:
        path: The path of the file.
        size: The approximate size of a block, in bytes. Each block ends with a complete line.

    Yields:
        Three values per block: the number of its first line, counting from 1; its text; and its bytes.

    Raises:
        BadInput: The file is unreadable, damaged, too large, empty, not text, or in another known format. The message
            names the format.
    """
    name = str(path)
    with open_regular(name, path) as opened:
        file_size = os.fstat(opened.fileno()).st_size
        compression = formats.find_compression(opened)
        max_bytes = min(_MAX_BYTES, max(_FREE_BYTES, _MAX_RATIO * file_size)) if compression else _MAX_BYTES
        with (
            formats.decompress(name, opened, compression) as content,
            progress_bar(file_size, f'reading {path.name}', ' bytes') as bar,
        ):
            _refuse_foreign(name, content)
            number, num_bytes, position = 1, 0, 0
            while data := content.read(size) + content.readline(_MAX_LINE):
                num_bytes += len(data)
                if num_bytes > max_bytes:
                    raise BadInput(name, f'must contain at most {max_bytes:,} bytes of text')
                if not data.endswith(b'\n') and content.peek(1):
                    line = number + data.count(b'\n')
                    raise BadInput(f'{name}:{line}', f'must be a line of at most {_MAX_LINE:,} bytes')
                text = data.decode(errors='replace').removeprefix('\ufeff' if number == 1 else '')
                if '\0' in text or '\ufffd' in text:  # a line is invalid UTF-8 or contains U+FFFD
                    text = ''.join(line for _, line in decode_lines(path, data, number))
                bar.update(opened.tell() - position)
                yield number, text, text.encode()
                number, position = number + data.count(b'\n'), opened.tell()


def is_arpa(path: pathlib.Path) -> bool:
    """Returns whether a file begins like an ARPA file. Raises BadInput under the same conditions as `read_blocks`."""
    for _, text, _ in read_blocks(path, _START):
        for line in map(str.strip, text.split('\n')):
            if line and not line.startswith('#'):
                return line == '\\data\\'
    return False


def _refuse_foreign(name: str, content: io.BufferedReader) -> None:
    """Raises BadInput if a file is empty or of a known format other than ARPA."""
    start = content.peek(_START)[:_START]
    if not start:
        raise BadInput(name, 'is empty')
    if start[257:262] == b'ustar':
        raise BadInput(name, 'is a tar archive; unpack the archive first')
    for magic, kind in _FOREIGN.items():
        if start.lstrip().lower().startswith(magic):
            raise BadInput(name, f'is {kind}')
