"""What stands behind --config: the files, mistakes as one line, the resolved config as text. Imports no JAX."""

import contextlib
import importlib.util
import pathlib
import re
import runpy
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.config import FIELDS, is_option
from nplm_jax.utils.checked_fields import list_fields
from nplm_jax.utils.errors import BadInput, did_you_mean, first_line

_ROOT = pathlib.Path(__file__).parents[1]  # the package
# The configs of the repository, which a wheel carries in the package.
_CONFIGS = next(folder for folder in (_ROOT / 'configs', _ROOT.parent / 'configs') if folder.is_dir())
_OVERRIDE = re.compile(r'--?(?:no)?config\.([^=]*)(?:=(.*))?', re.DOTALL)


def load_config(file: str) -> ConfigDict:
    """Returns the config that `--config=FILE` or `--config=FILE:ROW` names, to change and to give to `train`.

    Args:
        file: A config and, after a colon, its row: the name of a config of this package, `brown:mlp9`, or the path of
            a file, `my_config.py:large`. `configs/brown.py` is `brown` where no such file exists.

    Returns:
        The config. It is locked: an unknown key is an error.

    Raises:
        BadInput: There is no such config or row.
    """
    path, colon, row = find_config(file).partition(':')
    try:
        with imported_configs():
            get_config = runpy.run_path(path)['get_config']
            return get_config(row) if colon else get_config()
    except Exception as error:  # noqa: BLE001 (a config file is Python and may raise anything)
        raise describe_config_error(error, f'{path}{colon}{row}') from None


def find_config(file: str) -> str:
    """Returns the path of a config file, and its row after a colon; a config that does not exist as it is named."""
    path, colon, row = file.partition(':')
    name = pathlib.PurePath(path)
    shipped = _CONFIGS / f'{name.stem}.py'
    is_shipped = str(name.parent) in ('.', 'configs') and name.suffix in ('', '.py') and shipped.is_file()
    return f'{shipped}{colon}{row}' if is_shipped and not pathlib.Path(path).is_file() else file


def find_configs(argv: Sequence[str]) -> list[str]:
    """Returns the words of a command line with the path of --config, and lets config files `import configs`."""
    import_configs()
    words = list(argv)
    for i, word in enumerate(words):
        if match := re.fullmatch(r'(--?config=)(.*)', word, re.DOTALL):
            words[i] = match[1] + find_config(match[2])
        elif words[i - 1] in ('--config', '-config') and i > 1:
            words[i] = find_config(word)
    return words


def import_configs() -> None:
    """Makes `import configs` in a config file give the configs of this package, whatever else has this name."""
    location = str(_CONFIGS / '__init__.py')
    if getattr(sys.modules.get('configs'), '__file__', None) != location:
        spec = importlib.util.spec_from_file_location('configs', location, submodule_search_locations=[str(_CONFIGS)])
        assert spec is not None
        _replace_configs({'configs': importlib.util.module_from_spec(spec)})


@contextlib.contextmanager
def imported_configs() -> Iterator[None]:
    """Does as `import_configs`, until the body ends."""
    before = {name: module for name, module in sys.modules.items() if name.partition('.')[0] == 'configs'}
    try:
        import_configs()
        yield
    finally:
        _replace_configs(before)


def _replace_configs(modules: Mapping[str, types.ModuleType]) -> None:
    """Replaces the modules that `import configs` gives."""
    for name in [name for name in sys.modules if name.partition('.')[0] == 'configs']:
        del sys.modules[name]
    sys.modules.update(modules)


def check_keys(argv: Sequence[str]) -> None:
    """Checks the keys of --config.KEY flags: ml_collections names neither the flag nor other keys.

    Args:
        argv: The words of the command line.

    Raises:
        BadInput: No config has such a key.
    """
    for match in filter(None, map(_OVERRIDE.match, argv)):
        if match[1] not in FIELDS and not is_option(match[1]):
            raise BadInput(f'--config.{match[1]}', describe_unknown_key(match[1]))


def describe_unknown_key(key: str) -> str:
    """Says that no key is called `key`, and what is allowed in its section; of an unknown section, what is near it."""
    allowed = [known for known in FIELDS if known.startswith(f'{key.partition(".")[0]}.')]
    where = f'allowed here: {", ".join(allowed)}' if allowed else '--print_config lists all keys'
    return f'unknown key; {where}{did_you_mean(key, FIELDS, dotted=True)}'


def explain(error: BaseException, argv: Sequence[str]) -> str:
    """Returns one line about a mistake in the flags or in the config file.

    Args:
        error: What parsing the flags raised.
        argv: The words of the command line.
    """
    if isinstance(error, flags.Error) and 'Error whilst parsing config file' not in str(error):
        hints = (
            f'; for a run with each of these values: --grid={match[1]}={match[2]}'
            for match in filter(None, map(_OVERRIDE.match, argv))
            if ',' in (match[2] or '') and match[0] in str(error)
        )
        if isinstance(error, flags.UnrecognizedFlagError):
            known = [*flags.FLAGS, *(f'config.{key}' for key in FIELDS)]
            near = did_you_mean(error.flagname, known, prefix='--', dotted=True)
            return f'--{error.flagname}: unknown flag; --help lists the flags, --print_config the config keys{near}'
        return first_line(error) + next(hints, '')
    words = [word for argument in argv for word in argument.split('=', 1)]
    return str(describe_config_error(error, words[words.index('--config') + 1] if '--config' in words[:-1] else ''))


def describe_config_error(error: BaseException, path: str) -> BadInput:
    """Returns the one-line error about what a config file raised.

    Args:
        error: The exception.
        path: The value of --config.
    """
    while error.__context__:  # ml_collections and Absl raise what a config file raised again, as a traceback's text
        error = error.__context__
    if isinstance(error, BadInput):
        return error
    if not pathlib.Path(path.partition(':')[0]).is_file():
        known = sorted(file.stem for file in _CONFIGS.glob('[a-z]*.py') if file.stem != 'rows')
        near = did_you_mean(pathlib.PurePath(path.partition(':')[0]).stem, known)
        problem = f'no such config; available: {", ".join(known)}, or the path of a config file{near}'
    elif 'positional argument' in str(error):
        problem = 'this config has no rows; omit the colon and what follows'
    else:
        problem = f'{type(error).__name__}: {first_line(error)}'
    return BadInput('--config', problem, value=path)


def describe_config(config: ConfigDict, points: Sequence[Mapping[str, Any]] = ()) -> str:
    """Formats a resolved config: a line for each key with its meaning, and the default where the value is another.

    Args:
        config: The config.
        points: The overrides of each point of a sweep.
    """
    settings = config_lib.from_config(config)
    options = config_lib.option_classes(config_lib.to_flat(settings))
    fields, lines = dict(FIELDS), []
    for section, kind in options.items():
        fields |= list_fields(kind, f'{section}.')
    for key, value in config_lib.to_flat(settings).items():
        default, meaning = fields[key].default, fields[key].metadata.get('meaning', '')
        notes = ('' if value == default else f'default: {default!r}', meaning)
        lines.append(f'{key} = {value!r}  # {"; ".join(filter(None, notes))}')
    lines += [f'point {number}: {dict(point)}' for number, point in enumerate(points, start=1)]
    return '\n'.join(lines)
