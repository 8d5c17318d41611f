"""Compares nplm-jax and KenLM's lmplz in estimating a modified Kneser-Ney 5-gram from a text, without caches.

    python -m experiments.cost.scale.cold TEXT --kenlm=/folder/of/lmplz    results/cold.json
    python -m experiments.cost.scale.cold --quick                          a check: nplm-jax's command with a small text
    python -m experiments.cost.scale.cold                                  the table of the committed results

Both programs read the text, count all of its words, and write a model. They alternate, and their order changes in each
round. Memory is that of all processes of a command: their proportional set sizes (Pss), sampled five times per
second.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tqdm import tqdm

from experiments import results, study
from experiments.cost.scale import generate
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results'
ROOT = pathlib.Path(__file__).parents[3]
ORDER = 5
TEST_LINES = 1_000
HEADER = ['program', 'seconds', 'of all rounds', 'processor s', 'peak MB']
PROGRAMS = {'nplm_jax': 'nplm-jax', 'lmplz': 'lmplz'}


def commands(text: str, folder: pathlib.Path, kenlm: pathlib.Path | None, memory: str) -> dict[str, list[str]]:
    """Returns the command of each program. `folder` contains test.txt and receives the models and temporary files.

    Without KenLM's folder, returns only the command of nplm-jax.
    """
    corpus = {'path': text, 'valid_path': folder / 'test.txt', 'test_path': folder / 'test.txt', 'min_count': 1}
    found = {
        'nplm_jax': [
            *(sys.executable, str(ROOT / 'launch.py'), f'--config=configs/text.py:modified_kneser_ney_{ORDER}'),
            *(f'--config.corpus.{key}={value}' for key, value in corpus.items()),
            *('--config.eval.train_words=1000', f'--workdir={folder / "run"}'),
        ]
    }
    if kenlm:
        found['lmplz'] = [
            *(str(kenlm.resolve() / 'lmplz'), '-o', str(ORDER), '-S', memory),
            *('--text', text, '--arpa', str(folder / 'model.arpa'), '-T', str(folder / 'sort')),
        ]
    return found


def run_once(command: list[str], folder: pathlib.Path) -> dict[str, float]:
    """Runs a command. Returns its wall-clock time and processor time in seconds, and its peak memory in bytes."""
    cache = folder / 'cache'
    shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(folder / 'run', ignore_errors=True)
    peak, before, start = 0, os.times(), time.perf_counter()
    with (folder / 'errors').open('w+') as errors:
        env = {**os.environ, 'NPLM_JAX_CACHE': str(cache)}
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, _family(process.pid))))
            time.sleep(0.2)
        seconds, after = time.perf_counter() - start, os.times()
        errors.seek(0)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=errors.read())
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {'seconds': seconds, 'processor_seconds': used, 'peak_bytes': peak}


def _family(pid: int) -> list[int]:
    """Returns the ids of a process and of all its descendants."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
            children += map(int, (task / 'children').read_text().split())
    return [pid, *(each for child in children for each in _family(child))]


def _resident(pid: int) -> int:
    """Returns a process's share of resident memory in bytes; 0 if it has ended."""
    with contextlib.suppress(OSError):
        if match := re.search(r'^Pss:\s+(\d+)', pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text(), re.MULTILINE):
            return int(match[1]) * 1024
    return 0


def table(flags: study.Flags) -> str:
    """Returns one row per program: its median round, and the seconds of all rounds."""
    rounds = results.load(flags.output)['rounds']
    rows = []
    for key in sorted(rounds[0], reverse=True):
        runs = [each[key] for each in rounds]
        middle = sorted(runs, key=lambda run: run['seconds'])[len(runs) // 2]
        numbers = middle['seconds'], middle['processor_seconds']
        every = ', '.join(f'{run["seconds"]:.1f}' for run in runs)
        peak = max(run['peak_bytes'] for run in runs)
        rows.append([PROGRAMS[key], f'{numbers[0]:.1f}', every, f'{numbers[1]:.1f}', f'{peak / 1e6:,.0f}'])
    return markdown_table(HEADER, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument(
        'text',
        nargs='?',
        metavar='TEXT',
        help='text file to estimate the models from; default: print the committed results',
    )
    parser.add_argument(
        '--kenlm', type=pathlib.Path, help="folder that contains KenLM's lmplz, required with TEXT; default: none"
    )
    parser.add_argument('--memory', default='2G', help='memory that lmplz may use (its option -S)')
    parser.add_count('--rounds', 3, 'number of times to run each program')
    parser.add_output_path(RESULTS / 'cold.json')
    parser.add_quick(rounds=1, output='runs/quick/cold.json')


def main(flags: study.Flags) -> None:
    """Measures and writes the results."""
    if flags.quick:
        with generate.small_text(20_000) as text:
            measure(flags, text, None)
        return
    require(os.path.isfile(flags.text), 'TEXT', flags.text, 'must be a file')
    require(bool(flags.kenlm and (flags.kenlm / 'lmplz').is_file()), '--kenlm', str(flags.kenlm), 'must contain lmplz')
    allowed = 'must be a size such as 2G or 80%'
    require(bool(re.fullmatch('[0-9.]+[%bKMGT]?', flags.memory)), '--memory', flags.memory, allowed)
    measure(flags, os.path.abspath(flags.text), flags.kenlm)


def measure(flags: study.Flags, text: str, kenlm: pathlib.Path | None) -> None:
    """Measures the programs in turn, and writes the results after each round."""
    rounds = []
    with tempfile.TemporaryDirectory(dir=os.path.dirname(text)) as temporary:
        folder = pathlib.Path(temporary)
        with open(text, 'rb') as lines:
            (folder / 'test.txt').write_bytes(b''.join(itertools.islice(lines, TEST_LINES)))
        programs = commands(text, folder, kenlm, flags.memory)
        facts = {**of_module('experiments.cost.scale.cold'), 'text_bytes': os.path.getsize(text)}
        facts |= {'order': ORDER, 'lmplz_memory': flags.memory}
        for number in tqdm(range(flags.rounds), 'rounds', disable=None):
            order = sorted(programs, reverse=bool(number % 2))
            rounds.append({name: run_once(programs[name], folder) for name in order})
            results.write(flags.output, {'rounds': rounds, **facts})


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=table, measure_if='text')
