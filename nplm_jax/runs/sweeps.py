"""Many runs from one config: each point of a sweep is the config with some keys changed."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.runs import experiment, loading
from nplm_jax.runs.workdir import run_name
from nplm_jax.training import vmapped
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.finite import NonFiniteError
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.text import markdown_table, null_to_inf


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep: its name is also that of its folder."""

    name: str
    config: ConfigDict
    overrides: Mapping[str, Any]


def load_points(path: str, config: ConfigDict) -> list[Point]:
    """The points that `sweep()` in the config file `path` yields, each applied to `config` and checked.

    A point is a dictionary of flattened keys, `{'model.h': 50, 'seed': 2}`; one with `name` is called that.
    Raises: BadInput for a file without sweep(), a point with an unknown key, a wrong type or an impossible value,
    or two points of one name: all before the first run starts.
    """
    try:
        sweep = getattr(_load_module(path), 'sweep', None)
        overrides = sweep and list(sweep())
    except Exception as error:  # noqa: BLE001 (a sweep is Python and may raise anything)
        raise BadInput(f'--sweep: sweep() of {path} failed: {type(error).__name__}: {error}') from None
    if sweep is None:
        raise BadInput(f'--sweep: {path} has no function sweep()')
    if not overrides:
        raise BadInput(f'--sweep: sweep() of {path} yields no point')
    points = [apply(config, point) for point in overrides]
    names = [point.name for point in points]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f'--sweep: two points of {path} are called {twice[0]}')
    if own := {'table.md', '.jobs'}.intersection(names):
        raise BadInput(f'--sweep: a point of {path} is called {own.pop()}, which the folder of a sweep has already')
    return points


def apply(config: ConfigDict, overrides: Mapping[str, Any]) -> Point:
    """A checked copy of `config` with some flattened keys changed. Raises: BadInput naming the key."""
    if not (isinstance(overrides, Mapping) and all(isinstance(key, str) for key in overrides)):
        raise BadInput(f'--sweep: {overrides!r}: a point must be a dictionary of keys')
    changed = config.copy_and_resolve_references()
    for key, value in overrides.items():
        *sections, last = key.split('.')
        here = changed
        for section in sections:
            here = here[section] if isinstance(here, ConfigDict) and section in here else None
        if not isinstance(here, ConfigDict) or last not in here:
            raise BadInput(f'--sweep: {key}: unknown key')
        try:
            here[last] = value
        except TypeError:
            raise BadInput(f'--sweep: {key}={value!r}: must be of type {type(here[last]).__name__}') from None
    name = overrides.get('name') or run_name(overrides) or config.name
    changed.name = name
    experiment.load_settings(changed)
    return Point(name, changed, {**overrides, 'name': name})


def run(points: Sequence[Point], folder: pathlib.Path, command: str, together: bool = False) -> str:
    """Runs the points one after another, each in its own folder; those finished are not run again.

    A point whose loss is not finite, or that its text cannot serve, is marked so, and the others go on.
    together: to train those that `vmapped.group_compatible` puts together as one, with the same results.
    Returns: the table of all points, which is written to `table.md` as well. Raises: as `experiment.run` does.
    """
    failed = {}
    configs = [point.config for point in points]
    settings = [experiment.load_settings(config) for config in configs]
    numbers = vmapped.group_compatible(settings) if together else [[i] for i in range(len(configs))]
    for group in ([configs[i] for i in group] for group in numbers):
        for config, outcome in zip(group, experiment.run_many(group, [folder / c.name for c in group], command)):
            if isinstance(outcome, Exception):
                print(f'{config.name}: {outcome}', file=sys.stderr)
                failed[config.name] = 'diverged' if isinstance(outcome, NonFiniteError) else 'refused'
    return write_table(points, folder, failed)


def write_table(points: Iterable[Point], folder: pathlib.Path, failed: Mapping[str, str]) -> str:
    """The table of all points, those of `failed` with the word there; written to `table.md` and returned."""
    rows = []
    for point in points:
        if point.name in failed:
            rows.append([point.name, failed[point.name], '-', '-', '-'])
            continue
        results = loading.finished(folder / point.name)
        perplexities = [null_to_inf(results['perplexity'][s]) for s in ('train', 'valid', 'test')]
        rows.append([point.name, *perplexities, float(results['seconds'])])
    table = markdown_table(['point', 'train', 'valid', 'test', 'seconds'], rows)
    write_atomically(folder / 'table.md', table + '\n')
    return table


def _load_module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location('sweep_config', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
