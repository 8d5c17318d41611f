"""The origins of committed results: the recorded jaxlib releases, commits and load of the machine."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import pathlib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from configs import presets
from experiments import results
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.keys import list_keys
from nplm_jax.distributed.jax_settings import UNUSABLE
from nplm_jax.runs.command_line import load_config
from nplm_jax.utils.errors import BadInput

ROOT = pathlib.Path(__file__).parents[1]
_MOST_NAMES = 6  # in a note
_BUSY = 3.0  # from this load average before a run, other programs slow the run down on two cores


class Origin(NamedTuple):
    """The origin of a results file.

    Attributes:
        jaxlib: The releases of jaxlib recorded in its rows.
        commits: The commits recorded in its rows.
        is_busy: Whether other programs ran on the machine when a run started.
        is_partial: Whether a row lacks its jaxlib release or its commit, or the file has no such rows.
        is_earlier: Whether the command of a row selects other settings today than those that the row records, or has a
            preset or a key that no longer exists.
        is_unknown: Whether the result was made from models whose commands, and thus settings, are not recorded.
    """

    jaxlib: frozenset[str]
    commits: frozenset[str]
    is_busy: bool = False
    is_partial: bool = False
    is_earlier: bool = False
    is_unknown: bool = False

    @property
    def excluded(self) -> frozenset[str]:
        """The recorded jaxlib releases that this version rejects."""
        return self.jaxlib & UNUSABLE.keys()

    @property
    def is_modified(self) -> bool:
        """Whether a row was measured with uncommitted changes."""
        return any(commit.endswith('-dirty') for commit in self.commits)


def of(content: Any) -> Origin:
    """Returns the origin of a file's content."""
    found = list(_dictionaries(content))
    rows = [row for row in found if isinstance(row.get('versions'), dict) or isinstance(row.get('commit'), str)]
    models = [model for row in found for model in row.get('trained', []) if isinstance(model, dict)]
    jaxlib = frozenset(row['versions']['jaxlib'] for row in rows if 'jaxlib' in row.get('versions', {}))
    commits = frozenset(row['commit'] for row in rows if row.get('commit'))
    is_partial = not rows or not all(row.get('commit') and 'jaxlib' in row.get('versions', {}) for row in rows)
    is_busy, is_earlier = any(_load(row) >= _BUSY for row in rows), any(map(_has_earlier_settings, rows))
    is_unknown = not all('command' in model for model in models)
    return Origin(jaxlib, commits, is_busy, is_partial, is_earlier, is_unknown)


def _has_earlier_settings(row: Mapping[str, Any]) -> bool:
    """Returns whether a row's command selects other settings today than the row records (`results.changed_keys`).

    A command with a preset or a key that no longer exists does so. Of a row without recorded settings, only the family
    of the model is compared. A command without --config, such as `nplm train brown`, is not compared. For --minutes,
    see `_has_earlier_choice`.
    """
    recorded, typed = row.get('settings'), _config_flags(row.get('command', ''))
    file = _config_file(typed.pop('config', ''))
    if not file:
        return False
    values = {name.removeprefix('config.'): _value(text) for name, text in typed.items()}
    if '--minutes' in row['command']:
        return _has_earlier_choice(row, [*values, *['model.family'] * (':' in file)])
    try:
        config = config_lib.override(load_config(file), values)
    except BadInput:  # a preset or a key no longer exists
        return True
    keys = {key.name: key.value for key in list_keys(config_lib.from_config(config))}
    if recorded is None:
        return row.get('family', keys['model.family']) != keys['model.family']
    now = json.loads(json.dumps({name: keys.get(name) for name in recorded}))
    return now != recorded or not results.changed_keys(config).keys() <= recorded.keys()


def _has_earlier_choice(row: Mapping[str, Any], typed: Collection[str]) -> bool:
    """Returns whether --minutes would set other keys today for the row's width, number of passes and training words."""
    if 'updates' not in row:  # the 5-gram for short texts
        return row.get('family') != 'modified_kneser_ney'
    recorded = flatten(row.get('config', {}))
    keys = presets.network(recorded.get('model.h', 1), row['epochs'], row['words']['train'])
    by_time = 'train.patience', 'train.evaluate_every', 'train.checkpoint_every'  # set later, by the time they take
    chosen = {key: value for key, value in keys.items() if key not in (*typed, *by_time)}
    return any(key not in recorded or recorded[key] != value for key, value in chosen.items())


