"""What the tables' scripts share: committed results, and one line when one of them is missing."""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_json, write_atomically


def read(folder: pathlib.Path, row: str) -> dict[str, Any]:
    """The results.json that was committed as ROW.json. Raises: BadInput naming it when it is missing or damaged."""
    path = folder / f'{row}.json'
    if not path.exists():
        raise BadInput(f'{path}: missing; run that row and copy its results.json here')
    return read_json(path)


def write(path: pathlib.Path, found: dict[str, Any]) -> None:
    """Writes what a study measured, whole or not at all."""
    write_atomically(path, json.dumps(found, indent=2) + '\n')


def show(make: Callable[[], str]) -> None:
    """Prints what `make` makes, or ends with its complaint and exit code 1: results may lack what a table shows."""
    try:
        print(make())
    except BadInput as error:
        sys.exit(str(error))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        sys.exit(str(BadInput(f'the results are not of the form that this table shows ({error!r})')))
