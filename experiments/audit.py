"""Audits the committed results: which versions and commits they come from, and which of them should be repeated.

    python -m experiments.audit [--files]

Prints a row per study. A result is good if it records its versions and a commit of this repository without local
changes, and if no version is known to compute wrong numbers. --files prints a row for every other result.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from experiments import study
from nplm_jax.distributed.jax_settings import UNUSABLE
from nplm_jax.reporting.text import markdown_table

HERE = pathlib.Path(__file__).parent
FAULTS = ('excluded jaxlib', 'local changes', 'unknown commit', 'no versions')
HEADER = ['study', 'results', 'good', *FAULTS]


class Result(NamedTuple):
    """A committed file of results.

    Attributes:
        path: The file, below experiments/.
        jaxlib: The releases of jaxlib that its rows record.
        commits: Their commits.
    """

    path: pathlib.Path
    jaxlib: frozenset[str]
    commits: frozenset[str]

    def faults(self, known: frozenset[str]) -> list[str]:
        """Returns those of FAULTS that the result has.

        Args:
            known: The commits of the repository, in full.
        """
        hashes = {commit.removesuffix('-dirty') for commit in self.commits}
        is_known = all(any(full.startswith(short) for full in known) for short in hashes)
        found = {
            'excluded jaxlib': bool(self.jaxlib & UNUSABLE.keys()),
            'local changes': any(commit.endswith('-dirty') for commit in self.commits),
            'unknown commit': not is_known,
            'no versions': not (self.jaxlib and self.commits),
        }
        return [fault for fault in FAULTS if found[fault]]


def records(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the dictionaries inside a JSON value that record versions or a commit."""
    if isinstance(value, dict):
        if isinstance(value.get('versions'), dict) or isinstance(value.get('commit'), str):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from records(item)


def read_all(folder: pathlib.Path = HERE) -> list[Result]:
    """Returns all results below a folder, which are JSON files in folders named results."""
    found = []
    for path in sorted(folder.rglob('results/**/*.json')):
        rows = list(records(json.loads(path.read_text())))
        jaxlib = frozenset(row['versions']['jaxlib'] for row in rows if 'jaxlib' in row.get('versions', {}))
        commits = frozenset(row['commit'] for row in rows if row.get('commit'))
        found.append(Result(path.relative_to(folder), jaxlib, commits))
    return found


def faults() -> dict[Result, list[str]]:
    """Returns the faults of each committed result; none of a good one."""
    known = known_commits()
    return {result: result.faults(known) for result in read_all()}


def known_commits() -> frozenset[str]:
    """Returns all commits of this repository; none outside a clone."""
    done = subprocess.run(['git', 'rev-list', '--all'], cwd=HERE, capture_output=True, text=True)
    return frozenset(done.stdout.split())


def make(show_files: bool = False) -> str:
    """Returns the table of the studies, or that of the results with faults."""
    found_in = faults()
    if show_files:
        rows = [
            [str(result.path), ', '.join(sorted(result.jaxlib)), ', '.join(sorted(result.commits)), ', '.join(found)]
            for result, found in found_in.items()
            if found
        ]
        return markdown_table(['result', 'jaxlib', 'commit', 'fault'], rows)
    table = []
    studies = dict.fromkeys(result.path.parts[0] for result in found_in)
    for name in [*studies, 'all']:
        some = [found for result, found in found_in.items() if name in (result.path.parts[0], 'all')]
        table.append([name, len(some), some.count([]), *(sum(fault in found for found in some) for fault in FAULTS)])
    return markdown_table(HEADER, [[name, *map(str, counts)] for name, *counts in table])


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_switch('--files', 'print a row for every result that is not good')


if __name__ == '__main__':
    study.run(__doc__, define=define, show=lambda flags: make(flags.files))
