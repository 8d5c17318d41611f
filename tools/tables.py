"""Writes the tables that studies print from committed results into the pages that show them.

    python -m tools.tables                       all pages
    python -m tools.tables experiments/table1    pages whose path begins so

A printed table replaces the table of the page that has its header and most of its row names; a note on the results
replaces the note after the last of the tables. tests/unit/tables_test.py compares them.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
TABLES = [
    ('experiments/cheaper/README.md', 'cheaper.table'),
    ('experiments/table2/README.md', 'table2.table'),
    ('README.md', 'frontier.table --summary'),
    ('docs/howto/tables.md', 'table1.table --short'),
    ('experiments/table1/README.md', 'table1.table'),
    ('experiments/table1/README.md', 'table1.table --seeds'),
    ('experiments/table1/README.md', 'table1.sweep'),
    ('experiments/recurrent/README.md', 'recurrent.table'),
    ('experiments/frontier/README.md', 'frontier.table'),
    ('experiments/frontier/README.md', 'frontier.calibration'),
    ('experiments/frontier/README.md', 'frontier.ingredients'),
    ('experiments/frontier/README.md', 'frontier.tuning'),
    ('experiments/frontier/README.md', 'frontier.torch_recipes --show'),
    ('experiments/frontier/README.md', 'frontier.table --seeds'),
    ('experiments/frontier/README.md', 'frontier.minutes --show'),
    ('experiments/lineage/README.md', 'lineage.table'),
    ('experiments/wikitext2/README.md', 'wikitext2.table'),
    ('experiments/section5/trees.md', 'section5.trees'),
    ('experiments/section5/energy.md', 'section5.energy'),
    ('experiments/scale/README.md', 'scale.preparation'),
    ('experiments/scale/README.md', 'scale.preparation --tokens=pieces'),
    ('experiments/scale/README.md', 'scale.training'),
    ('experiments/scale/README.md', 'scale.tables'),
    ('experiments/scale/README.md', 'scale.cluster'),
    ('experiments/scale/README.md', 'scale.cold'),
    ('experiments/accelerator/README.md', 'accelerator.compile --show'),
    ('experiments/accelerator/README.md', 'accelerator.roofline'),
    ('experiments/accelerator/README.md', 'accelerator.half_peak --show'),
    ('experiments/accelerator/README.md', 'accelerator.race --show'),
    ('experiments/search/README.md', 'search.study --show'),
    ('experiments/pruning/README.md', 'pruning.study'),
    ('experiments/decoding/README.md', 'decoding.study'),
    ('experiments/decoding/README.md', 'decoding.searches'),
    ('experiments/minimal_pairs/README.md', 'minimal_pairs.harness'),
    ('experiments/reading_times/README.md', 'reading_times.table'),
    ('experiments/reading_times/README.md', 'reading_times.table --questions'),
    ('experiments/soak/README.md', 'soak.soak'),
    ('experiments/minimal_pairs/README.md', 'minimal_pairs.table'),
    ('experiments/minimal_pairs/README.md', 'minimal_pairs.table --paradigms'),
    ('experiments/similarity/README.md', 'similarity.table'),
    ('experiments/speed/README.md', 'speed.forms --show'),
    ('experiments/speed/README.md', 'speed.race --show'),
    ('experiments/speed/README.md', 'speed.race --show --output=experiments/speed/results/race_amx.json'),
    ('experiments/speed/README.md', 'speed.quality --show'),
    ('experiments/speed/README.md', 'speed.scaling --show'),
    ('experiments/speed/README.md', 'speed.vectorize --show'),
    ('experiments/speed/README.md', 'speed.history'),
    ('experiments/speed/README.md', 'speed.next_words --show'),
    ('experiments/speed/README.md', 'speed.queries --show'),
    ('docs/howto/export.md', 'speed.onnx_tokens --show'),
    ('experiments/generalization/README.md', 'generalization.study --show'),
    ('experiments/parallel/README.md', 'parallel.table'),
    ('experiments/section5/new_words.md', 'section5.new_words --show'),
    ('experiments/section5/open_vocabulary.md', 'section5.open_vocabulary_table'),
    ('experiments/section5/priors.md', 'section5.priors --show'),
    ('experiments/section5/senses.md', 'section5.senses --show'),
    ('experiments/tokens/README.md', 'tokens.table'),
]
_TABLE = re.compile(r'^\|.*\|\n\|[-: |]+\|\n(?:\|.*\|(?:\n|$))*', re.MULTILINE)
_NOTE = re.compile(r'\n*^Measured with .*?(?:\n\n|\Z)', re.MULTILINE | re.DOTALL)


def update(page: str, printed: str) -> str:
    """Returns a page with what a study prints.

    Args:
        page: The page.
        printed: The tables, and a note if there is one, with a blank line between them.

    Raises:
        ValueError: The page lacks one of the tables.
    """
    end = 0
    for table in _TABLE.findall(printed + '\n'):
        header, *names = map(_cells, table.splitlines())
        found = [match for match in _TABLE.finditer(page) if _cells(match[0].splitlines()[0]) == header]
        if not found:
            raise ValueError(f'no table with the header {" | ".join(header)}')
        later = [match for match in found if match.start() >= end]  # a study prints its tables in the page's order
        old = max(later or found, key=lambda match: _overlap(match[0], names))
        page = page[: old.start()] + table.rstrip() + '\n' + page[old.end() :]
        end = old.start() + len(table.rstrip()) + 1
    note = next((part.strip() for part in printed.split('\n\n') if part.startswith('Measured with ')), '')
    rest = page[end:]
    if former := _NOTE.match(rest):
        rest = '\n' + rest[former.end() :]
    return page[:end] + (f'\n{note}\n' if note else '') + rest


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip('|').split('|')]


def _overlap(table: str, names: list[list[str]]) -> int:
    rows = {_cells(line)[0] for line in table.splitlines()}
    return sum(cells[0] in rows for cells in names)


if __name__ == '__main__':
    for file, script in TABLES:
        if any(file.startswith(prefix) for prefix in sys.argv[1:] or ['']):
            command = [sys.executable, '-m', *f'experiments.{script}'.split()]
            printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
            path = ROOT / file
            path.write_text(update(path.read_text(), printed))
