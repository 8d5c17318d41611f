"""Audits the versions and commits of the committed results, and lists the results that should be repeated.

    python -m experiments.audit [--files]

Prints one row per study. A result is good if it records its versions and a commit of this repository without local
changes, if none of the versions is known to compute wrong numbers, if its command still selects the recorded settings,
and if the commands of the models that it was made from are recorded. --files prints one row for each result that is not
good.
"""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping

from experiments import origins, study
from experiments.origins import Origin
from experiments.results import study_of
from nplm_jax.reporting.text import markdown_table

HERE = pathlib.Path(__file__).parent
FAULTS = ('excluded jaxlib', 'local changes', 'unknown commit', 'no versions', 'earlier settings', 'unknown settings')
HEADER = ['study', 'results', 'good', *FAULTS]


def faults_of(origin: Origin, known: frozenset[str] | None) -> list[str]:
    """Returns the entries of FAULTS that apply to a result of this origin.

    Args:
        origin: The origin.
        known: The commits of the repository, in full, or None if they are not known.
    """
    hashes = {commit.removesuffix('-dirty') for commit in origin.commits}
    found = {
        'excluded jaxlib': bool(origin.excluded),
        'local changes': origin.is_modified,
        'unknown commit': known is not None and not all(any(full.startswith(x) for full in known) for x in hashes),
        'no versions': origin.is_partial,
        'earlier settings': origin.is_earlier,
        'unknown settings': origin.is_unknown,
    }
    return [fault for fault in FAULTS if found[fault]]


def read_all(folder: pathlib.Path = HERE) -> dict[pathlib.Path, Origin]:
    """Returns the origin of each committed result. Results are the JSON files in folders named results."""
    return {path: origins.of(json.loads(path.read_text())) for path in sorted(folder.rglob('results/**/*.json'))}


def faults(results: Mapping[pathlib.Path, Origin]) -> dict[pathlib.Path, list[str]]:
    """Returns the faults of each result. For a good result, the list is empty."""
    known = known_commits()
    return {path: faults_of(origin, known) for path, origin in results.items()}


@functools.cache
def known_commits(folder: pathlib.Path = HERE) -> frozenset[str] | None:
    """Returns all commits of this repository. Without a complete clone, returns None and prints a note on stderr."""

    def git(*words: str) -> str:
        return subprocess.run(['git', *words], cwd=folder, capture_output=True, text=True).stdout

    if git('rev-parse', '--is-shallow-repository').strip() == 'false':
        return frozenset(git('rev-list', '--all').split())
    print('the commits of the results are not checked, because this is not a complete clone', file=sys.stderr)
    return None


def make(show_files: bool = False) -> str:
    """Returns the table of studies, or the table of the results that have faults."""
    results = read_all()
    found_in = faults(results)
    if show_files:
        rows = []
        for path, found in found_in.items():
            recorded = (', '.join(sorted(values)) for values in (results[path].jaxlib, results[path].commits))
            if found:
                rows.append([str(path.relative_to(HERE)), *recorded, ', '.join(found)])
        return markdown_table(['result', 'jaxlib', 'commit', 'fault'], rows)
    table = []
    studies = {path: study_of(path) for path in found_in}
    for name in [*dict.fromkeys(studies.values()), 'all']:
        some = [found for path, found in found_in.items() if name in (studies[path], 'all')]
        table.append([name, len(some), some.count([]), *(sum(fault in found for found in some) for fault in FAULTS)])
    return markdown_table(HEADER, [[name, *map(str, counts)] for name, *counts in table])


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--files', 'print one row for each result that is not good')


if __name__ == '__main__':
    study.run(__doc__, define=define, show=lambda flags: make(flags.files))
