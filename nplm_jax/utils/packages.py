"""Optional packages: imports that name the extra to install. Does not import JAX."""

import importlib
import types
from typing import Any

from nplm_jax.utils.errors import BadInput, first_line


def require_package(module: str, extra: str, further: str = '') -> types.ModuleType:
    """Imports a module of an optional package.

    Args:
        module: The module, such as `safetensors.numpy`.
        extra: The extra of nplm-jax that installs its package.
        further: A shell command that the package needs after the extra.

    Returns:
        The module.

    Raises:
        BadInput: The module cannot be imported; the key is the name of the package.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        install = ' && '.join(filter(None, (f'pip install "nplm-jax[{extra}]"', further)))
        raise BadInput(module.partition('.')[0], f'{first_line(error)}; {install}') from None


class OptionalPackage:
    """A module of an optional package, imported by `require_package` when one of its members is first used."""

    def __init__(self, module: str, extra: str) -> None:
        self._names = module, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(require_package(*self._names), name)
