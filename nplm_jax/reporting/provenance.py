"""Records the provenance of results: commit, package versions, device and memory."""

import os
import pathlib
import platform
import resource
import subprocess
import sys
from importlib import metadata
from typing import Any

import jax

from nplm_jax.reporting import catalog
from nplm_jax.utils.untrusted import sha256

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')


def provenance() -> dict[str, Any]:
    """Returns the commit, the package versions and the device of this process, under the keys of `results.json`."""
    return {
        'commit': _commit(),
        'versions': {'python': platform.python_version(), **{p: metadata.version(p) for p in _PACKAGES}},
        'device': f'{jax.device_count()} x {jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores ({_processor()})',
    }


def of_model(name: str, folder: str) -> dict[str, Any]:
    """Returns the name, path and digest of a finished run or ARPA file. For a run, adds its commits and versions."""
    path = catalog.expand_run(folder)
    recorded = catalog.finished(path) or {}
    origin: dict[str, Any] = {key: recorded[key] for key in ('commit', 'versions', 'origins') if key in recorded}
    digest = sha256('RUN', path) if path.is_file() else catalog.digest(path)
    return {'name': name, 'folder': str(path.resolve()), 'digest': digest, **origin}


def _commit() -> str:
    """Returns the commit of the repository that tracks this file, or 'unknown' if there is none.

    The commit ends in -dirty if tracked files are modified. Changes to documentation and to the results of studies are
    ignored: the runs of a study write results, but these do not affect later runs.
    """

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        folder = str(pathlib.Path(__file__).parent)
        return subprocess.run(['git', '-C', folder, *words], capture_output=True, text=True, timeout=10)

    others = ('**/*.md', '**/*.png', 'experiments/**/results/**')
    try:
        if git('ls-files', '--error-unmatch', pathlib.Path(__file__).name).returncode:  # the package is installed
            return 'unknown'
        commit = git('rev-parse', '--short=12', 'HEAD').stdout.strip()
        changes = git('diff', '--quiet', 'HEAD', '--', ':(top)', *(f':(top,exclude,glob){other}' for other in others))
    except (OSError, subprocess.SubprocessError):
        return 'unknown'
    return f'{commit}-dirty' if changes.returncode else commit or 'unknown'


def peak_memory() -> int:
    """Returns the peak resident memory of this process, in bytes."""
    unit = 1 if sys.platform == 'darwin' else 1024  # macOS reports bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _processor() -> str:
    """Returns the name of the CPU."""
    info = pathlib.Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(':')[1].strip() for line in lines if line.startswith('model name')), platform.processor())
