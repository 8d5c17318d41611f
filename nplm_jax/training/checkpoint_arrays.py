"""Reads the arrays of checkpoints and computes their checksums."""

import json
import pathlib
import zlib
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts

Tree = TypeVar('Tree')
_CACHE_BYTES = 2**24  # size of the cache that prevents TensorStore from rereading the index for each array


def read_arrays(folder: pathlib.Path, example: Tree) -> Tree:
    """Reads the arrays of a checkpoint item, such as the training state, with TensorStore.

    This function waits for all arrays, even if one of them cannot be read. Orbax would close its event loop at the
    first error, and each later response from a TensorStore thread would then print a traceback.

    Args:
        folder: The folder that contains the item.
        example: An example of the item, which defines the structure, shapes and dtypes.

    Raises:
        ValueError: An array is damaged, or its shape or dtype differs from the example. Shapes and dtypes are compared
            before any array is read.
    """

    def describe(array: Any) -> str:
        return 'none' if array is None else f'{array.dtype.name}{list(array.shape)}'

    context = ts.Context({'cache_pool': {'total_bytes_limit': _CACHE_BYTES}})
    kvstore = {'driver': 'ocdbt', 'base': {'driver': 'file', 'path': f'{folder}/'}}
    keys = [key.decode() for key in ts.KvStore.open(kvstore, context=context).result().list().result()]
    names = [name for name, _, file in (key.rpartition('/') for key in keys) if file == '.zarray']
    opening = [
        ts.open({'driver': 'zarr', 'kvstore': {**kvstore, 'path': f'{name}/'}}, context=context) for name in names
    ]
    existing = dict(zip(names, _wait_for_all(opening)))
    expected = ocp.tree.to_flat_dict(example, sep='.')
    for name in sorted(existing.keys() | expected.keys()):
        in_checkpoint, by_config = describe(existing.get(name)), describe(expected.get(name))
        if in_checkpoint != by_config:
            raise ValueError(f'{folder.name}.{name}: {in_checkpoint} in the checkpoint but {by_config} in the config')
    arrays = _wait_for_all([array.read() for array in existing.values()])
    return ocp.tree.from_flat_dict({**expected, **dict(zip(existing, arrays))}, example, sep='.')


def _wait_for_all(futures: list[Any]) -> list[Any]:
    """Waits for all futures. Then returns their results, or raises the first error if any of them failed."""
    for future in futures:
        future.exception()
    return [future.result() for future in futures]


def checksum_of(tree: Any, progress: dict[str, Any]) -> int:
    """Computes the CRC-32 of the progress and of every array's name, dtype, shape and bytes."""
    total = zlib.crc32(json.dumps(progress, sort_keys=True).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.ascontiguousarray(leaf)
        name = jax.tree_util.keystr(path, simple=True, separator='.')
        total = zlib.crc32(f'{name}{array.dtype}{array.shape}'.encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)  # bfloat16 has no buffer protocol
    return total
