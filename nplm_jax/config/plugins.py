"""Plug-ins: parts of a run that a config names by import path, `package.module:Name`, and their options.

A body, an output layer, a schedule or a tokenizer is a frozen dataclass; its options are those of its fields that are
no keys of the package. A corpus or an optimizer is a function; its options are its keyword arguments. Every option has
a default.

A module is imported only if the user named it: folders and files of runs are data, and may come from a stranger. A
command names modules for its process and child processes, in an environment variable; `trust` names them for a block;
and in settings made from the user's own config, or with modules named, the import paths are `Trusted`.
"""

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import os
import pathlib
import sys
import sysconfig
import traceback
import types
import typing
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from nplm_jax.config.checked_fields import OPTION_TYPES, check_value
from nplm_jax.config.component import BUILT, KEY, SECTION, metadata_of
from nplm_jax.utils.errors import BadInput, first_line, require

IMPORT_PATH = 'an import path, package.module:Name'
ENVIRONMENT = 'NPLM_PLUGINS'  # the environment variable with the modules that the user named, separated by commas
_named: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar('plugins', default=())  # by `trust`
_digests: dict[str, tuple[Any, str]] = {}  # by module: the spec that it was imported by, and its digest
FUNCTIONS = ('optimizer.name', 'corpus.name')  # keys of plug-ins that are functions; the others are classes
_GIVEN = ('learning_rate',)  # arguments that the package passes, which are not options
DECAY = 'weight_decay'  # in the name of an optimizer's argument: 0 by default, since `optimizer.decay` decays


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a built-in part: none."""


class Trusted(str):
    """An import path in settings that may be imported."""


def is_path(name: str) -> bool:
    """Returns whether a name is an import path; other names are those of built-in parts."""
    return ':' in name


def module_of(path: str) -> str:
    """Returns the module of an import path."""
    return path.partition(':')[0]


def is_module(name: str) -> bool:
    """Returns whether a module can have this name, `package.module`."""
    return all(map(str.isidentifier, name.split('.')))


@contextlib.contextmanager
def trust(modules: Iterable[str]) -> Iterator[None]:
    """Lets a block import these modules as plug-ins, with the modules in them.

    Raises:
        BadInput: A name is not that of a module.
    """
    token = _named.set((*_named.get(), *_checked(modules)))
    try:
        yield
    finally:
        _named.reset(token)


def trust_in_process(modules: Iterable[str]) -> None:
    """Does what `trust` does for the rest of this process and for its child processes; only commands call it."""
    os.environ[ENVIRONMENT] = ','.join(dict.fromkeys([*allowed(), *_checked(modules)]))


def _checked(modules: Iterable[str]) -> list[str]:
    names = [modules] if isinstance(modules, str) else list(modules)
    for name in names:
        require(is_module(name), '--plugins', name, 'must be the name of a module, such as my_models')
    return names


def flags(modules: Iterable[str]) -> list[str]:
    """Returns the flag of a command that names modules; none without modules."""
    names = ','.join(modules)
    return [f'--plugins={names}'] if names else []


def is_allowed(path: str) -> bool:
    """Returns whether the user named the module of an import path, or a package that it is in."""
    return isinstance(path, Trusted) or any(f'{module_of(path)}.'.startswith(f'{module}.') for module in allowed())


def allowed() -> list[str]:
    """Returns the modules that the user named."""
    return [*filter(None, map(str.strip, os.environ.get(ENVIRONMENT, '').split(','))), *_named.get()]


def load(key: str, path: str) -> Any:
    """Returns the object that an import path names.

    Args:
        key: The config key, for messages.
        path: `package.module:Name`.

    Raises:
        BadInput: The user did not name the module, there is no such module or name, or importing the module fails.
    """
    module_name, _, name = path.partition(':')
    require(is_module(module_name), key, path, f'must be {IMPORT_PATH}')
    if not is_allowed(path):
        ways = f"--plugins={module_name}, {ENVIRONMENT}={module_name} or load(..., plugins=['{module_name}'])"
        raise BadInput(key, f'{module_name} is not imported; if you trust its code, name it: {ways}', value=path)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may be a program that ends
        if isinstance(error, ModuleNotFoundError) and error.name and f'{module_name}.'.startswith(f'{error.name}.'):
            raise BadInput(key, f'there is no module {error.name} where Python looks (sys.path)', value=path) from None
        reason = f'{type(error).__name__}: {first_line(error)}'
        raise BadInput(key, f'importing {module_name} failed ({reason})', value=path) from error
    _digest(module)  # now: the file may be edited while this process lasts
    require(bool(name), key, path, 'must have a name after the colon')
    require(hasattr(module, name), key, path, f'{module_name} has no {name}')
    return getattr(module, name)


def digest(key: str, path: str) -> str:
    """Returns the SHA-256 of the file of a plug-in's module as it was imported; '' where it has none, as in a notebook.

    It covers the module that the import path names, not the modules that this one imports.

    Args:
        key: The config key, for messages.
        path: `package.module:Name`.

    Raises:
        BadInput: It cannot be imported; see `load`.
    """
    load(key, path)
    return module_digest(module_of(path))


def module_digest(name: str) -> str:
    """Returns what `digest` does of an imported module."""
    return _digest(sys.modules[name])


def package_digest(*folders: str) -> str:
    """Returns a digest of this package's source, and of the versions of Python and packages that text depends on.

    Args:
        *folders: The folders of the package that count; none for all.
    """
    root = pathlib.Path(__file__).parents[1]
    versions = [importlib.metadata.version(name) for name in ('numpy', 'regex', 'tokenizers')]
    total = hashlib.sha256(f'{sys.version_info[:2]} {unicodedata.unidata_version} {versions}'.encode())
    for file in sorted(file for folder in folders or [''] for file in (root / folder).rglob('*.py')):
        total.update(f'{file.relative_to(root)}\0'.encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def is_own(path: str) -> bool:
    """Returns whether the module of an imported plug-in is the user's own code, and not an installed package."""
    file = getattr(sys.modules[module_of(path)], '__file__', None)
    return not any(file and file.startswith(f'{sysconfig.get_path(name)}{os.sep}') for name in ('purelib', 'platlib'))


