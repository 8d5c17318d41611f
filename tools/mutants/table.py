"""Prints how many mutants the tests killed, from the committed results.

python -m tools.mutants.table
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from nplm_jax.reporting.text import markdown_table

HERE = pathlib.Path(__file__).parent
HEADER = ['seed', 'room', 'places', 'mutants', 'equivalent', 'killed at first', '95% interval', 'killed now']
KILLED = ('killed', 'timeout')


def rows() -> list[list[str]]:
    """Returns the rows of the table: for each sample, one row per room and one for all rooms."""
    found = []
    for path in sorted((HERE / 'results').glob('seed_*.json')):
        result = json.loads(path.read_text())
        by_room = {room: [] for room in result['places']}
        for record in result['records']:
            by_room[record['path'].split('/')[1]].append(record)
        summaries = {room: summary(records, equivalents()) for room, records in by_room.items()}
        shares = {room: result['places'][room] / sum(result['places'].values()) for room in by_room}
        for room, (tried, equivalent, first, now) in summaries.items():
            number = tried - equivalent
            cells = [result['places'][room], tried, equivalent, *_estimate([(1.0, first, number)]), now / number]
            found.append([result['seed'], room, *cells])
        strata = [
            (shares[room], first, tried - equivalent) for room, (tried, equivalent, first, _) in summaries.items()
        ]
        now = sum(shares[room] * now / (tried - equivalent) for room, (tried, equivalent, _, now) in summaries.items())
        totals = [sum(result['places'].values()), *(sum(s[i] for s in summaries.values()) for i in (0, 1))]
        found.append([result['seed'], 'all', *totals, *_estimate(strata), now])
    return [[*map(str, row[:5]), f'{row[5]:.0%}', row[6], f'{row[7]:.0%}'] for row in found]


def equivalents() -> set[tuple[str, ...]]:
    """Returns the changes that do not affect results."""
    return {key(entry) for entry in json.loads((HERE / 'equivalents.json').read_text())}


def summary(records: list[dict[str, Any]], equivalents: set[tuple[str, ...]]) -> tuple[int, int, int, int]:
    """Returns the number of mutants, of equivalent mutants, and of mutants killed at first and now."""
    others = [record for record in records if key(record) not in equivalents]
    first, now = (sum(record[which] in KILLED for record in others) for which in ('first', 'outcome'))
    return len(records), len(records) - len(others), first, now


def key(record: dict[str, Any]) -> tuple[str, ...]:
    """Identifies a change by its file and the text of the line before and after the change."""
    return record['path'], record['before'], record['after']


def _estimate(strata: list[tuple[float, int, int]]) -> tuple[float, str]:
    """Returns a share and its interval from (weight, killed, tried) of each stratum.

    The interval is Agresti and Coull's for one stratum. For several strata, the weighted variances are summed.
    """
    share = sum(weight * killed / tried for weight, killed, tried in strata)
    centre = sum(weight * (killed + 2) / (tried + 4) for weight, killed, tried in strata)
    variances = ((w**2, (k + 2) / (n + 4), n + 4) for w, k, n in strata)
    half = 1.96 * sum(w2 * p * (1 - p) / n for w2, p, n in variances) ** 0.5
    return share, f'{max(0, centre - half):.0%} to {min(1, centre + half):.0%}'


if __name__ == '__main__':
    print(markdown_table(HEADER, rows()))
