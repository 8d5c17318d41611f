"""The apps that were deleted. The tests of the others and of the core hold without them (`tests/without_app.py`)."""

import pathlib
import pkgutil
from typing import Any

import pytest

import nplm_jax

APPS = {  # with the modules of nplm_jax that are only their public names
    'adaptive': (),
    'decoding': ('decoding',),
    'evaluation': ('lm_eval',),
    'explorer': (),
    'export': (),
    'features': (),
    'filter': (),
    'kenlm': ('kenlm',),
    'new_words': (),
    'pairs': (),
    'reading_times': (),
    'surprisal': (),
}
_ROOT = pathlib.Path(__file__).parents[1]
# Where the files of apps and those that import them are.
_PLACES = (
    'nplm_jax/apps/',
    'tests/apps/',
    'experiments/',
    *(f'nplm_jax/{name}.py' for n in APPS.values() for name in n),
)
DELETED = {name for name in APPS if not (_ROOT / 'nplm_jax' / 'apps' / name).is_dir()}


def require_app(name: str) -> None:
    """Skips a test where the app that it runs was deleted."""
    assert name in APPS
    if name in DELETED:
        pytest.skip(f'needs nplm_jax/apps/{name}, which was deleted')


def went_with_an_app(path: str) -> bool:
    """Whether a file is not there because an app was deleted: it is of that app, or a study, which may import one."""
    return bool(DELETED) and path.startswith(_PLACES) and not (_ROOT / path).exists()


def lost_names() -> set[str]:
    """Returns the public names of nplm_jax whose apps were deleted: they are on its list, and cannot be imported."""
    return {name for name, module in nplm_jax._MODULES.items() if DELETED & {name, *module.split('.')}}


def of_app(name: str) -> Any:
    """Returns a module or an object of an app, such as 'explorer.view'; skips the test where the app was deleted."""
    require_app(name.partition('.')[0])
    return pkgutil.resolve_name(f'nplm_jax.apps.{name}')
