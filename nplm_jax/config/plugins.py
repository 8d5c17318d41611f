"""Imports plug-ins, which are components that a config chooses by import path, `package.module:Name`.

Bodies, output layers, schedules and tokenizers are frozen dataclasses. Corpora and optimizers are functions whose
keyword arguments are their options. Every field and every option must have a default.

A module is imported only if the user named it. Otherwise, a run folder from an untrusted source could execute code by
naming a module. Commands store the names of the allowed modules in the environment variable NPLM_PLUGINS, which child
processes inherit. In Python code, `trust` allows modules within a `with` block.
"""

import contextlib
import contextvars
import dataclasses
import functools
import hashlib
import importlib
import inspect
import os
import pathlib
import sys
import sysconfig
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nplm_jax.config.checked_fields import OPTION_TYPES, check_value
from nplm_jax.config.component import KIND, MEANING, key_fields
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.names import did_you_mean

IMPORT_PATH = 'an import path of the form package.module:Name'
ENVIRONMENT = 'NPLM_PLUGINS'  # the environment variable with the modules that the user named, separated by commas
_named: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar('plugins', default=())  # see `trust`
_imports: contextvars.ContextVar[bool] = contextvars.ContextVar('imports', default=True)  # see `importing_none`
_digests: dict[str, tuple[Any, str]] = {}  # each module's import spec and SHA-256 digest, by name
_GIVEN = ('learning_rate',)  # arguments that this package passes itself, so that they are not options
FIELD_TYPES = 'a bool, int, float or str, a Literal of str, or Annotated with a range'  # for messages
DECAY = 'weight_decay'  # arguments whose names contain this string default to 0; `optimizer.decay` sets the decay


def is_path(name: str) -> bool:
    """Returns whether a name is an import path rather than the name of a built-in component or a file."""
    return ':' in name and not is_file(name)


def is_file(name: str) -> bool:
    """Returns whether a name is the path of a tokenizer file."""
    return name.endswith(('.json', '.model'))


def module_of(path: str) -> str:
    """Returns the module name in an import path, which is the part before the colon."""
    return path.partition(':')[0]


def is_module(name: str) -> bool:
    """Returns whether a string is a valid module name, `package.module`."""
    return all(map(str.isidentifier, name.split('.')))


@contextlib.contextmanager
def trust(modules: Iterable[str]) -> Iterator[None]:
    """Allows the import of plug-ins from these modules and their submodules within a `with` block.

    Raises:
        BadInput: A string in `modules` is not a valid module name.
    """
    token = _named.set((*_named.get(), *_checked(modules)))
    try:
        yield
    finally:
        _named.reset(token)


@contextlib.contextmanager
def importing_none() -> Iterator[None]:
    """Disables the import of plug-ins within a `with` block, so that listing runs executes no third-party code."""
    token = _imports.set(False)
    try:
        yield
    finally:
        _imports.reset(token)


def trust_in_process(modules: Iterable[str]) -> None:
    """Allows plug-ins from these modules in this process and its child processes. Only commands may call it."""
    os.environ[ENVIRONMENT] = ','.join(dict.fromkeys([*allowed(), *_checked(modules)]))


def _checked(modules: Iterable[str]) -> list[str]:
    names = [modules] if isinstance(modules, str) else list(modules)
    for name in names:
        require(is_module(name), '--plugins', name, 'must be the name of a module, such as my_models')
    return names


def flags(modules: Iterable[str]) -> list[str]:
    """Returns the command-line flag for the given modules, such as ['--plugins=a,b'], or [] if there are no modules."""
    names = ','.join(modules)
    return [f'--plugins={names}'] if names else []


def is_allowed(path: str) -> bool:
    """Returns whether the user named the module in an import path or one of the module's parent packages."""
    return any(f'{module_of(path)}.'.startswith(f'{module}.') for module in allowed())


def allowed() -> list[str]:
    """Returns the modules that the user named. Within `importing_none`, returns an empty list."""
    if not _imports.get():
        return []
    return [*filter(None, map(str.strip, os.environ.get(ENVIRONMENT, '').split(','))), *_named.get()]


