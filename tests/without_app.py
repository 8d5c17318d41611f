"""Deletes apps, with what imports them, in a clone of the last commit, and runs the tests that are left.

    python -m tests.without_app surprisal -n 2                     all of them
    python -m tests.without_app kenlm,surprisal --collect-only -q  arguments are pytest's
    python -m tests.without_app all -n 2                           the core alone

With an app go the apps that import it and the tests of each, and the studies, their tests and the notebooks that
import any of them. Nothing else imports an app; the names of one stay on the list of `nplm_jax/__init__.py`.
"""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable

import nplm_jax
from tests.deleted_apps import APPS

ROOT = pathlib.Path(__file__).parents[1]
LIST = 'nplm_jax/__init__.py'
PUBLIC_NAMES = tuple(f'nplm_jax/{name}.py' for names in APPS.values() for name in names)
MAY_IMPORT = (*PUBLIC_NAMES, 'experiments/', 'tests/experiments/')


def files_of(deleted: Iterable[str], root: pathlib.Path = ROOT) -> set[str]:
    """Returns the paths of the files that go with apps."""
    listed = subprocess.run(['git', 'ls-files'], cwd=root, capture_output=True, text=True, check=True)
    tracked = listed.stdout.splitlines()
    imported = {path: _imported(root / path) for path in tracked if path.endswith(('.py', '.ipynb')) and path != LIST}
    apps, gone = set(deleted), set[str]()
    while True:
        folders = tuple(f'{place}/apps/{name}/' for name in apps for place in ('nplm_jax', 'tests'))
        gone |= {path for path in tracked if path.startswith(folders)}
        modules = {path.removesuffix('.py').removesuffix('/__init__').replace('/', '.') for path in gone}
        modules |= {f'nplm_jax.{name}' for name, module in nplm_jax._MODULES.items() if f'nplm_jax.{module}' in modules}
        found = {path for path, names in imported.items() if names & modules} - gone
        if not found:
            break
        gone |= found
        apps |= {path.split('/')[2] for path in found if path.startswith('nplm_jax/apps/')}
    others = {path for path in gone if not path.startswith((*folders, *MAY_IMPORT))}
    assert not others, f'import one of {sorted(apps)}, or what imports it: {others}'
    return gone


def _imported(path: pathlib.Path) -> set[str]:
    """Returns the modules that a file imports anywhere in it, and what it takes from them or from `nplm_jax`."""
    text = path.read_text()
    names = {f'nplm_jax.{name}' for name in re.findall(r'\bnplm_jax\.(\w+)\(', text)}
    names |= {f'nplm_jax.{name}' for name in re.findall(r'\bfrom nplm_jax import (\w+)', text)}
    for node in ast.walk(ast.parse(text)) if path.suffix == '.py' else ():
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f'{node.module}.{alias.name}' for alias in node.names)}
    return names


def main() -> None:
    """Deletes and tests."""
    names, *arguments = sys.argv[1:] or ['']
    deleted = list(APPS) if names == 'all' else names.split(',')
    if not set(deleted) <= APPS.keys():
        sys.exit(f'python -m tests.without_app APP,... [PYTEST ARGUMENTS]: apps are {", ".join(APPS)}, or all')
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / 'clone'
        subprocess.run(['git', 'clone', '--quiet', ROOT, root], check=True)
        gone = files_of(deleted, root)
        subprocess.run(['git', 'rm', '-rq', *gone], cwd=root, check=True)
        print('gone:', *sorted(gone), sep='\n  ', flush=True)
        env = {**os.environ, 'PYTHONPATH': str(root)}
        sys.exit(subprocess.run([sys.executable, '-m', 'pytest', *arguments], cwd=root, env=env).returncode)


if __name__ == '__main__':
    main()
