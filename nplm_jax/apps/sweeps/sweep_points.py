"""Creates the points of a sweep from `sweep()` or a grid. A point is a config with changed keys."""

import contextlib
import itertools
import runpy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.plugins import is_path
from nplm_jax.config.registry import KINDS
from nplm_jax.config.settings import CHOOSERS, CORPUS, Settings
from nplm_jax.runs import experiment
from nplm_jax.runs.command_line import load_config, require_key
from nplm_jax.runs.experiment import Config
from nplm_jax.runs.run_inputs import TEACHER
from nplm_jax.runs.run_names import unique_names
from nplm_jax.utils.errors import BadInput, require

RESERVED_NAMES = ('table.md', 'table.csv', 'table.png', '.jobs')  # files in the folder of a sweep


class Point(NamedTuple):
    """One run of a sweep.

    Attributes:
        name: The name of the run and of its folder.
        settings: The settings of the run.
        overrides: The values that differ from those in the config of the sweep, by flattened key.
        file: The value of --config for this point. '' if it is the same as for the sweep.
    """

    name: str
    settings: Settings
    overrides: Mapping[str, Any]
    file: str = ''


class Points(NamedTuple):
    """The points of a sweep.

    Attributes:
        possible: The valid points.
        impossible: The reason why each invalid point cannot be trained, by point name.
    """

    possible: list[Point]
    impossible: dict[str, str]


def load_points(path: str, config: Config, typed: Collection[str] = ()) -> Points:
    """Applies the points that `sweep()` in a config file yields to a config, and checks the resulting points.

    Args:
        path: A config file. For each point, its `sweep()` yields a dictionary of flattened keys, such as
            `{'model.h': 50, 'seed': 2}`. The key `name` sets the name of the point.
        config: The config that the points change.
        typed: The keys that flags set.

    Raises:
        BadInput: The file has no sweep(), a point has an unknown key, two points have the same name, no point is
            possible, or all points set a key that a flag also sets. The error is raised before any run starts.
    """
    try:
        sweep = runpy.run_path(path).get('sweep')
        overrides = list(sweep()) if sweep else []
    except Exception as error:  # noqa: BLE001 (a sweep is Python and may raise anything)
        raise BadInput('--sweep', f'sweep() of {path} failed: {type(error).__name__}: {error}') from None
    advice = 'for all combinations of values, give --grid=model.m=10,30 --grid=model.h=20,60'
    require(sweep is not None, '--sweep', ..., f'{path} does not define sweep(); {advice}')
    require(bool(overrides), '--sweep', ..., f'sweep() of {path} yields no points')
    points = _apply_all(overrides, config, '--sweep', f'a point of {path}')
    refuse_ignored(typed, points.possible, f'sweep() of {path}')
    return points


def refuse_ignored(typed: Collection[str], points: Sequence[Point], source: str) -> None:
    """Raises BadInput if a flag sets a key that every point also sets, because the value of the flag has no effect.

    Args:
        typed: The keys that flags set.
        points: The points.
        source: The function that sets the keys of the points, for the message.
    """
    for key in typed:
        is_ignored = key != 'name' and all(key in point.overrides for point in points)
        require(not is_ignored, f'--config.{key}', ..., f'has no effect, because {source} also sets this key')


def config_points(files: Sequence[str], overrides: Mapping[str, Any]) -> list[Point]:
    """Returns a checked point for each config.

    Args:
        files: The configs of --configs.
        overrides: The keys that flags set for each config.

    Raises:
        BadInput: A config does not exist or lacks one of the keys, or two configs have the same name.
    """
    points = []
    for file in files:
        try:
            settings = experiment.load_settings(config_lib.override(load_config(file), overrides))
        except BadInput as error:
            raise BadInput('--configs', f'{file}: {error}') from None
        points.append(Point(settings.name, settings, {}, file))
    names = [*RESERVED_NAMES, *(point.name for point in points)]
    for point in points:
        require(names.count(point.name) == 1, '--configs', point.file, f'the name {point.name} is already taken')
    return points


def grid_points(axes: Sequence[str], config: Config, typed: Collection[str] = ()) -> Points:
    """Applies each combination of values to a config, and checks the resulting points.

    Args:
        axes: The values of --grid. Each consists of a flattened key and its values, such as `model.m=10,30`.
        config: The config that the points change.
        typed: The keys that flags set.

    Raises:
        BadInput: A key is unknown, given twice or also set by a flag, a value has a wrong type, or no point is
            possible. The error is raised before any run starts.
    """
    flat, values = flatten(config), dict[str, list[Any]]()
    for axis in axes:
        key, equals, texts = axis.partition('=')
        require(bool(key and equals), '--grid', axis, 'must have the form KEY=VALUE,VALUE,..., such as model.m=10,30')
        require(key not in values, '--grid', axis, 'each key must be given only once')
        require(key not in typed, '--grid', axis, f'cannot be used with --config.{key}, which sets the same key')
        advice = 'names a component, but a grid can only vary keys of one config; give several configs with --configs'
        require(key not in CHOOSERS, '--grid', axis, advice)
        require_key(config, key, '--grid', key)
        require(key != TEACHER, '--grid', axis, 'the values may contain commas, so use sweep() in the config file')
        values[key] = [_parse(text, type(flat[key]), key) for text in texts.split(',')]
    combinations = itertools.product(*values.values())
    overrides = [dict(zip(values, combination)) for combination in combinations]
    return _apply_all(overrides, config, '--grid', 'a point')


