"""Writes safetensors files with a checksum, and reads them as memory-mapped arrays.

The SHA-256 checksum is stored in the header's metadata. It covers the data and the header, with zeros in place of the
checksum.
"""

import hashlib
import json
import mmap
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from nplm_jax.data.mapped_arrays import chunks
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import open_atomically
from nplm_jax.utils.untrusted import open_regular, parse_json

_DTYPES = {'I64': 'i8', 'I32': 'i4', 'F64': 'f8', 'F32': 'f4', 'U16': 'u2', 'U8': 'u1', 'BOOL': '?'}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
_METADATA, _DIGEST = '__metadata__', 'sha256'
_NO_DIGEST = '0' * 64
_MAX_HEADER = 2**22  # bytes; a model of order 100, the maximum for ARPA files, has 500 arrays
_CHUNK_SIZE = 2**22  # bytes hashed at once


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes the arrays and the metadata atomically.

    Raises:
        OSError: The file cannot be written. An existing file at `path` remains unchanged.
    """
    header: dict[str, Any] = {_METADATA: {**metadata, _DIGEST: _NO_DIGEST}}
    end, digest = 0, hashlib.sha256()
    # With the widest elements first, every array is aligned.
    by_width = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
    for name, array in by_width.items():
        start, end = end, end + array.nbytes
        header[name] = {'dtype': _NAMES[array.dtype], 'shape': array.shape, 'data_offsets': (start, end)}
    with open_atomically(path) as file:
        file.write(_pack(header))
        for array in by_width.values():
            for chunk in chunks(array):
                data = chunk.tobytes()
                file.write(data)
                digest.update(data)
        digest.update(_pack(header))
        header[_METADATA][_DIGEST] = digest.hexdigest()
        file.seek(0)
        file.write(_pack(header))


def read(path: pathlib.Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads a file written by `write`.

    Returns:
        The read-only arrays, and the metadata.

    Raises:
        BadInput: The file is unreadable or damaged.
    """
    with open_regular(str(path), path) as file:
        try:
            size = int.from_bytes(file.read(8), 'little')
            header = parse_json(path, file.read(min(size, _MAX_HEADER)).decode())
            metadata, digest = header[_METADATA], hashlib.sha256()
            expected, metadata[_DIGEST] = metadata.pop(_DIGEST), _NO_DIGEST
            while chunk := file.read(_CHUNK_SIZE):
                digest.update(chunk)
            digest.update(_pack(header))
            if digest.hexdigest() != expected:
                raise ValueError
            del header[_METADATA], metadata[_DIGEST]
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8, offset=8 + size)
            return {name: _array(data, **entry) for name, entry in header.items()}, metadata
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
            what = 'the file is damaged (wrong checksum or malformed header)'
            raise BadInput(path, f'{what}; delete the file to estimate the model again') from None


def _pack(header: Mapping[str, Any]) -> bytes:
    """Encodes a header, preceded by its length."""
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    return len(text).to_bytes(8, 'little') + text


def _array(data: np.ndarray, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray:
    """Returns the array that a header entry describes."""
    start, end = data_offsets
    return data[start:end].view(_DTYPES[dtype]).reshape(shape)
