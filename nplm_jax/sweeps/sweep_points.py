"""Points of a sweep, each a config with some keys changed: those of `sweep()`, or all combinations of a grid."""

import ast
import contextlib
import dataclasses
import itertools
import runpy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.config import parts
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.registry import PARTS
from nplm_jax.config.settings import FIELDS, Settings
from nplm_jax.runs import experiment
from nplm_jax.runs.command_line import load_config, name_components, require_key
from nplm_jax.runs.experiment import Config
from nplm_jax.runs.run_inputs import TEACHER
from nplm_jax.runs.run_names import run_name, unique_names
from nplm_jax.utils.errors import BadInput, require

RESERVED_NAMES = ('table.md', 'table.png', '.jobs')  # files that a sweep keeps beside the folders of its points


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        name: the name of the run and of its folder.
        settings: the settings of the run.
        overrides: the flattened keys that make it differ from the sweep's config.
    """

    name: str
    settings: Settings
    overrides: Mapping[str, Any]


class Points(NamedTuple):
    """The points of a sweep.

    Attributes:
        possible: the points that can run.
        impossible: the reason by name of each point that cannot.
    """

    possible: list[Point]
    impossible: dict[str, str]


def load_points(path: str, config: Config, given: Collection[str] = ()) -> Points:
    """Returns the points that `sweep()` in a config file yields, each applied to `config` and checked.

    Args:
        path: a config file. Its `sweep()` yields a dictionary of flattened keys for each point, such as
            `{'model.h': 50, 'seed': 2}`; the key `name` sets the point's name.
        config: the config that the points change.
        given: the keys that flags set.

    Raises:
        BadInput: the file has no sweep(), a point has an unknown key, two points have one name, or no point is
            possible. No run has started by then.
    """
    try:
        sweep = runpy.run_path(path).get('sweep')
        overrides = list(sweep()) if sweep else []
    except Exception as error:  # noqa: BLE001 (a sweep is Python and may raise anything)
        raise BadInput('--sweep', f'sweep() of {path} failed: {type(error).__name__}: {error}') from None
    if sweep is None:
        example = '--grid=model.m=10,30 --grid=model.h=20,60'
        raise BadInput('--sweep', f'{path} defines no sweep(); for all combinations of some values give {example}')
    if not overrides:
        raise BadInput('--sweep', f'sweep() of {path} yields no points')
    return _apply_all(overrides, config, '--sweep', f'a point of {path}', given)


def grid_points(axes: Sequence[str], config: Config, given: Collection[str] = ()) -> Points:
    """Returns a point for each combination of values, each applied to `config` and checked.

    Args:
        axes: What --grid gives: a flattened key and its values, such as `model.m=10,30`.
        config: the config that the points change.
        given: the keys that flags set.

    Raises:
        BadInput: a key is unknown or given twice, a value has a wrong type, or no point is possible. No run has started
            by then.
    """
    flat, values = flatten(config), dict[str, list[Any]]()
    for axis in axes:
        key, equals, texts = axis.partition('=')
        require(bool(key and equals), '--grid', axis, 'must be KEY=VALUE,VALUE,... such as model.m=10,30')
        require(key not in values, '--grid', axis, 'key given twice')
        require_key(key, '--grid', key)
        require(key != TEACHER, '--grid', axis, 'its values may have commas: give such points in sweep() of the config')
        known = flat.get(key, FIELDS[key].default if key in FIELDS else None)
        expected = object if known is None else type(known)  # an option may be missing
        values[key] = [_parse(text, expected, key) for text in texts.split(',')]
    combinations = itertools.product(*values.values())
    overrides = [dict(zip(values, combination)) for combination in combinations]
    return _apply_all(overrides, config, '--grid', 'a point', given)


def _apply_all(
    all_overrides: Sequence[Mapping[str, Any]], config: Config, flag: str, one: str, given: Collection[str]
) -> Points:
    """Applies each point to a config. Raises BadInput unless all have known keys and one is possible.

    Args:
        all_overrides: the keys that each point changes.
        config: the config of the sweep.
        flag: the flag that asks for the points, for messages.
        one: what a message calls a point.
        given: the keys that other flags set.
    """
    for overrides in all_overrides:
        _check_overrides(overrides, flag)
    defaults = unique_names(all_overrides)
    names = [str(o.get('name') or name or flatten(config)['name']) for o, name in zip(all_overrides, defaults)]
    taken = [*RESERVED_NAMES, *names]
    if repeated := next((name for name in taken if taken.count(name) > 1), None):
        raise BadInput(flag, f'{one} is named {repeated}, a name that another point or a file of the sweep has')
    points, errors = Points([], {}), []
    for overrides, name in zip(all_overrides, names):
        try:
            points.possible.append(_apply(config, {**overrides, 'name': name}, given))
        except BadInput as error:
            points.impossible[name] = str(error)
            errors.append(_blame(error, overrides, flag))
    if not points.possible:
        raise errors[0]
    return points


def _parse(text: str, expected: type, key: str) -> Any:
    """Returns the value of type `expected` that `text` says. Raises BadInput naming the key."""
    if expected is bool:
        require(text.lower() in ('true', 'false'), f'--grid: {key}', text, 'must be true or false')
        return text.lower() == 'true'
    if expected is object:  # an option of a plug-in, as Python writes it; a string need not have quotes
        with contextlib.suppress(ValueError, SyntaxError):
            return ast.literal_eval(text.capitalize() if text in ('true', 'false') else text)
        return text
    try:
        return expected(text)
    except ValueError:
        allowed = 'must be an integer' if expected is int else 'must be a number'
        raise BadInput(f'--grid: {key}', allowed, value=text) from None


def _check_overrides(overrides: Any, flag: str) -> None:
    """Raises BadInput unless a point is a dictionary of known keys."""
    if not (isinstance(overrides, Mapping) and all(isinstance(key, str) for key in overrides)):
        raise BadInput(flag, f'{overrides!r}: a point must be a dictionary of keys')
    for key in overrides:
        require_key(key, flag, key)


def apply(config: Config, overrides: Mapping[str, Any], flag: str = '--sweep', given: Collection[str] = ()) -> Point:
    """Returns the point that changes some flattened keys of `config`.

    Args:
        config: the config of the sweep.
        overrides: the keys that the point changes. See `parts.changed`.
        flag: the flag that asks for the point, for messages.
        given: the keys that other flags set.

    Raises:
        BadInput: A key or the whole point is impossible; the message names the flag, the point and the key.
    """
    _check_overrides(overrides, flag)
    try:
        return _apply(config, overrides, given)
    except BadInput as error:
        raise _blame(error, overrides, flag) from None


def _apply(config: Config, overrides: Mapping[str, Any], given: Collection[str]) -> Point:
    values = flatten(config)
    name = overrides.get('name') or run_name(overrides) or values['name']
    changes = {**overrides, 'name': name}
    changed = parts.changed(values, changes, {*overrides, *given})
    return Point(name, experiment.load_settings(changed), changes)


def job_config(file: str, overrides: Mapping[str, Any], point: Point) -> tuple[str, dict[str, Any]]:
    """Returns the value of --config and the keys of the flags with which a job runs a point.

    Args:
        file: The value of --config of the sweep.
        overrides: The keys that flags of the sweep set.
        point: The point. Components that it changes become words of --config, since no flag chooses them.

    Raises:
        BadInput: The config file refuses these words.
    """
    changes = {**overrides, **point.overrides}
    if not (chosen := {key: str(value) for key, value in changes.items() if key in PARTS}):
        return file, changes
    named = name_components(file, chosen)
    require(
        bool(named), '--launcher', point.name, f'{file} must take {", ".join(chosen.values())} as words of --config'
    )
    known = flatten(load_config(named))
    return named, {key: x for key, x in parts.exact_values(point.settings).items() if known.get(key) != x}


def _blame(error: BadInput, overrides: Mapping[str, Any], flag: str) -> BadInput:
    """Returns the error of a point as one of the flag that asks for it."""
    changed = {key: value for key, value in overrides.items() if key != 'name'}
    shown = (
        '' if list(changed) == [error.key] else ','.join(f'{key}={value!r}' for key, value in changed.items()) + ': '
    )
    return BadInput(flag, f'{shown}{error}')
