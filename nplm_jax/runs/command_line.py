"""Implements the flag --config: loads config files, reports errors in one line, and formats the resolved config.

This module does not import JAX.
"""

import inspect
import itertools
import os
import pathlib
import re
import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.keys import list_keys, unknown_key
from nplm_jax.config.registry import KINDS
from nplm_jax.reporting.shell import command_line, nplm_command
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.names import did_you_mean

_CONFIGS = (pathlib.Path(__file__).parents[1] / 'configs').resolve()  # in a clone, a link to the top-level folder
_FLAG = re.compile(r'--?((?:(?:no)?config\.([^=]*)|[^=]+))(?:=(.*))?', re.DOTALL)  # name, config key, value
_PARSERS: dict[type, flags.ArgumentParser[Any]] = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
}


def load_config(file: str) -> ConfigDict:
    """Loads a config that you can modify and pass to `train`.

    Args:
        file: The value of `--config`: the name of a config in this package or the path of a config file. A colon and
            the name of a preset may follow. Examples are `brown:mlp9` and `my_config.py:large`. If the file
            `configs/brown.py` does not exist, this path also selects the config `brown` in this package.

    Returns:
        The config, with defaults for keys that the file does not set. Setting an unknown key raises an error.

    Raises:
        BadInput: There is no such config or preset, or the file sets a key that its components do not have.
    """
    found = find_config(file)
    path, colon, row = found.partition(':')
    try:
        get_config = _check_rows(runpy.run_path(path).get('get_config'), found)
        config = get_config(*[row] * bool(colon))
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 (a config file is Python code and may raise any exception)
        is_other_config = isinstance(error, ModuleNotFoundError) and error.name == 'configs'
        advice = '; use `from nplm_jax.configs import ...`' if is_other_config else ''
        if isinstance(error, AttributeError) and _is_of_config(error):
            advice = '; use nplm_jax.override(config, {...}) to select components with other keys'
        raise BadInput('--config', f'{type(error).__name__}: {first_line(error)}{advice}', value=found) from None
    require(isinstance(config, ConfigDict), '--config', found, 'get_config() must return a ConfigDict')
    is_complete = config_lib.to_flat(config_lib.from_config(config)).keys() == flatten(config).keys()
    return config if is_complete else config_lib.override(config, {})


def _is_of_config(error: AttributeError) -> bool:
    """Returns whether the error was raised by a ConfigDict because a key is unknown."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals['__name__']).startswith('ml_collections.')


def _check_rows(get_config: Any, file: str) -> Callable[..., ConfigDict]:
    """Returns `get_config`. Raises BadInput if it requires a preset but `file` names none, or vice versa."""
    require(callable(get_config), '--config', file, 'must define get_config()')
    _, colon, row = file.partition(':')
    problem = 'this config has no presets; omit the colon and the preset' if colon else 'must end in :PRESET'
    try:
        inspect.signature(get_config).bind(*[row] * bool(colon))
    except TypeError:
        raise BadInput('--config', problem, value=file) from None
    return get_config


class ConfigParser(flags.ArgumentParser[ConfigDict]):
    """A parser for the flag --config, based on `load_config`."""

    def parse(self, argument: str) -> ConfigDict:
        """See `load_config`."""
        return load_config(argument)

    def flag_type(self) -> str:
        """Returns the same flag type as ml_collections."""
        return 'config object'


def find_config(file: str) -> str:
    """Replaces the name of a config in this package with its path, and keeps the preset after the colon.

    Raises:
        BadInput: There is no such config, or the name of the file does not end in `.py`.
    """
    path, colon, row = file.partition(':')
    name = pathlib.PurePath(path)
    shipped = _CONFIGS / f'{name.stem}.py'
    is_shipped = str(name.parent) in ('.', 'configs') and name.suffix in ('', '.py') and shipped.is_file()
    is_config = name.suffix == '.py' and os.path.isfile(path)
    if is_config or is_shipped:
        return file if is_config else f'{shipped}{colon}{row}'
    if path and os.path.exists(path):
        to_train = command_line([*nplm_command(), 'train', 'text', f'--config.corpus.path={path}'])
        raise BadInput('--config', f'must be a config file (.py); to train on a text, run: {to_train}', value=file)
    known = sorted(file.stem for file in _CONFIGS.glob('[a-z]*.py') if file.stem != 'presets')
    allowed = f'must be one of {", ".join(known)}, or the path of a config file{did_you_mean(name.stem, known)}'
    raise BadInput('--config', allowed, value=file)


def find_configs(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of a command line, with the config in --config replaced by its path."""
    words = list(argv)
    for i, word in enumerate(words):
        if match := re.fullmatch(r'(--?config=)(.*)', word, re.DOTALL):
            words[i] = match[1] + find_config(match[2])
        elif words[i - 1] in ('--config', '-config') and i > 1:
            words[i] = find_config(word)
    return words


