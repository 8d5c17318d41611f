"""Named arrays in one file: NumPy's npz format without compression, with a checksum, mapped where they are large.

The comment that closes a zip archive, which an npz file is, holds the SHA-256 of the archive without comment.
"""

import hashlib
import mmap
import os
import pathlib
import struct
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from nplm_jax.models.ngram.scratch import IN_MEMORY
from nplm_jax.utils.errors import BadInput, first_line
from nplm_jax.utils.io import open_atomically, open_regular
from nplm_jax.utils.mapped_arrays import release

_NO_COMMENT = b'\0\0'  # how an archive without comment ends: the length of the comment
_DIGEST_LENGTH = 64
_PIECE = 2**22  # bytes
_ALIGNMENT = 64  # of arrays in the file, bytes
_LOCAL_HEADER, _ZIP64_FIELD, _FIELD_HEADER = 30, 20, 4  # sizes in a zip archive, bytes
_MAX_ARRAYS = 1000  # a model of order 100, the highest of an ARPA file, has 500
# Errors of a malformed zip archive or array header; such a file can carry a right checksum.
_MALFORMED = (
    zipfile.BadZipFile,
    struct.error,
    ValueError,
    TypeError,
    OverflowError,
    NotImplementedError,
    SyntaxError,
    MemoryError,  # this and the next: a header that is nested too deep for Python's parser
    RecursionError,
)
_PADDING_ID = 0xD935  # of an extra field that pads; Android's


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the arrays atomically.

    Raises:
        OSError: The disk refuses; an earlier file at `path` is unchanged.
    """
    with open_atomically(path) as file:
        with zipfile.ZipFile(file, 'w') as archive:
            for name, array in arrays.items():
                with archive.open(_member(f'{name}.npy', file.tell()), 'w', force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
                release(array)
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest = _digest(file, size - len(_NO_COMMENT))
        file.seek(size - len(_NO_COMMENT))
        file.write(len(digest).to_bytes(2, 'little') + digest)


def read(path: pathlib.Path, in_memory: int = IN_MEMORY) -> dict[str, np.ndarray]:
    """Reads the arrays that `write` wrote; large ones are mapped, and cannot be changed.

    Args:
        path: The file.
        in_memory: The size of the largest array that is read into memory, bytes.

    Raises:
        BadInput: The file cannot be read, or is damaged.
    """
    with open_regular(str(path), path) as file:
        size = os.fstat(file.fileno()).st_size
        archive_size = size - _DIGEST_LENGTH - len(_NO_COMMENT)
        is_intact = archive_size > 0 and _digest(file, archive_size) == file.read()[-_DIGEST_LENGTH:]
        if not is_intact:
            raise BadInput(f'{path}: damaged (its checksum is wrong); delete it to estimate the model again')
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
            if len(members) > _MAX_ARRAYS:  # which may all be the same bytes
                raise ValueError(f'{len(members):,} arrays')
            return {member.filename.removesuffix('.npy'): _array(file, data, member, in_memory) for member in members}
        except _MALFORMED as error:
            raise BadInput(f'{path}: damaged, not the archive of a model ({first_line(error)[:200]})') from None


def _digest(file: IO[bytes], size: int) -> bytes:
    """Returns the SHA-256, in hexadecimal digits, of the next `size` bytes as an archive without comment."""
    digest = hashlib.sha256()
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        digest.update(piece)
        size -= len(piece)
    digest.update(_NO_COMMENT)
    return digest.hexdigest().encode()


def _member(name: str, position: int) -> zipfile.ZipInfo:
    """Returns the entry of a file at a position of the archive, padded so that its content can be mapped."""
    info = zipfile.ZipInfo(name)
    content = position + _LOCAL_HEADER + len(name.encode()) + _ZIP64_FIELD + _FIELD_HEADER
    padding = -content % _ALIGNMENT
    info.extra = struct.pack('<HH', _PADDING_ID, padding) + bytes(padding)
    return info


def _array(file: IO[bytes], data: mmap.mmap, member: zipfile.ZipInfo, in_memory: int) -> np.ndarray:
    """Returns one array of an archive that is open as `file` and mapped as `data`."""
    file.seek(member.header_offset)
    name_length, extra_length = struct.unpack('<HH', file.read(_LOCAL_HEADER)[-4:])
    file.seek(member.header_offset + _LOCAL_HEADER + name_length + extra_length)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    if dtype.kind not in 'biufU' or not dtype.isnative:
        raise ValueError(f'an array of {dtype}')
    array = np.ndarray(shape, dtype, data, file.tell(), order='F' if is_fortran else 'C')
    # Earlier versions did not align their arrays.
    return array if array.flags.aligned and array.nbytes > in_memory else array.copy()
