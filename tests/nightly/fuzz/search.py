"""Searches for crashes of the readers of untrusted files by damaging valid files.

    python -m tests.nightly.fuzz.search      searches each reader, writes cases.json and prints the table

A case is a valid file with one to four edits: bytes are flipped, removed, repeated, moved or replaced, or words that
have caused errors are inserted. In JSON files, values and keys are also replaced. A reader must return a result, which
must not change after it has been written and read again, or raise BadInput with a short one-line message.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import random
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st

from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import BadInput
from tests.nightly.fuzz.damage import Reader, damaged
from tests.nightly.fuzz.readers import READERS

RECORD = pathlib.Path(__file__).parent / 'cases.json'
SECONDS = 10.0  # maximum processor time of a case, a thousand times the usual time
HEADER = ['reader', 'cases', 'read', 'refused', 'crashes', 'slowest, CPU s']


def search_few(reader: Reader, cases: int) -> None:
    """Tries `cases` cases with Hypothesis. Raises the exception of a reader for the smallest damage that causes it."""

    @hypothesis.settings(
        max_examples=cases,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.randoms(use_true_random=False))
    def case(rng: random.Random) -> None:
        outcome(reader, rng)

    case()


def search_many(reader: Reader, cases: int) -> dict[str, Any]:
    """Tries the cases 0 to `cases` - 1, five times as fast as Hypothesis.

    Returns the numbers of read and rejected cases. Raises AssertionError with the case for any other outcome.
    """
    counts: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    for number in range(cases):
        started = time.process_time()
        try:
            counts[outcome(reader, random.Random(number))] += 1
        except Exception as error:
            raise AssertionError(f'{reader.name}: case {number} ended in {error!r}') from error
        slowest = max(slowest, time.process_time() - started)
    assert slowest < SECONDS, f'{reader.name}: a case took {slowest:.1f} s'
    return {'reader': reader.name, **{k: counts[k] for k in ('read', 'refused')}, 'slowest': round(slowest, 2)}


def outcome(reader: Reader, rng: random.Random) -> str:
    """Returns whether a damaged file was `read` or `refused`. Raises any other exception of the reader."""
    data = damaged(rng, reader)
    with tempfile.TemporaryDirectory(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None) as folder:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('error')
                reader.read(pathlib.Path(folder), data)
            return 'read'
        except BadInput as error:
            assert 0 < len(str(error)) < 1100 and str(error).isprintable(), repr(error)
            return 'refused'


def make_table(outcomes: Sequence[dict[str, Any]]) -> str:
    """Returns the table of README.md. A completed search has found no crash."""
    rows = [[f['reader'], f'{f["read"] + f["refused"]:,}', f'{f["read"]:,}', f'{f["refused"]:,}', 0] for f in outcomes]
    return markdown_table(HEADER, [[*row, f'{f["slowest"]:.2f}'] for row, f in zip(rows, outcomes)])


def record(outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """Records the outcome of one reader. Returns the outcomes of all readers in order."""
    outcomes = json.loads(RECORD.read_text()) if RECORD.exists() else []
    by_name = {f['reader']: f for f in [*outcomes, outcome]}
    rows = [by_name[reader.name] for reader in READERS if reader.name in by_name]
    RECORD.write_text(json.dumps(rows, indent=2) + '\n')
    return rows


def main() -> None:
    """Tests every reader, or a single reader, and records the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--reader', default='', help='search only this reader')
    flags = parser.parse_args()
    rows = []
    for reader in READERS:
        if flags.reader in ('', reader.name):
            rows = record(search_many(reader, reader.cases[1]))
    print(make_table(rows))


if __name__ == '__main__':
    main()
