"""Speed and memory of `nplm_jax.data.text_files.read_chunks`, on the same text in each format.

    python -m experiments.cost.scale.readers                 prints the table of results/readers.json
    python -m experiments.cost.scale.readers --measure       measures it: writes 200 MB a format to a temporary folder

The text is generated: words of 1 to 9 letters, the shorter the more frequent, in lines of 12 and paragraphs of 5 lines;
a tenth of it is written ten times. The files with rows have a paragraph a row. Each format is read in a process of its
own. Seconds of the processor say more than those of the clock where other programs run.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments import results, study
from nplm_jax.reporting import provenance

_RESULTS = pathlib.Path(__file__).parent / 'results' / 'readers.json'
_FORMATS = ('.txt', '.no_blank_lines', '.txt.gz', '.txt.zst', '.jsonl', '.jsonl.gz', '.parquet', '.arrow')
_REPEATS = 10
_CHILD = """
import json, pathlib, re, sys, time
from nplm_jax.data import text_files
def memory(field):
    return int(re.findall(field + r':\\s+(\\d+) kB', pathlib.Path('/proc/self/status').read_text())[0]) * 1024
start = memory('VmRSS')
wall, processor = time.perf_counter(), time.process_time()
characters = pieces = longest = 0
for chunk in text_files.read_chunks('file', pathlib.Path(sys.argv[1]), 'text'):
    characters += len(chunk.text)
    pieces += 1
    longest = max(longest, len(chunk.text))
seconds, processor = time.perf_counter() - wall, time.process_time() - processor
print(json.dumps({'characters': characters, 'pieces': pieces, 'longest_piece': longest, 'seconds': seconds,
                  'processor_seconds': processor, 'start_bytes': start, 'peak_bytes': memory('VmHWM')}))
"""


def _paragraphs(num_bytes: int) -> Iterator[str]:
    """Yields paragraphs of about `num_bytes` in all."""
    rng = np.random.default_rng(0)
    letters = np.array(list('etaoinshrdlucmfwypvbgkjqxz'))
    words = np.array([''.join(rng.choice(letters, min(9, 1 + i // 100))) for i in range(20_000)])
    while num_bytes > 0:
        ids = np.minimum(rng.zipf(1.2, (1000, 5, 12)) - 1, len(words) - 1)
        for lines in words[ids]:
            paragraph = '\n'.join(map(' '.join, lines))
            num_bytes -= len(paragraph) + 2
            yield paragraph


def _write(path: pathlib.Path, paragraphs: list[str]) -> None:
    """Writes the paragraphs in the format that the suffix names."""
    suffix = path.name.removeprefix('a')
    if suffix in ('.parquet', '.arrow'):
        import pyarrow.parquet  # noqa: PLC0415 (an optional package)

        table = pyarrow.table({'text': paragraphs * _REPEATS})
        if suffix == '.parquet':
            pyarrow.parquet.write_table(table, path)
            return
        with pyarrow.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table, max_chunksize=1000)  # as `datasets` does
        return
    if '.jsonl' in suffix:
        data = ''.join(json.dumps({'text': paragraph}) + '\n' for paragraph in paragraphs).encode()
    else:
        data = ''.join(p + ('\n' if suffix == '.no_blank_lines' else '\n\n') for p in paragraphs).encode()
    if suffix.endswith('.gz'):
        data = gzip.compress(data, 6)
    if suffix.endswith('.zst'):
        import backports.zstd as zstd  # noqa: PLC0415 (an optional package)

        data = zstd.compress(data)
    with path.open('wb') as file:
        for _ in range(_REPEATS):
            file.write(data)


def measure(megabytes: int) -> Iterator[dict[str, Any]]:
    """Yields what each format took, after each."""
    import backports.zstd  # noqa: F401, PLC0415 (says before the first format if an optional package is missing)
    import pyarrow.parquet  # noqa: F401, PLC0415

    paragraphs = list(_paragraphs(megabytes * 10**6 // _REPEATS))
    measured: dict[str, Any] = {'provenance': provenance.provenance(), 'megabytes': megabytes, 'formats': {}}
    with tempfile.TemporaryDirectory() as folder:
        for suffix in _FORMATS:
            path = pathlib.Path(folder) / f'a{suffix}'
            _write(path, paragraphs)
            command = [sys.executable, '-c', _CHILD, str(path)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            measured['formats'][suffix] = {'file_bytes': path.stat().st_size} | json.loads(output)
            path.unlink()
            yield measured


def table() -> str:
    """Returns the table of results/readers.json."""
    lines = [
        '| file | MB on disk | MB of text a second | a processor second | peak MiB | of it at the start |',
        '| --- | ---: | ---: | ---: | ---: | ---: |',
    ]
    for suffix, row in results.read(_RESULTS.parent, _RESULTS.stem)['formats'].items():
        speeds = [row['characters'] / 1e6 / row[key] for key in ('seconds', 'processor_seconds')]
        memory = [row[key] / 2**20 for key in ('peak_bytes', 'start_bytes')]
        figures = (row['file_bytes'] / 1e6, *speeds, *memory)
        lines.append(f'| {suffix} | {" | ".join(f"{figure:.0f}" for figure in figures)} |')
    return '\n'.join(lines)


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_switch('--measure', 'measure, and write results/readers.json')
    parser.add_argument('--megabytes', type=study.positive(int), default=200, help='megabytes of text')


def main(flags: study.Flags) -> None:
    """Measures, and prints the table."""
    results.write_each(_RESULTS, measure(flags.megabytes))
    print(table())


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=lambda _: table(), measure_if='measure')