def _config_flags(command: str) -> dict[str, str]:
    """Returns the values of --config and --config.KEY in a command, in any of Absl's spellings, by name."""
    words, typed = shlex.split(command), {}
    for word, following in itertools.pairwise([*words, '--']):
        if match := re.fullmatch(r'--?(no)?(config(?:\.[^=]*)?)(?:=(.*))?', word, re.DOTALL):
            is_switch = re.match(r'--?[a-z]|--$', following)
            switch = 'False' if match[1] else 'True' if is_switch else following
            typed[match[2]] = switch if match[3] is None else match[3]
    return typed


@functools.cache
def _config_file(file: str) -> str:
    """Returns the value of --config with the file's path in this repository, or '' if it has no file of this name."""
    path, colon, preset = file.partition(':')
    name = f'{pathlib.PurePath(path).stem}.py'
    own = () if pathlib.PurePath(path).is_absolute() else (ROOT / path,)
    paths = (*own, ROOT / 'configs' / name, *sorted((ROOT / 'experiments').rglob(name)))
    found = next((path for path in paths if file and path.is_file()), None)
    return f'{found}{colon}{preset}' if found else ''


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text.title() if text in ('true', 'false') else text)
    except (SyntaxError, ValueError):
        return text


def _load(row: Mapping[str, Any]) -> float:
    """Returns the load average before a run, or 0 if none is recorded. Of several, returns that of the last minute."""
    load = row.get('load', row.get('load_before', 0.0))
    return load[0] if isinstance(load, list) else load


def note(files: Mapping[pathlib.Path, Any]) -> str:
    """Returns a note with one sentence for each reason to distrust a table's results or times, or '' without reasons.

    Args:
        files: The contents of the files that the table shows.
    """
    origins = {path: of(files[path]) for path in sorted(files)}
    releases = sorted(frozenset().union(*(origin.excluded for origin in origins.values())))
    reasons = {
        f'measured with jaxlib {release}, which {UNUSABLE[release]}': [
            path for path, origin in origins.items() if release in origin.excluded
        ]
        for release in releases
    } | {
        'measured with uncommitted changes': [path for path, origin in origins.items() if origin.is_modified],
        'recorded without complete versions': [path for path, origin in origins.items() if origin.is_partial],
        'trained with earlier settings or keys': [path for path, origin in origins.items() if origin.is_earlier],
        'made from models whose settings are not recorded': [p for p, origin in origins.items() if origin.is_unknown],
        'timed while other programs ran': [path for path, origin in origins.items() if origin.is_busy],
    }
    sentences = [f'{_subject(some, origins)} {reason}.' for reason, some in reasons.items() if some]
    return f'Note: {" ".join(sentences)}' if sentences else ''


def _subject(some: list[pathlib.Path], shown: Collection[pathlib.Path]) -> str:
    """Returns the subject and verb of a sentence about some of the results in a table, such as `All results were`."""
    total = len(shown)
    if len(some) == total:
        return 'All results were' if total > 1 else 'The result was'
    *others, last = (f'`{_name(path, shown)}`' for path in some)
    names = ' and '.join(filter(None, (', '.join(others), last)))
    subject = names if len(some) <= _MOST_NAMES else f'{len(some)} of {total} results'
    return f'{subject} {"were" if len(some) > 1 else "was"}'


def _name(path: pathlib.Path, shown: Collection[pathlib.Path]) -> str:
    """Returns the name of a result, with just enough of its folders to distinguish it from the other results."""
    endings = ((path.with_suffix('').parts[-n:], n) for n in range(1, len(path.parts)))
    alike = ((end, sum(other.with_suffix('').parts[-n:] == end for other in shown)) for end, n in endings)
    return '/'.join(next((end for end, number in alike if number == 1), path.with_suffix('').parts))


def _dictionaries(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yields all dictionaries in a JSON value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _dictionaries(item)