def check_flags(argv: Sequence[str], known: flags.FlagValues = flags.FLAGS) -> None:
    """Checks the keys and values of flags, because error messages from Absl and ml_collections are unclear.

    Args:
        argv: The arguments of the command line, including the contents of flag files.
        known: The defined flags.

    Raises:
        BadInput: Several configs are given, the config lacks a given key, or a value is missing or has the wrong type.
    """
    if len(files := _config_files(argv)) > 1:  # absl would use the last config and ignore the keys before it
        raise BadInput('--config', f'cannot be used with --config={files[0]}; give only one config', value=files[-1])
    config: ConfigDict | None = None
    words = iter(argv[1:])
    for word in itertools.takewhile(lambda word: word != '--', words):
        match = _FLAG.fullmatch(word)
        is_key = match is not None and match[2] is not None
        if match is None or not (is_key or match[1] in known):
            continue
        name, value, hint = match[1], match[3], ''
        if is_key:
            if not files:
                raise BadInput('--config', 'is required; give a config, such as --config=sentences')
            key, file = match[2], files[0]
            if key in KINDS:
                raise _chosen_in_config(key, value or next(words, ''), file)
            config = load_config(file) if config is None else config
            require_key(config, key, f'--config.{key}')
            parser = _PARSERS.get(type(flatten(config)[key]))
            hint = f'; to train with each value, use --grid={key}={value}' if ',' in (value or '') else ''
            takes_value = not isinstance(parser, flags.BooleanParser)
        else:
            parser, takes_value = known[name].parser, not known[name].boolean
        if value is None and takes_value and (value := next(words, None)) is None:
            raise BadInput(f'--{name}', 'requires a value')
        if parser and value is not None and (expected := _describe(parser)):
            try:
                parser.parse(value)
            except (ValueError, OverflowError):
                raise BadInput(f'--{name}', f'must be {expected}{hint}', value=value) from None


def _config_files(argv: Sequence[str]) -> list[str]:
    """Returns the values of --config in a command line."""
    return re.findall(r'\0--?config[=\0]([^\0]*)', '\0'.join(['', *argv]))


def _chosen_in_config(key: str, name: str, file: str) -> BadInput:
    """Returns an error for a flag that names a component. Its message shows how to select it with `--config`."""
    path, _, row = file.partition(':')
    words = [word for word in row.split(',') if word and word not in KINDS[key].paths]
    made = f'{path}:{",".join([*words, name])}'
    return BadInput(f'--config.{key}', f'must be selected with --config={made}', value=name)


def _describe(parser: Any) -> str:
    """Describes the values that a flag parser accepts. Returns '' if the parser accepts any string."""
    if isinstance(parser, flags.BooleanParser):
        return 'true or false'
    if isinstance(parser, flags.EnumParser):
        return f'one of {", ".join(parser.enum_values)}'
    if isinstance(parser, (flags.IntegerParser, flags.FloatParser)):
        kind = 'an integer' if isinstance(parser, flags.IntegerParser) else 'a number'
        return kind if parser.lower_bound is None else f'{kind} greater than or equal to {parser.lower_bound}'
    return ''


def require_key(config: ConfigDict | Mapping[str, Any], key: str, flag: str, shown: str = '') -> None:
    """Raises BadInput if a config lacks `key`. The error names `flag`, and its message begins with `shown` if given."""
    if key not in flatten(config):
        problem = unknown_key(key, config_lib.from_config(config)).problem
        raise BadInput(flag, f'{shown}: {problem}' if shown else problem)


def explain(error: BaseException) -> BadInput:
    """Converts an error about flags or the config file to BadInput with a one-line message.

    Args:
        error: BadInput, or an error of Absl. BadInput may be the cause of the Absl error.
    """
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, BadInput):
            return cause
        cause = cause.__context__
    if isinstance(error, flags.UnrecognizedFlagError):
        known = [*flags.FLAGS, *(f'config.{key}' for key in flatten(config_lib.default_config()))]
        near = did_you_mean(error.flagname, known, prefix='--', dotted=True)
        lists = '--help lists the flags, and --print_config lists the config keys'
        return BadInput(f'--{error.flagname}', f'is not a flag; {lists}{near}')
    if isinstance(error, flags.CantOpenFlagFileError) and isinstance(error.__context__, OSError):
        return BadInput('--flagfile', f'cannot be read ({error.__context__.strerror})', error.__context__.filename)
    return BadInput('flags', first_line(error))


def describe_config(config: ConfigDict, points: Sequence[Mapping[str, Any]] = ()) -> str:
    """Formats a resolved config, with one line per key.

    Each line consists of the key, its value, its default if the value differs, its allowed values and its meaning.

    Args:
        config: The config.
        points: The overridden values of each sweep point, by flattened key. One line is added per point.
    """
    lines = []
    for key in list_keys(config_lib.from_config(config)):
        default = '' if key.value == key.default else f'default: {key.default!r}'
        lines.append(f'{key.name} = {key.value!r}  # {"; ".join(filter(None, (default, key.allowed, key.meaning)))}')
    lines += [f'point {number}: {dict(point)}' for number, point in enumerate(points, start=1)]
    return '\n'.join(lines)
