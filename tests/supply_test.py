"""The lock, the oldest versions and the licence agree with what is required."""

import pathlib
import re
import tomllib

from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).parents[1]
REQUIRED = [
    Requirement(line) for line in (ROOT / 'requirements.txt').read_text().splitlines() if not line.startswith('#')
]
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
    oldest = [Requirement(x) for x in (ROOT / '.ci' / 'oldest.txt').read_text().splitlines() if not x.startswith('#')]
    lower = {r.name: next(s.version for s in r.specifier if s.operator == '>=') for r in REQUIRED}
    assert all(lower[r.name] == next(iter(r.specifier)).version for r in oldest) and oldest[0].name == 'jax'


def test_the_licence():
    assert tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['license'] == 'MIT'
    text = (ROOT / 'LICENSE').read_text()
    assert text.startswith('MIT License\n\nCopyright 2026 the nplm-jax authors\n') and 'WITHOUT WARRANTY' in text