def _apply_all(all_overrides: Sequence[Mapping[str, Any]], config: Config, flag: str, one: str) -> Points:
    """Applies each point to a config. Raises BadInput if a key is unknown or no point is possible.

    Args:
        all_overrides: The keys that each point changes.
        config: The config of the sweep.
        flag: The flag that selects the points, for messages.
        one: The description of a point in messages.
    """
    keys = flatten(config)
    for overrides in all_overrides:
        has_keys = isinstance(overrides, Mapping) and all(isinstance(key, str) for key in overrides)
        require(has_keys, flag, ..., f'{overrides!r}: a point must be a dictionary from config keys to values')
        if not overrides.keys() & set(CHOOSERS):  # keys that select components change the set of keys
            for key in overrides:
                require_key(config, key, flag, key)
    defaults = unique_names(all_overrides)
    names = [str(o.get('name') or name or keys['name']) for o, name in zip(all_overrides, defaults)]
    taken = [*RESERVED_NAMES, *names]
    for name in names:
        problem = f'{one} has the name {name}, which is also the name of another point or of a file of the sweep'
        require(taken.count(name) == 1, flag, ..., problem)
    points, errors = Points([], {}), []
    for overrides, name in zip(all_overrides, names):
        try:
            changes = {**overrides, 'name': name}
            settings = experiment.load_settings(config_lib.override(config, changes))
            points.possible.append(Point(name, settings, changes))
        except BadInput as error:
            points.impossible[name] = str(error)
            changed = {key: value for key, value in overrides.items() if key != 'name'}
            shown = ','.join(f'{key}={value!r}' for key, value in changed.items())
            errors.append(BadInput(flag, str(error) if list(changed) == [error.key] else f'{shown}: {error}'))
    if not points.possible:
        raise errors[0]
    return points


def _parse(text: str, expected: type, key: str) -> Any:
    """Converts a text to a value of type `expected`. Raises BadInput if the conversion fails."""
    if expected is bool:
        require(text.lower() in ('true', 'false'), f'--grid: {key}', text, 'must be true or false')
        return text.lower() == 'true'
    try:
        return expected(text)
    except ValueError:
        allowed = 'must be an integer' if expected is int else 'must be a number'
        raise BadInput(f'--grid: {key}', allowed, value=text) from None


def apply(config: Config, overrides: Mapping[str, Any], flag: str = '--sweep') -> Point:
    """Returns the point that changes flattened keys of `config`.

    Args:
        config: The config of the sweep.
        overrides: The keys that the point changes.
        flag: The flag that selects the point, for messages.

    Raises:
        BadInput: A key or the whole point is invalid. The message names the flag, the point and the key.
    """
    return _apply_all([overrides], config, flag, 'the point').possible[0]


def job_config(file: str, overrides: Mapping[str, Any], config: Config, point: Point) -> tuple[str, dict[str, Any]]:
    """Returns the value of --config and the overridden keys for the job that runs a point.

    Args:
        file: The sweep's value of --config.
        overrides: The keys set by the sweep's flags.
        config: The config of the sweep.
        point: The point. Changed components are named after the colon in --config, because no flag selects components.

    Raises:
        BadInput: The config file rejects the names of these components.
    """
    former, values, changes = flatten(config), config_lib.to_flat(point.settings), {**overrides, **point.overrides}
    chosen = {kind: str(name) for kind, name in changes.items() if kind in KINDS or (kind == CORPUS and is_path(name))}
    if not chosen:
        return file, changes
    path, _, row = file.partition(':')
    words = list(filter(None, row.split(',')))
    others = [word for word in words if word not in map(former.get, chosen)]
    all_kinds = {kind: values[kind] for kind in KINDS if kind in values} | chosen
    for kept, added in ((words, chosen), (others, chosen), (others, all_kinds)):
        named = f'{path}:{",".join([*kept, *added.values()])}'
        with contextlib.suppress(BadInput):
            made = flatten(load_config(named))
            if made.keys() == values.keys() and all_kinds.items() <= made.items():
                return named, {key: value for key, value in values.items() if made[key] != value}
    allowed = f'{file} must accept {", ".join(chosen.values())} after the colon of --config'
    raise BadInput('--launcher', allowed, value=point.name)
