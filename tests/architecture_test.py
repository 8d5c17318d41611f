"""A room imports only from the rooms below it, no modules import each other in a circle, no test imports a test."""

import ast
import graphlib
import pathlib
import shutil
import subprocess
import sys

import grimp
import pytest

from tests import nested_calls

ROOT = pathlib.Path(__file__).parents[1]
LINT_IMPORTS = [sys.executable, '-c', 'from importlinter.cli import lint_imports_command as c; c()', '--no-cache']


def lint_imports(folder):
    """Checks the contracts of pyproject.toml on the package in a folder."""
    return subprocess.run(LINT_IMPORTS, cwd=folder, capture_output=True, text=True, timeout=120)


def copy_package(folder):
    shutil.copytree(ROOT / 'nplm_jax', folder / 'nplm_jax', ignore=shutil.ignore_patterns('__pycache__'))
    shutil.copy(ROOT / 'pyproject.toml', folder)


def test_a_room_imports_only_from_the_rooms_below_it():
    done = lint_imports(ROOT)
    assert done.returncode == 0 and '2 kept, 0 broken' in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    'lines',
    [
        'from nplm_jax.training import loop',
        'def later():\n    import nplm_jax.training.loop',
        'from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nplm_jax.training.loop import Trainer',
    ],
)
def test_an_upward_import_is_seen(tmp_path, lines):
    copy_package(tmp_path)
    with (tmp_path / 'nplm_jax' / 'outputs' / 'softmax.py').open('a') as file:
        file.write(f'\n{lines}\n')
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert 'nplm_jax.outputs.softmax -> nplm_jax.training.loop' in done.stdout


def test_a_room_that_the_contract_does_not_name_is_seen(tmp_path):
    copy_package(tmp_path)
    (tmp_path / 'nplm_jax' / 'attic').mkdir()
    (tmp_path / 'nplm_jax' / 'attic' / '__init__.py').write_text('')
    done = lint_imports(tmp_path)
    assert done.returncode == 1 and 'attic' in done.stdout


def imports(*packages):
    """Every module with the modules that it imports, anywhere in it."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    # The name of an app that was deleted is taken for one of the package that lists it.
    return {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}


def test_the_platform_is_that_of_the_devices_used_and_never_the_default_one():
    """A program compiled ahead of time for a TPU, on a machine that has none, is the program of a TPU."""
    assert [str(file) for file in (ROOT / 'nplm_jax').rglob('*.py') if 'default_backend' in file.read_text()] == []


def test_no_modules_import_each_other_in_a_circle():
    by_module = imports('nplm_jax', 'configs', 'experiments')
    assert len(by_module) > 90
    graphlib.TopologicalSorter(by_module).prepare()  # raises CycleError


def test_the_package_stands_alone():
    by_module = imports('nplm_jax', 'configs', 'experiments')
    for module, imported in by_module.items():
        roots = {name.split('.')[0] for name in imported}
        allowed = {'nplm_jax': {'nplm_jax'}, 'configs': {'configs', 'nplm_jax'}}
        assert roots <= allowed.get(module.split('.')[0], roots), module


def test_no_test_imports_a_test():
    modules = {path.stem for path in ROOT.glob('tests/**/*_test.py')}
    for path in ROOT.glob('tests/**/*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [
                alias.name for alias in getattr(node, 'names', []) if isinstance(node, ast.Import | ast.ImportFrom)
            ]
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert not {name.split('.')[-1] for name in names} & modules, f'{path}:{node.lineno}'


DEFAULT = ('--config.output.kind=sampled', '--config.optimizer.name=rowwise_adam')


@pytest.mark.parametrize('flags,most', [((), 15), (DEFAULT, 18)], ids=['the paper', 'sampled, rowwise_adam'])
def test_few_calls_nest_from_launch_to_the_depth_of_an_update(flags, most):
    calls = nested_calls.deepest(*flags)
    assert calls[0] == 'cli/launch.py main' and nested_calls.UPDATE in calls
    assert len(calls) <= most, calls
