"""Imports optional packages, and computes a digest of this package's source. This module does not import JAX."""

import hashlib
import importlib
import importlib.metadata
import pathlib
import sys
import types
import unicodedata
from typing import Any

from nplm_jax.utils.errors import BadInput, first_line


def require_package(module: str, extra: str, further: str = '') -> types.ModuleType:
    """Imports a module from an optional package.

    Args:
        module: The module, such as `safetensors.numpy`.
        extra: The nplm-jax extra that installs the package.
        further: A shell command to run after installing the extra.

    Returns:
        The module.

    Raises:
        BadInput: The module cannot be imported. The message names the package and the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        install = ' && '.join(filter(None, (f'pip install "nplm-jax[{extra}]"', further)))
        raise BadInput(module.partition('.')[0], f'{first_line(error)}; install it with: {install}') from None


class OptionalPackage:
    """A proxy for a module from an optional package, which is imported when an attribute is first accessed."""

    def __init__(self, module: str, extra: str) -> None:
        self._names = module, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(require_package(*self._names), name)


def package_digest(*folders: str) -> str:
    """Returns the SHA-256 of this package's source and of the Python and package versions that affect tokenization.

    Args:
        *folders: The folders whose source to include. By default, all folders in the package.
    """
    root = pathlib.Path(__file__).parents[1]
    versions = [_version(name) for name in ('numpy', 'regex', 'tokenizers', 'sentencepiece')]
    total = hashlib.sha256(f'{sys.version_info[:2]} {unicodedata.unidata_version} {versions}'.encode())
    for file in sorted(file for folder in folders or [''] for file in (root / folder).rglob('*.py')):
        total.update(f'{file.relative_to(root)}\0'.encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _version(package: str) -> str:
    """Returns the version of a package, or an empty string if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ''
