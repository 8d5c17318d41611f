"""Functions that read and write the results of the studies."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import settings as config_lib
from nplm_jax.config.keys import list_keys
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.untrusted import read_json

HERE = pathlib.Path(__file__).parent
_loaded: list[tuple[pathlib.Path, dict[str, Any]]] = []


def folder(study: str) -> pathlib.Path:
    """Returns the folder of a study's committed results, such as experiments/paper/table1/results for `table1`."""
    (found,) = HERE.glob(f'*/{study}/results')
    return found


def study_of(path: pathlib.Path) -> str:
    """Returns the name of the study to which a file belongs, the inverse of `folder`."""
    return path.relative_to(HERE).parts[1]


def read(folder: pathlib.Path, row: str) -> dict[str, Any]:
    """Returns the results.json that is committed as ROW.json. Raises BadInput if it is missing or damaged."""
    path = folder / f'{row}.json'
    if not path.exists():
        raise BadInput(path, 'is missing; run this row and copy its results.json to this path')
    return load(path)


def load(path: pathlib.Path) -> dict[str, Any]:
    """Returns the content of a committed file. The note below a study's table depends on the files the study loads."""
    content = read_json(path)
    _loaded.append((path, content))
    return content


@contextlib.contextmanager
def loaded() -> Iterator[dict[pathlib.Path, dict[str, Any]]]:
    """Yields a dictionary. After the block, it maps the files that `load` read in the block to their contents."""
    before = len(_loaded)
    files: dict[pathlib.Path, dict[str, Any]] = {}
    try:
        yield files
    finally:
        files.update(_loaded[before:])
        del _loaded[before:]


def write(path: pathlib.Path, measured: dict[str, Any]) -> None:
    """Writes the results of a study atomically. Creates the folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(measured, indent=2, allow_nan=False) + '\n')


def write_each(path: pathlib.Path, states: Iterable[dict[str, Any]]) -> None:
    """Writes the results after each row, so that an interrupted study keeps the rows it has measured.

    Args:
        path: The file.
        states: The results so far, after each row.
    """
    for measured in states:
        write(path, measured)


def changed_keys(config: ConfigDict) -> dict[str, Any]:
    """Returns the keys of a config that differ from their defaults, except its name and seed."""
    keys = {key.name: key.value for key in list_keys(config_lib.from_config(config)) if key.value != key.default}
    return {key: value for key, value in keys.items() if key not in ('name', 'seed')}