def check_path(key: str, path: str) -> str:
    """Checks and returns an import path. Raises BadInput unless it begins with a module name."""
    require(is_module(module_of(path)), key, path, f'must be {IMPORT_PATH}')
    return path


def load(key: str, path: str) -> Any:
    """Imports the object at an import path.

    Args:
        key: The config key, for error messages.
        path: `package.module:Name`.

    Raises:
        BadInput: The user did not name the module, the import fails, or the module has no object of this name.
    """
    module_name, _, name = check_path(key, path).partition(':')
    if not is_allowed(path):
        ways = f"--plugins={module_name}, {ENVIRONMENT}={module_name} or load(..., plugins=['{module_name}'])"
        raise BadInput(key, f'{module_name} is not imported by default; if you trust its code, use {ways}', value=path)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may call sys.exit
        if isinstance(error, ModuleNotFoundError) and error.name and f'{module_name}.'.startswith(f'{error.name}.'):
            where = f'in the working directory, {os.getcwd()}, or elsewhere on sys.path (see PYTHONPATH)'
            raise BadInput(key, f'the module {error.name} was not found {where}', value=path) from None
        reason = f'{type(error).__name__}: {first_line(error)}'
        raise BadInput(key, f'importing {module_name} failed ({reason})', value=path) from error
    _digest(module)  # now, because the file may be edited later
    require(bool(name), key, path, 'must have a name after the colon')
    require(hasattr(module, name), key, path, f'{module_name} has no object {name}{did_you_mean(name, vars(module))}')
    return getattr(module, name)


def digest(key: str, path: str) -> str:
    """Returns the hexadecimal SHA-256 of a plug-in's source file, computed when the module was imported.

    The digest covers only the module in the import path, not the modules that it imports. It is an empty string if the
    module has no file, as in a notebook.

    Args:
        key: The config key, for error messages.
        path: `package.module:Name`.

    Raises:
        BadInput: The plug-in cannot be imported; see `load`.
    """
    load(key, path)
    return module_digest(module_of(path))


def module_digest(name: str) -> str:
    """Returns the digest of the imported module `name`; see `digest`."""
    return _digest(sys.modules[name])


def is_own(path: str) -> bool:
    """Returns whether the module of an imported plug-in is the user's own code rather than an installed package."""
    file = getattr(sys.modules[module_of(path)], '__file__', None)
    return not any(file and file.startswith(f'{sysconfig.get_path(name)}{os.sep}') for name in ('purelib', 'platlib'))


def _digest(module: types.ModuleType) -> str:
    spec, found = _digests.get(module.__name__, (None, ''))
    if not found or spec is not module.__spec__:  # the first import, or a reimport
        with contextlib.suppress(OSError):
            found = hashlib.sha256(pathlib.Path(getattr(module, '__file__', None) or '').read_bytes()).hexdigest()
        _digests[module.__name__] = module.__spec__, found
    return found


def raised(error: BaseException) -> bool:
    """Returns whether the traceback of an exception passes through a plug-in."""
    return any(_is_of_plugin(frame) for frame, _ in traceback.walk_tb(error.__traceback__))


def _is_of_plugin(frame: types.FrameType) -> bool:
    return frame.f_globals.get('__name__') in _digests


@contextlib.contextmanager
def failure_as_bad_input(key: str, path: str, problem: str) -> Iterator[None]:
    """Converts exceptions that a plug-in raises within a `with` block to BadInput.

    Args:
        key: The config key of the plug-in.
        path: The import path of the plug-in.
        problem: A description of the failed operation. The message also gives the exception and the innermost line of
            plug-in code in its traceback.
    """
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        own = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_of_plugin(frame)]
        where = ''.join(f' at {os.path.basename(code.co_filename)}:{line}' for code, line in own[-1:])
        reason = f'{type(error).__name__}: {first_line(error)}{where}'
        raise BadInput(key, f'{problem} ({reason})', value=path) from error


