"""Matrices of floats in a .npz of NumPy. Sizes are compared with limits before anything is inflated."""

import math
import pathlib
import re
import zipfile

import numpy as np

from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import open_regular
from nplm_jax.utils.zips import PIECE, open_zip

_MAX_ARRAYS = 10_000
_MAX_BYTES = 2**32  # of all arrays
_MAX_RATIO, _FREE_BYTES = 100, 2**24  # of a file that is compressed: 100 times its size, and 16 MiB for a small one
_SUFFIX = '.npy'
_MAGIC = re.compile(rb'\x93NUMPY(?:(\x01\x00)(..)|(\x02\x00)(....))', re.DOTALL)  # version, length of the header
_HEADER = re.compile(
    rb"\{'descr': '([<>]f[248])', 'fortran_order': (True|False), 'shape': \((\d{1,18}), (\d{1,18})\),? *\} *\n?"
)
_MAX_HEADER = 2**10


def read(name: str, path: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file by name.

    Args:
        name: The beginning of error messages.
        path: The file, as `numpy.savez` or `numpy.savez_compressed` writes it.

    Raises:
        BadInput: The file cannot be read, is damaged or too large, or has anything else than matrices of floats.
    """
    arrays: dict[str, np.ndarray] = {}
    with open_regular(name, path) as file, open_zip(f'{name}: cannot be read', file, _MAX_ARRAYS) as archive:
        total, limit = sum(entry.file_size for entry in archive.infolist()), _MAX_RATIO * path.stat().st_size
        limit = min(_MAX_BYTES, limit + _FREE_BYTES)
        if total > limit:
            raise BadInput(f'{name}: its arrays declare {total:,} bytes; {limit:,} at most for a file of this size')
        for entry in archive.infolist():
            array_name = entry.filename.removesuffix(_SUFFIX)
            if array_name in arrays or array_name == entry.filename or not array_name.isprintable():
                raise BadInput(f'{name}: unexpected file {entry.filename[:100]!r} in the archive')
            arrays[array_name] = _read_array(f'{name}: {array_name[:100]}', archive, entry)
    return arrays


def _read_array(name: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """Returns the array of a member. Raises BadInput if it is no matrix of floats, or not of the size it declares."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadInput(f'{name}: compressed in a way that numpy.savez_compressed does not use')
    with archive.open(entry) as member:
        start = member.read(8)
        start += member.read(2 if start[6:7] == b'\1' else 4)
        magic = _MAGIC.fullmatch(start)
        length = int.from_bytes(magic[2] or magic[4], 'little') if magic else 0
        text = member.read(min(length, _MAX_HEADER))
        header = _HEADER.fullmatch(text)
        if not header:
            raise BadInput(f'{name}: must be floats, frames x tokens, not {text.decode("latin-1")[:200]!r}')
        dtype, shape = np.dtype(header[1].decode()), (int(header[3]), int(header[4]))
        size = math.prod(shape) * dtype.itemsize
        if size != entry.file_size - len(start) - length:
            raise BadInput(f'{name}: damaged ({shape[0]:,} x {shape[1]:,} numbers declared, another size stored)')
        data = b''.join(iter(lambda: member.read(PIECE), b''))
    if len(data) != size:
        raise BadInput(f'{name}: damaged (cut)')
    return np.frombuffer(data, dtype).reshape(shape, order='F' if header[2] == b'True' else 'C')
