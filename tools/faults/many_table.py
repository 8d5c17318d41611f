"""The table of faults in multi-process runs, sweeps and jobs, from the committed results."""

import collections
import json
import pathlib
import re

from nplm_jax.reporting.text import markdown_table
from tools.faults.child import PHASES

RESULTS = pathlib.Path(__file__).parent / 'results'
GROUPS = ('pairs', 'cuts', 'fours')
FILES = (*GROUPS, 'sweeps', 'local', 'slurm')
HEADER = ['run', 'fault', 'to', 'in', 'tried', 'recovered', 'exit code', "the others'", 'said']
CODES = {0, 1, 2, 143, -6, -9, -15}  # -6: JAX noticed the loss of a process before the program did


def records() -> list[dict]:
    """Returns all records; `run` is the kind of the run."""
    rows = []
    for path in (RESULTS / f'{name}.json' for name in FILES):
        for record in json.loads(path.read_text())['records'] if path.exists() else ():
            run = f'{record["processes"]} processes' if record['processes'] > 1 else 'one process'
            name = record['chain'].partition('.')[0]
            rows.append({**record, 'run': run if name in GROUPS else f'{name}, {run}'})
    return rows


def recovered(record: dict) -> bool:
    """Returns whether each process ended with at most one line, no checkpoint was lost, and the result is the same."""
    ended = set(record['exit']) | set(record['others']) <= CODES
    return record['same'] and record.get('kept', True) and ended and record['lines'] <= 1


def make_table() -> str:
    """Returns one row per kind of run and fault."""
    rows = collections.defaultdict(list)
    for record in records():
        rows[record['run'], record['fault']].append(record)
    runs, faults = (list(dict.fromkeys(names)) for names in zip(*rows))
    order = sorted(rows, key=lambda key: (runs.index(key[0]), faults.index(key[1])))
    return markdown_table(HEADER, [_row(*key, rows[key]) for key in order])


def _row(run: str, fault: str, group: list[dict]) -> list:
    phases = sorted({record['phase'] for record in group}, key=lambda p: PHASES.index(p) if p in PHASES else -1)
    said = collections.Counter(text for record in group if (text := _short(record['said'] or record['others_said'])))
    who = ', '.join(dict.fromkeys(record['who'] for record in group))
    return [
        run, fault, who, ', '.join(phases), len(group), sum(map(recovered, group)), _codes(group, 'exit'),
        _codes(group, 'others'), max(said, key=said.get, default='-'),
    ]  # fmt: skip


def _codes(group: list[dict], key: str) -> str:
    codes = {code for record in group for code in record[key]}
    return ', '.join(map(str, sorted(codes, key=lambda code: (code is None, code)))) or '-'


def _short(said: str) -> str:
    """Returns a message without log times, varying numbers, paths and long text in brackets."""
    said = re.sub(r'\b\d[\d,]*\b', 'N', re.sub(r'^[WE]\d+ .*?\] ', '', said))
    said = re.sub(r"='/[^']*'", "='...'", said)
    said = re.sub(r'\(UNKNOWN: (Gloo [\w-]+ failed).*?\)$', r'(\1 ...)', said)
    return said if len(said) < 110 else f'{said[:110]} ...'
