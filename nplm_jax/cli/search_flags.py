"""The flags of a hyperparameter search, and the search that they ask for. Imports no JAX, and Optuna only to search."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import ConfigDict

from nplm_jax.utils.errors import BadInput

if TYPE_CHECKING:
    from nplm_jax.sweeps.search import Search

_SEARCH = flags.DEFINE_integer('search', None, "Run trials of the config file's search(trial) until there are N.", 1)
_STORAGE = flags.DEFINE_string(
    'storage', None, 'PostgreSQL URL for --search; default: $NPLM_STORAGE, else a SQLite file in the workdir.'
)
_NEEDED = {'optuna': 'Optuna', 'sqlalchemy': 'SQLAlchemy'}  # by module


def is_search() -> bool:
    """Returns whether the flags ask for a search."""
    return _SEARCH.value is not None


def check(excluded: Iterable[flags.FlagHolder[Any]]) -> None:
    """Raises BadInput for --storage without --search, and for flags that cannot be used with it."""
    if _STORAGE.value is not None and not is_search():
        raise BadInput('--storage', 'needs --search')
    for flag in excluded:
        if flag.value and is_search():
            raise BadInput('--search', f'cannot be used with --{flag.name}', value=_SEARCH.value)


def make_search(
    folder: pathlib.Path,
    file: str,
    config: ConfigDict,
    words: tuple[str, ...],
    worker: int | None = None,
) -> Search:
    """Returns the search that the flags ask for; nothing is trained, and no database is opened.

    Args:
        folder: the folder of the search.
        file: the value of --config.
        config: the config.
        words: the command line that trains the config.
        worker: the number of this process of several.

    Raises:
        BadInput: a package is not installed, the config file has no search space or a wrong one, the folder cannot
            serve, or the database has a wrong URL.
    """
    for module, name in _NEEDED.items():
        if importlib.util.find_spec(module) is None:
            raise BadInput('--search', f'{name} is not installed: pip install "nplm-jax[search]"')
    from nplm_jax.runs import workdir
    from nplm_jax.sweeps import search, search_space, search_storage

    assert _SEARCH.value is not None
    workdir.check_path(folder / 'trial-0000')
    space = search_space.load(file.partition(':')[0], config)
    url = search_storage.find_url(_STORAGE.value, folder)
    return search.Search(space, folder, url, _SEARCH.value, words, worker)


def pass_storage() -> None:
    """Gives --storage to child processes in the environment: a command line would show its password."""
    if _STORAGE.value:
        os.environ['NPLM_STORAGE'] = _STORAGE.value