def load_class(key: str, path: str, base: type) -> Any:
    """Imports a component class and checks that its fields can be config keys.

    Raises:
        BadInput: The import fails, the object is not a concrete subclass of `base`, the class is not a frozen
            dataclass, or one of its fields cannot be a config key.
    """
    found = load(key, path)
    is_subclass = isinstance(found, type) and issubclass(found, base) and not inspect.isabstract(found)
    allowed = f'must be a subclass of {base.__module__}.{base.__name__} that implements all of its abstract methods'
    require(is_subclass, key, path, allowed)
    is_decorated = '__dataclass_params__' in vars(found) or not vars(found).get('__annotations__')
    require(found.__dataclass_params__.frozen and is_decorated, key, path, 'must be a frozen dataclass')
    try:
        hints = typing.get_type_hints(found, include_extras=True)
    except Exception as error:
        raise BadInput(key, f'an annotation cannot be evaluated ({first_line(error)})', value=path) from error
    for name in _plain_attributes(found, base):
        allowed = f'the field {name} must have a type annotation, as in {name}: int = 3; allowed are {FIELD_TYPES}'
        raise BadInput(key, allowed, value=path)
    for field in key_fields(found):
        if MEANING in field.metadata or KIND in field.metadata:
            continue
        name = field.name
        require(field.default is not dataclasses.MISSING, key, path, f'the field {name} must have a default')
        is_method = callable(getattr(base, name, None))
        require(not is_method, key, path, f'the field {name} has the name of a method of {base.__name__}')
        kind = getattr(hints[name], '__origin__', hints[name])  # int of Annotated[int, ...]
        allowed = f'the field {name} must be {FIELD_TYPES}, or be declared with internal()'
        require(kind in (*OPTION_TYPES, typing.Literal), key, path, allowed)
        check_value(field.default, hints[name], f'{key.rpartition(".")[0]}.{name}')
    return found


def _plain_attributes(component: type, base: type) -> Iterator[str]:
    """Yields the names of public attributes that subclasses of `base` introduce without a type annotation."""
    for cls in (cls for cls in component.__mro__ if issubclass(cls, base) and cls is not base):
        for name, value in vars(cls).items():
            is_value = not (name.startswith('_') or callable(value) or hasattr(value, '__get__'))
            is_typed = name in vars(cls).get('__annotations__', ())
            if is_value and not (is_typed or any(hasattr(parent, name) for parent in cls.__mro__[1:])):
                yield name


def load_function(key: str, path: str) -> Callable[..., Any]:
    """Imports a function. Raises BadInput if the object is not a function."""
    found = load(key, path)
    require(callable(found) and not isinstance(found, type), key, path, 'must be a function')
    return found


def check_arguments(key: str, path: str, function: Callable[..., Any], *given: str) -> None:
    """Raises BadInput unless a plug-in accepts the arguments `given` and has defaults for all other arguments."""
    try:
        inspect.signature(function).bind(**dict.fromkeys(given))
    except TypeError:
        required = f'must accept the argument {", ".join(given)}; all other' if given else 'all'
        raise BadInput(key, f'{required} arguments must have defaults', value=path) from None


@functools.cache
def arguments(function: Callable[..., Any]) -> type:
    """Returns a dataclass of a function's options: all arguments with a default that is a bool, int, float or str."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 (annotations may use names that only a type checker imports)
        hints = {}
    fields = []
    for name, parameter in inspect.signature(function).parameters.items():
        default = 0.0 if DECAY in name and type(parameter.default) in (int, float) else parameter.default
        is_option = name not in _GIVEN and parameter.kind is not parameter.POSITIONAL_ONLY
        if is_option and type(default) in OPTION_TYPES:
            hint = hints.get(name)
            plain = (int, float) if type(default) is int else (type(default),)  # types that include the default
            is_plain = getattr(hint, '__origin__', hint) in plain
            fields.append((name, hint if is_plain else type(default), dataclasses.field(default=default)))
    return dataclasses.make_dataclass('Arguments', fields, frozen=True)
