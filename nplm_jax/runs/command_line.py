"""What stands behind --config: the files, mistakes as one line, the resolved config as text. Imports no JAX."""

import difflib
import itertools
import os
import pathlib
import re
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.config import FIELDS, is_option
from nplm_jax.utils.checked_fields import list_fields
from nplm_jax.utils.errors import BadInput, first_line

_CLONE = pathlib.Path(__file__).parents[2]  # with configs/, unless the package was installed from a wheel
_OVERRIDE = re.compile(r'--?(?:no)?config\.([^=]*)(?:=(.*))?', re.DOTALL)


def load_config(file: str) -> ConfigDict:
    """Returns the config that `--config=FILE` or `--config=FILE:ROW` names, to change and to give to `run`.

    Args:
        file: The path of a config file and, after a colon, its row: `configs/brown.py:mlp9`. A path that is not in the
            working folder is looked up in the clone of the repository that the package was installed from.

    Returns:
        The config. It is locked: an unknown key is an error.

    Raises:
        BadInput: There is no such file or row.
    """
    path, colon, row = file.partition(':')
    if not pathlib.Path(path).is_file() and (_CLONE / path).is_file():
        path = str(_CLONE / path)
    search_path = list(sys.path)
    sys.path.append(str(_CLONE))  # config files import configs.default
    try:
        get_config = runpy.run_path(path)['get_config']
        return get_config(row) if colon else get_config()
    except Exception as error:  # noqa: BLE001 (a config file is Python and may raise anything)
        raise BadInput(explain(error, ['--config', f'{path}{colon}{row}'], _CLONE)) from None
    finally:
        sys.path[:] = search_path


def check_keys(argv: Sequence[str]) -> None:
    """Checks the keys of --config.KEY flags: ml_collections names neither the flag nor other keys.

    Args:
        argv: The words of the command line.

    Raises:
        BadInput: No config has such a key.
    """
    for match in filter(None, map(_OVERRIDE.match, argv)):
        if match[1] not in FIELDS and not is_option(match[1]):
            raise BadInput(f'--config.{match[1]}: {describe_unknown_key(match[1])}')


def describe_unknown_key(key: str) -> str:
    """Says that no key is called `key`, and what is allowed in its section; of an unknown section, what is near it."""
    section, _, name = key.partition('.')
    if allowed := [known for known in FIELDS if known.startswith(f'{section}.')]:
        return f'unknown key; allowed here: {", ".join(allowed)}'
    last = name.rpartition('.')[2] or section
    near = [known for known in FIELDS if known.rpartition('.')[2] == last] or difflib.get_close_matches(key, FIELDS)
    suggestion = f'did you mean {" or ".join(near)}? ' if near else ''
    return f'unknown key; {suggestion}--print_config lists all keys'


def explain(error: BaseException, argv: Sequence[str], root: pathlib.Path) -> str:
    """Returns one line about a mistake in the flags or in the config file.

    Args:
        error: What parsing the flags raised.
        argv: The words of the command line.
        root: The folder with launch.py and configs/.
    """
    if isinstance(error, flags.Error) and 'Error whilst parsing config file' not in str(error):
        hints = (
            f'; for a run with each of these values: --grid={match[1]}={match[2]}'
            for match in filter(None, map(_OVERRIDE.match, argv))
            if ',' in (match[2] or '') and match[0] in str(error)
        )
        if isinstance(error, flags.UnrecognizedFlagError) and '.' in error.flagname:
            return f'{first_line(error)}; set a config key with --config.{error.flagname}'
        return first_line(error) + next(hints, '')
    while error.__context__:  # ml_collections and Absl raise what a config file raised again, as a traceback's text
        error = error.__context__
    if isinstance(error, BadInput):
        return str(error)
    words = [word for argument in argv for word in argument.split('=', 1)]
    path = words[words.index('--config') + 1] if '--config' in words[:-1] else ''
    if not pathlib.Path(path.partition(':')[0]).is_file():
        files = root.glob('configs/[a-z]*.py')
        configs = sorted(os.path.relpath(file) for file in files if file.stem != 'rows')
        known = f'; available: {", ".join(configs)}' if configs else ''
        return f'--config={path}: no such config file{known}'
    if 'positional argument' in str(error):
        return f'--config={path}: this config has no rows; omit the colon and what follows'
    return f'--config={path}: {type(error).__name__}: {first_line(error)}'


def describe_config(config: ConfigDict, points: Sequence[Mapping[str, Any]] = ()) -> str:
    """Formats a resolved config: a line for each key with its meaning, and the default where the value is another.

    Args:
        config: The config.
        points: The overrides of each point of a sweep.
    """
    settings = config_lib.from_config(config)
    plugins = [type(getattr(settings, section).options) for section in config_lib.PLUGINS]
    options = [list_fields(kind, f'{section}.options.') for section, kind in zip(config_lib.PLUGINS, plugins)]
    fields, lines = FIELDS | dict(itertools.chain(*options)), []
    for key, value in config_lib.to_flat(settings).items():
        default, meaning = fields[key].default, fields[key].metadata.get('meaning', '')
        notes = ('' if value == default else f'default: {default!r}', meaning)
        lines.append(f'{key} = {value!r}  # {"; ".join(filter(None, notes))}')
    lines += [f'point {number}: {dict(point)}' for number, point in enumerate(points, start=1)]
    return '\n'.join(lines)
