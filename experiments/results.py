"""What the tables' scripts share: committed results, and one line when one of them is missing."""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from nplm_jax.errors import BadInput
from nplm_jax.files import write_atomically


def read(folder: pathlib.Path, row: str) -> dict[str, Any]:
    """The results.json that was committed as ROW.json. Raises: BadInput naming the file when it was not."""
    path = folder / f'{row}.json'
    if not path.exists():
        raise BadInput(f'{path}: missing; run that row and copy its results.json here')
    return json.loads(path.read_text())


def write(path: pathlib.Path, found: dict[str, Any]) -> None:
    """Writes what a study measured, whole or not at all."""
    write_atomically(path, json.dumps(found, indent=2) + '\n')


def show(make: Callable[[], str]) -> None:
    """Prints what `make` makes, or ends with its complaint and exit code 1."""
    try:
        print(make())
    except BadInput as error:
        sys.exit(str(error))
