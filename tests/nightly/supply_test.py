"""Tests that the lock file, the oldest versions, the licence and the wheel agree with the requirements."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

from helpers import ROOT
from packaging.markers import Marker
from packaging.requirements import Requirement


def requirements(name):
    """Returns the requirements in a file."""
    return [Requirement(line) for line in (ROOT / name).read_text().splitlines() if not line.startswith('#')]


PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())
RUNTIME = requirements('requirements.txt')
DEV = [Requirement(line) for line in PROJECT['dependency-groups']['dev']]
REQUIRED = RUNTIME + DEV
LOCK = (ROOT / 'requirements.lock').read_text()


def test_the_lock_pins_what_is_required_on_every_python_and_by_hash():
    code = ' '.join(line for line in LOCK.splitlines() if not line.lstrip().startswith('#')).replace('\\', '')
    locked = [Requirement(entry.split(' --hash')[0]) for entry in re.split(r' (?=[\w.-]+==)', code)]
    assert code.count('==') >= len(locked) > len(REQUIRED)
    for entry in re.split(r' (?=[\w.-]+==)', code):
        assert len(re.findall(r'--hash=sha256:[0-9a-f]{64}\b', entry)) >= 1, entry
    for python in ('3.11', '3.12', '3.13'):
        environment = {'python_version': python, 'python_full_version': f'{python}.0', 'sys_platform': 'linux'}
        by_name = {
            r.name.replace('-', '_').lower(): r
            for r in locked
            if r.marker is None or Marker(str(r.marker)).evaluate(environment)
        }
        for required in REQUIRED:
            (pin,) = by_name[required.name.replace('-', '_').lower()].specifier
            assert pin.operator == '==' and pin.version in required.specifier


def test_the_lock_names_no_host_and_no_path():
    assert not re.search(r'https?:|file:|index-url|find-links|trusted-host', LOCK)
    assert not re.search(r'(?<![\w-])/\w', LOCK)


def test_the_oldest_versions_are_lower_ends():
    oldest = requirements('.ci/oldest.txt')
    lower = {r.name: next(s.version for s in r.specifier if s.operator == '>=') for r in RUNTIME}
    assert all(lower[r.name] == next(iter(r.specifier)).version for r in oldest) and oldest[0].name == 'jax'


def imported(*files):
    """Returns the names of the packages that the files import."""
    names = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split('.')[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split('.')[0])
    return names - sys.stdlib_module_names


def test_the_package_imports_only_what_it_requires():
    required = {re.sub('-.*', '', r.name.replace('absl-py', 'absl')).lower() for r in RUNTIME}
    optional = {'sklearn', 'nicegui', 'onnx', 'safetensors', 'pyarrow', 'backports'}
    optional |= {'pydantic', 'starlette', 'uvicorn'}  # installed with NiceGUI
    optional |= {'rapidfuzz', 'lm_eval', 'jax2onnx'}
    optional |= {'optuna', 'sqlalchemy'}  # SQLAlchemy is installed with Optuna
    optional |= {'distributed'}  # for --scheduler
    optional |= {'submitit', 'cloudpickle'}  # for --launcher
    optional |= {'ipython'}  # for notebooks
    optional |= {'torch', 'transformers'}  # for the file that an export copies
    names = imported(*(ROOT / 'nplm_jax').rglob('*.py'), *(ROOT / 'configs').glob('*.py'), ROOT / 'launch.py')
    assert {name.lower() for name in names} - {'nplm_jax', 'configs'} - optional <= required
    assert required - {name.lower() for name in names} <= {'orbax'}


def test_pip_install_brings_no_development_tool():
    assert PROJECT['tool']['setuptools']['dynamic']['dependencies'] == {'file': ['requirements.txt']}
    assert not {r.name for r in RUNTIME} & {r.name for r in DEV}


def test_a_wheel_from_the_source_distribution_holds_the_package_and_nothing_else(tmp_path):
    copy, ignored = tmp_path / 'copy', shutil.ignore_patterns('__pycache__')
    for name in ('nplm_jax', 'configs', 'tests', 'experiments'):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for name in ('pyproject.toml', 'README.md', 'LICENSE', 'requirements.txt'):
        shutil.copy(ROOT / name, copy)
    build = f'from setuptools import build_meta; print(build_meta.build_sdist({str(tmp_path)!r}))'
    subprocess.run([sys.executable, '-c', build], cwd=copy, check=True, timeout=300)
    pip = [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-build-isolation']
    subprocess.run([*pip, '--wheel-dir', tmp_path, *tmp_path.glob('*.tar.gz')], check=True, timeout=300)
    with zipfile.ZipFile(next(tmp_path.glob('*.whl'))) as wheel:
        files = {name for name in wheel.namelist() if '.dist-info/' not in name}
        (metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith('.dist-info/METADATA'))
        (entries,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith('/entry_points.txt'))
    package = [
        ROOT / 'nplm_jax' / 'py.typed',
        *(p for kind in ('py', 'css', 'html', 'js') for p in (ROOT / 'nplm_jax').rglob(f'*.{kind}')),
    ]
    configs = {f'nplm_jax/{p.relative_to(ROOT).as_posix()}' for p in (ROOT / 'configs').glob('*.py')}
    assert files == configs | {p.relative_to(ROOT).as_posix() for p in package} and len(configs) > 5
    assert 'nplm = nplm_jax.cli.__main__:main' in entries
    assert '# nplm-jax\n' in metadata and 'Requires-Dist: jax' in metadata and 'Requires-Dist: pytest' not in metadata


def test_the_licence():
    assert PROJECT['project']['license'] == 'MIT'
    text = (ROOT / 'LICENSE').read_text()
    assert text.startswith('MIT License\n\nCopyright 2026 the nplm-jax authors\n') and 'WITHOUT WARRANTY' in text