def _digest(module: types.ModuleType) -> str:
    spec, found = _digests.get(module.__name__, (None, ''))
    if not found or spec is not module.__spec__:  # the first import, or one again
        with contextlib.suppress(OSError):
            found = hashlib.sha256(pathlib.Path(getattr(module, '__file__', None) or '').read_bytes()).hexdigest()
        _digests[module.__name__] = module.__spec__, found
    return found


def raised(error: BaseException) -> bool:
    """Returns whether the code of a plug-in raised an exception, or called what raised it."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get('__name__') in _digests for frame, _ in frames)


def load_class(key: str, path: str, base: type) -> Any:
    """Returns the class that an import path names. Raises BadInput unless it is a concrete subclass of `base`."""
    found = load(key, path)
    is_subclass = isinstance(found, type) and issubclass(found, base) and not inspect.isabstract(found)
    require(is_subclass, key, path, f'must be a subclass of {base.__module__}.{base.__name__} with all its methods')
    return found


def _require_function(key: str, path: str, found: Any) -> Callable[..., Any]:
    require(callable(found) and not isinstance(found, type), key, path, 'must be a function')
    return found


def load_function(key: str, path: str, *given: str) -> Callable[..., Any]:
    """Returns the function that an import path names.

    Args:
        key: The config key, for messages.
        path: `package.module:name`.
        *given: The names of the arguments that it is called with, beside its options.

    Raises:
        BadInput: It is not a function, or cannot be called with these arguments.
    """
    found = _require_function(key, path, load(key, path))
    try:
        inspect.signature(found).bind(**dict.fromkeys(given))
    except TypeError:
        arguments = f'the argument {", ".join(given)}' if given else 'no argument'
        require(False, key, path, f'must take {arguments}, and options, each with a default')
    return found


def keys_of(key: str, part: type, known: Container[str], options: str = '') -> dict[str, str]:
    """Returns the key of each field of a part, by the name of the field.

    Args:
        key: The key that names the part, in whose section its keys are.
        part: The dataclass.
        known: All keys of the package.
        options: The section of the plug-in's options; fields that are no keys of the package are in it.
    """
    keys = {}
    for field in dataclasses.fields(part):
        if not field.init or metadata_of(part, field.name, BUILT):
            continue
        name = f'{field.metadata.get(SECTION) or key.partition(".")[0]}.{field.name}'
        is_option = options and name not in known
        keys[field.name] = field.metadata.get(KEY) or (f'{options}.{field.name}' if is_option else name)
    return keys


def options_class(key: str, path: str, options: str, known: Container[str]) -> type:
    """Returns the dataclass of the options of a plug-in.

    Args:
        key: The config key that names the plug-in.
        path: Its import path.
        options: The section of its options.
        known: All keys of the package.

    Raises:
        BadInput: The plug-in cannot be imported, or is of another kind.
    """
    plugin = load(key, path)
    if key in FUNCTIONS:
        return _arguments(_require_function(key, path, plugin))
    require(isinstance(plugin, type), key, path, 'must be a class')
    is_frozen = getattr(getattr(plugin, '__dataclass_params__', None), 'frozen', False)
    is_decorated = '__dataclass_params__' in vars(plugin) or not vars(plugin).get('__annotations__')
    require(is_frozen and is_decorated, key, path, 'must be a frozen dataclass')
    keys = keys_of(key, plugin, known, options)
    try:
        hints = typing.get_type_hints(plugin, include_extras=True)
    except Exception as error:
        raise BadInput(key, f'an annotation cannot be evaluated ({first_line(error)})', value=path) from error
    fields = [
        (field.name, hints[field.name], dataclasses.field(default=field.default, metadata=field.metadata))
        for field in dataclasses.fields(plugin)
        if keys.get(field.name) == f'{options}.{field.name}' and field.default is not dataclasses.MISSING
    ]
    for name, hint, field in fields:
        allowed = f'its option {name} must be a bool, int, float or str, or be declared with built()'
        require(type(field.default) in OPTION_TYPES, key, path, allowed)
        check_value(field.default, hint, f'{options}.{name}')
    return dataclasses.make_dataclass(f'{plugin.__name__}_options', fields, frozen=True)


@functools.cache
def _arguments(function: Callable[..., Any]) -> type:
    """Returns a dataclass of the arguments that a config can set: those with a default of a type in OPTION_TYPES."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 (annotations may use names that only a type checker imports)
        hints = {}
    fields = []
    for name, parameter in inspect.signature(function).parameters.items():
        default = 0.0 if DECAY in name and type(parameter.default) in (int, float) else parameter.default
        if name not in _GIVEN and type(default) in OPTION_TYPES:
            hint = hints.get(name)
            is_plain = getattr(hint, '__origin__', hint) in OPTION_TYPES
            fields.append((name, hint if is_plain else type(default), dataclasses.field(default=default)))
    return dataclasses.make_dataclass(f'{function.__name__}_options', fields, frozen=True)
