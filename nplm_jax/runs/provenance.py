"""What a result must say of where it comes from."""

from __future__ import annotations

import os
import pathlib
import platform
import resource
import subprocess
import sys
from importlib import metadata
from typing import Any

import jax

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')


def provenance() -> dict[str, Any]:
    """Commit, versions and device of this process."""
    return {
        'commit': _commit(),
        'versions': {'python': platform.python_version(), **{p: metadata.version(p) for p in _PACKAGES}},
        'device': f'{jax.device_count()} x {jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores ({_processor()})',
    }


def _commit() -> str:
    """The repository's commit, with -dirty when files differ from it; 'unknown' outside one."""
    here = str(pathlib.Path(__file__).parent)
    git = ['git', '-C', here, *'describe --always --dirty --abbrev=12 --exclude=*'.split()]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return 'unknown'


def peak_memory() -> int:
    """The most bytes this process has held; macOS counts them in bytes, Linux in kibibytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == 'darwin' else 1024)


def _processor() -> str:
    """The CPU's name."""
    info = pathlib.Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    return next((x.split(':')[1].strip() for x in lines if x.startswith('model name')), platform.processor())
