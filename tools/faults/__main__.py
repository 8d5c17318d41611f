"""Prints the committed results of the fault injection and of the soak test, or repeats the tests.

python -m tools.faults
python -m tools.faults --measure [kills] [stops] [disks] [damage] [network]     as root
python -m tools.faults --soak=MINUTES
"""

import argparse
import collections
import functools
import json
import pathlib
import random
import re
import tempfile
import time

from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.io import write_atomically
from tools.faults import damage, disks, group_plans, job_faults, kills, many_table, network, runs, soak, sweep_faults
from tools.faults.child import PHASES

HERE = pathlib.Path(__file__).parent
KINDS = {
    'kills': kills.measure,
    'stops': kills.measure_stops,
    'disks': disks.measure,
    'damage': damage.measure,
    'network': network.measure,
}
MANY = {  # kinds of faults with several processes, or several runs
    **{kind: functools.partial(group_plans.measure, kind) for kind in group_plans.PLANS},
    'sweeps': sweep_faults.measure,
    **{launcher: functools.partial(job_faults.measure, launcher) for launcher in ('local', 'slurm')},
}
HEADER = ['fault', 'in', 'tried', 'recovered', 'updates redone', 'exit code', 'said']


def measure(kind: str, source: dict, seed: int = 1) -> None:
    """Injects all faults of a kind and writes results/KIND.json, even if interrupted. `source` is the provenance."""
    started, records = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        base = runs.unbroken(folder)
        for record in KINDS[kind](folder, base, random.Random(seed)):
            print(record, flush=True)
            records.append(record)
            _write(kind, {'seed': seed, 'seconds': round(time.perf_counter() - started), **source}, records)


def measure_many(kind: str, source: dict) -> None:
    """Injects the missing faults of a kind in MANY and adds them to results/KIND.json. Resumes when interrupted."""
    path, started = HERE / 'results' / f'{kind}.json', time.perf_counter()
    former = json.loads(path.read_text()) if path.exists() else {'seconds': 0, 'records': []}
    records = [{'commit': former['commit'], **record} for record in former['records']]
    with tempfile.TemporaryDirectory() as name:
        for record in MANY[kind](pathlib.Path(name), {record['chain'] for record in records}):
            print(record, flush=True)
            records.append({**record, 'commit': source['commit']})  # earlier records may come from another commit
            seconds = former['seconds'] + round(time.perf_counter() - started)
            _write(kind, {'seconds': seconds, **source}, records)


def _write(kind: str, head: dict, records: list[dict]) -> None:
    head = {'command': f'python -m tools.faults --measure {kind}', **head}
    rows = ',\n'.join(json.dumps(row) for row in records)
    write_atomically(HERE / 'results' / f'{kind}.json', f'{json.dumps(head)[:-1]}, "records": [\n{rows}\n]}}\n')


def recovered(record: dict) -> bool:
    """Returns whether the repeated command gave the same result without losing progress or printing long messages."""
    ends = {'kill -9': (-9,), 'SIGTERM': (143, -15)}.get(record['fault'], (0, 1, 2, 143, -9))
    return record['same'] and record.get('kept', True) and record['exit'] in ends and '\n' not in record['said']


def make_table() -> str:
    """Returns one row per fault and phase."""
    groups = collections.defaultdict(list)
    for path in (HERE / 'results' / f'{kind}.json' for kind in KINDS):
        for record in json.loads(path.read_text())['records'] if path.exists() else ():
            groups[record['fault'], record['phase']].append(record)
    faults, phases = list(dict.fromkeys(fault for fault, _ in groups)), [*PHASES, 'between']
    order = sorted(groups, key=lambda key: (faults.index(key[0]), phases.index(key[1])))
    return markdown_table(HEADER, [_row(*key, groups[key]) for key in order])


def _row(fault, phase, records):
    redone = [record['redone'] for record in records if 'redone' in record]
    said = collections.Counter(_short(record['said']) for record in records)
    codes = sorted({record['exit'] for record in records})
    return [
        fault, phase, len(records), sum(map(recovered, records)),
        f'{min(redone)} to {max(redone)}' if any(redone) else 0,
        ', '.join(map(str, codes)), said.most_common(1)[0][0] or '-',
    ]  # fmt: skip


def _short(said: str) -> str:
    """Removes log times, varying numbers, and the ends of other libraries' long messages."""
    said = re.sub(r'\b\d[\d,]*\b', 'N', re.sub(r'^[WE]\d+ .*?\] ', '', said))
    return said if len(said) < 150 else f'{said[:150]} ...'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--measure', nargs='*', choices=[*KINDS, *MANY], metavar='KIND')
    parser.add_argument('--soak', type=float, metavar='MINUTES')
    asked = parser.parse_args()
    if asked.soak:
        soak.measure(asked.soak)
    source = provenance.provenance()  # record it before the first result modifies a committed file
    for kind in asked.measure or ([*KINDS, *MANY] if asked.measure is not None else ()):
        measure_many(kind, source) if kind in MANY else measure(kind, source)
    print(f'{make_table()}\n\n{many_table.make_table()}\n\n{soak.make_table()}')


if __name__ == '__main__':
    main()
