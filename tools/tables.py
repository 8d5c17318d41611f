"""Writes the tables that studies print from their committed results into the pages that show these tables.

    python -m tools.tables                        all pages
    python -m tools.tables experiments/paper      only pages whose path begins with this prefix

A printed table replaces the page's table that has the same header and the most similar row names. A note on the results
replaces the note after the last table. tests/unit/tables_test.py compares pages and results.
"""

import collections
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = {  # page -> scripts; a script whose name begins with a dot is in the folder of the page
    'README.md': ['experiments.beyond.frontier.table --summary'],
    'docs/howto/tables.md': ['experiments.paper.table1.table --short'],
    'experiments/paper/table2/README.md': ['.table'],
    'experiments/paper/table1/README.md': ['.table', '.table --seeds', '.sweep'],
    'experiments/paper/versions/README.md': ['.table'],
    'experiments/paper/section5/trees.md': ['.trees'],
    'experiments/paper/section5/energy.md': ['.energy'],
    'experiments/paper/generalization/README.md': ['.study --show', '.study --show --counts'],
    'experiments/paper/parallel/README.md': ['.table'],
    'experiments/paper/section5/new_words.md': ['.new_words --show'],
    'experiments/paper/section5/priors.md': ['.priors --show'],
    'experiments/beyond/cheaper/README.md': ['.table'],
    'experiments/beyond/recurrent/README.md': ['.table'],
    'experiments/beyond/frontier/README.md': ['.table', '.table --seeds', '.table --changes', '.minutes --show'],
    'experiments/beyond/lineage/README.md': ['.table'],
    'experiments/beyond/wikitext2/README.md': ['.table'],
    'experiments/beyond/tokens/README.md': ['.table', '.table --reading'],
    'experiments/use/decoding/README.md': ['.study'],
    'experiments/use/minimal_pairs/README.md': ['.table', '.table --paradigms'],
    'experiments/use/reading_times/README.md': ['.table', '.table --questions'],
    'experiments/use/similarity/README.md': ['.table'],
    'experiments/cost/scale/README.md': [
        '.preparation',
        '.preparation --tokens=pieces',
        '.training',
        '.ngrams',
    ],
    'experiments/cost/accelerator/README.md': [
        '.compile --show --rows=mlp1,default,mlp10 --topologies=v5e-2x2,v5e-16x16,H100,H100-8',
        '.race --show',
    ],
    'experiments/cost/speed/README.md': [
        '.race --show',
        '.race --show --output=experiments/cost/speed/results/race_streams.json',
        '.race --show --output=experiments/cost/speed/results/race_mogrifier.json',
        '.blocks --show',
        '.race --show --output=experiments/cost/speed/results/race_block_512.json',
        '.race --show --output=experiments/cost/speed/results/race_amx.json',
        '.evaluation --show',
        '.growth --show',
        '.queries --show',
    ],
    'tools/soak/README.md': ['.soak'],
}
_TABLE = re.compile(r'^\|.*\|\n\|[-: |]+\|\n(?:\|.*\|(?:\n|$))*', re.MULTILINE)
_NOTE = re.compile(r'\n*^Note: .*?(?:\n\n|\Z)', re.MULTILINE | re.DOTALL)


def update(page: str, printed: str) -> str:
    """Returns a page with the tables that a study has printed.

    Args:
        page: The page.
        printed: The tables, and a note if there is one, with a blank line between them.

    Raises:
        ValueError: The page lacks one of the tables.
    """
    end = 0
    for table in _TABLE.findall(printed + '\n'):
        header = _cells(table.splitlines()[0])
        found = [match for match in _TABLE.finditer(page) if _cells(match[0].splitlines()[0]) == header]
        if not found:
            raise ValueError(f'no table with the header {" | ".join(header)}')
        later = [match for match in found if match.start() >= end]  # a study prints its tables in the order of the page
        old = max(later or found, key=lambda match: _overlap(match[0], table))
        page = page[: old.start()] + table.rstrip() + '\n' + page[old.end() :]
        end = old.start() + len(table.rstrip()) + 1
    note = next((part.strip() for part in printed.split('\n\n') if _NOTE.match(part)), '')
    rest = page[end:]
    if former := _NOTE.match(rest):
        rest = '\n' + rest[former.end() :]
    return page[:end] + (f'\n{note}\n' if note else '') + rest


def commands() -> Iterator[tuple[str, str]]:
    """Yields each page, with the module and the arguments of each script that prints the page's tables."""
    for page, scripts in SCRIPTS.items():
        folder = page.rpartition('/')[0].replace('/', '.')
        for script in scripts:
            yield page, f'{folder}{script}' if script.startswith('.') else script


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip('|').split('|')]


def _overlap(table: str, other: str) -> float:
    """Returns the share of row names that two tables have in common, between 0 and 1."""
    names, others = (collections.Counter(_cells(line)[0] for line in each.splitlines()[2:]) for each in (table, other))
    return (names & others).total() / max(1, (names | others).total())


if __name__ == '__main__':
    prefixes = tuple(sys.argv[1:]) or ('',)
    if wrong := [prefix for prefix in prefixes if not any(page.startswith(prefix) for page in SCRIPTS)]:
        sys.exit(f'{wrong[0]}: no page begins with this prefix')
    for page, script in commands():
        if page.startswith(prefixes):
            command = [sys.executable, '-m', *script.split()]
            printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
            path = ROOT / page
            path.write_text(update(path.read_text(), printed))
