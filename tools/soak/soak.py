"""Serves the explorer to many visitors, with or without a concurrent training run, and monitors both processes.

    python -m tools.soak.soak --minutes=60 --visitors=20        during a training that saves every few seconds
    python -m tools.soak.soak --minutes=10 --visitors=50 --no_training --output=tools/soak/results/load.json
    python -m tools.soak.soak                                   prints the tables of the committed results

Requires Linux (for /proc) and pip install '.[explore]'. All processes run on this machine. Runs are saved in --workdir
or a temporary folder. Before the measurement starts, the tool generates a text of 200,000 words and trains two models
on this text: a network (for two epochs) and a modified Kneser-Ney trigram. The explorer shows their mixture.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import results, study
from experiments.cost.scale import generate
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
ROOT = pathlib.Path(__file__).parents[2]
WORDS = 200_000
NETWORK = (
    '--config=configs/text.py', '--config.corpus.max_vocabulary=5000', '--config.corpus.boundary_tokens=False',
    '--config.model.n=4', '--config.model.m=60', '--config.model.h=100', '--config.train.batch_size=256',
    '--config.optimizer.learning_rate=0.05', '--config.train.steps_per_execution=10', '--config.train.log_every=50',
    '--config.eval.train_words=2000',
)  # fmt: skip
COUNTS = ('--config=configs/text.py:modified_kneser_ney', *NETWORK[1:3], '--config.model.n=3')
SAVE_EVERY = 100
ENDLESS = (
    '--config.train.epochs=1000000', '--config.train.patience=1000000',
    f'--config.train.checkpoint_every={SAVE_EVERY}', '--config.train.evaluate_every=5000',
)  # fmt: skip
LOOKS = 120  # number of measurements of each process, evenly spaced
PARTS = ('start', 'middle', 'end')


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument(
        '--minutes', type=study.positive(float), help='duration of the test [min]; default: print the committed results'
    )
    parser.add_argument('--visitors', type=study.positive(int), default=20, help='number of concurrent visitors')
    parser.add_switch('--no_training', 'serve the explorer without concurrent training')
    parser.add_argument('--workdir', default='', help='folder to keep the runs in; default: a temporary folder')
    parser.add_output_path(RESULTS / 'soak.json')


def main(flags: study.Flags) -> None:
    """Measures and writes the results."""
    from tools.soak import visitors  # noqa: F401, PLC0415 (fails before training starts if a package is missing)

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(flags.workdir or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measured = measure(folder, flags.minutes, flags.visitors, not flags.no_training)
    results.write(flags.output, measured)


def tables() -> str:
    """Returns the tables of all committed measurements."""
    return '\n\n'.join(make_table(path.stem) for path in sorted(RESULTS.glob('*.json')))


def measure(folder: pathlib.Path, minutes: float, num_visitors: int, trains: bool) -> dict[str, Any]:
    """Measures for the given time. Returns the content of the results file."""
    words = _write_text(folder / 'text')
    _train(folder, 'network', *NETWORK, '--config.train.epochs=2')
    _train(folder, 'counts', *COUNTS)
    environment = {**os.environ, 'PYTHONWARNINGS': 'ignore', 'PYTHONUNBUFFERED': '1'}
    log = (folder / 'explorer.log').open('w')
    line = [sys.executable, '-m', 'nplm_jax.cli', 'explore', *(str(folder / name) for name in ('network', 'counts'))]
    explorer = subprocess.Popen(
        [*line, '--port=0', '--no_browser'], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=log
    )
    processes = {'explorer': explorer}
    try:
        assert explorer.stdout is not None
        address = explorer.stdout.readline().split()[0]
        time.sleep(3)  # the explorer listens shortly after its message
        if trains:
            processes['training'] = _start(folder, 'training', *NETWORK, *ENDLESS, stderr=log)
            _wait_for(lambda: len(_saves(folder)) >= 2, 600)
        looks, answers = asyncio.run(_run(address, words, folder, processes, 60 * minutes, num_visitors))
        ends = {name: _end(process) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return _summary(folder, looks, answers, num_visitors, ends)


async def _run(
    address: str,
    words: Sequence[str],
    folder: pathlib.Path,
    processes: dict[str, subprocess.Popen[str]],
    seconds: float,
    num_visitors: int,
) -> tuple[list[dict[str, Any]], list[Any]]:
    """Simulates visitors, and measures the processes at the same time."""
    from tools.soak import visitors  # noqa: PLC0415 (needs the explorer's packages)

    answers: list[visitors.Answer] = []
    looks: list[dict[str, Any]] = []
    began = time.monotonic()
    visits = [
        asyncio.create_task(visitors.visit(address, number, words, began + seconds, answers))
        for number in range(num_visitors)
    ]
    for number in range(LOOKS + 1):
        await asyncio.sleep(max(0, began + number * seconds / LOOKS - time.monotonic()))
        ended = {name: process.poll() for name, process in processes.items() if process.poll() is not None}
        if ended:
            raise SystemExit(f'a process ended unexpectedly: {ended}; see explorer.log in --workdir')
        row: dict[str, Any] = {'seconds': round(time.monotonic() - began, 1)}
        row |= {name: _look(process.pid) for name, process in processes.items()}
        looks.append({**row, 'disk_kilobytes': _kilobytes(folder), 'newest_save': max(_saves(folder), default=0)})
    await asyncio.gather(*visits)
    return looks, [answer._replace(at=answer.at - began) for answer in answers]


def _look(pid: int) -> dict[str, float]:
    """Returns the resident memory, open files, threads and CPU time (in seconds) of a process."""
    times = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[11:13]
    status = dict(line.split(':', 1) for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines())
    files = len(os.listdir(f'/proc/{pid}/fd'))
    return {
        'resident_kilobytes': int(status['VmRSS'].split()[0]),
        'open_files': files,
        'threads': int(status['Threads']),
        'cpu_seconds': sum(map(int, times)) / os.sysconf('SC_CLK_TCK'),
    }


def _kilobytes(folder: pathlib.Path) -> int:
    return int(subprocess.run(['du', '-sk', folder], capture_output=True, text=True, check=False).stdout.split()[0])


def _saves(folder: pathlib.Path) -> list[int]:
    return [int(path.name) for path in (folder / 'training' / 'checkpoints').glob('[0-9]*') if path.name.isdigit()]


def _summary(
    folder: pathlib.Path, looks: list[dict[str, Any]], answers: list[Any], num_visitors: int, ends: dict[str, Any]
) -> dict[str, Any]:
    """Returns the medians over the first, middle and last tenth of the time, and all measurements."""
    size = max(len(looks) // 10, 1)
    middle = len(looks) // 2
    places = {'start': slice(0, size), 'middle': slice(middle, middle + size), 'end': slice(-size, None)}
    parts = {}
    for name, place in places.items():
        rows = looks[place]
        first, last = rows[0]['seconds'], rows[-1]['seconds'] + looks[1]['seconds'] - looks[0]['seconds']
        parts[name] = {
            'minute': round(statistics.median(row['seconds'] for row in rows) / 60, 1),
            **{process: _medians([row[process] for row in rows]) for process in ends},
            'disk_kilobytes': statistics.median(row['disk_kilobytes'] for row in rows),
            'answers': _latencies([answer for answer in answers if first <= answer.at < last], last - first),
        }
    saves = (looks[-1]['newest_save'] - looks[0]['newest_save']) // SAVE_EVERY
    log = (folder / 'explorer.log').read_text()
    return {
        'minutes': round(looks[-1]['seconds'] / 60, 1),
        'visitors': num_visitors,
        'checkpoints': saves,
        'parts': parts,
        'all_answers': _latencies(answers, looks[-1]['seconds']),
        'explorer_cpu_seconds': round(looks[-1]['explorer']['cpu_seconds'] - looks[0]['explorer']['cpu_seconds'], 1),
        'load_average': round(os.getloadavg()[1], 1),
        'errors': sorted({answer.note for answer in answers if answer.kind == 'error'})[:10],
        'ends': ends,
        'lines_on_stderr': len(log.splitlines()),
        'tracebacks': log.count('Traceback'),
        **of_module('tools.soak.soak'),
        'looks': looks,
    }


def _medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def _latencies(answers: Sequence[Any], seconds: float) -> dict[str, Any]:
    """Returns the requests per second and the median and 99th percentile of the latency in ms, by kind of request."""
    summary: dict[str, Any] = {'per_second': round(len(answers) / seconds, 2)}
    for kind in ('page', 'text', 'error'):
        times = [1000 * answer.seconds for answer in answers if answer.kind == kind]
        summary[kind] = {'requests': len(times)}
        if times:
            summary[kind] |= {f'p{q}_ms': round(float(np.percentile(times, q)), 1) for q in (50, 99)}
    return summary


def _write_text(path: pathlib.Path) -> list[str]:
    """Writes the text. Returns the words that visitors type, some of them outside the vocabulary."""
    ranks_T = np.concatenate(list(generate.ranks(WORDS)))
    path.write_text(' '.join(f'w{rank}' for rank in ranks_T))
    return [f'w{rank}' for rank in dict.fromkeys(ranks_T[:5000].tolist())]


def _train(folder: pathlib.Path, name: str, *flags: str) -> None:
    if (folder / name / 'results.json').exists():  # an earlier measurement in this folder has trained the model
        return
    process = _start(folder, name, *flags, stderr=subprocess.PIPE)
    _, stderr = process.communicate()
    if process.returncode:
        raise SystemExit(f'{name}: {stderr}')


def _start(folder: pathlib.Path, name: str, *flags: str, stderr: Any) -> subprocess.Popen[str]:
    line = [sys.executable, 'launch.py', *flags, f'--config.corpus.path={folder / "text"}']
    return subprocess.Popen(
        [*line, f'--workdir={folder / name}'], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr, text=True
    )


def _wait_for(is_so: Any, seconds: float) -> None:
    stop = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > stop:
            raise SystemExit('the training run did not save a checkpoint')
        time.sleep(1)


def _end(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Ends a process with SIGINT. Returns its exit code, and the time until it ended."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    return {'exit_code': process.returncode, 'seconds': round(time.monotonic() - began, 2)}


def make_table(name: str) -> str:
    """Returns the tables of a committed measurement: the resources of each process, and the latency of answers."""
    measured = results.read(RESULTS, name)
    header = ['', 'minute']
    for process in measured['ends']:
        header += [f'{process}: resident MB', 'open files', 'threads']
    header += ['disk, KB', 'requests/s', 'page p50 / p99, ms', 'text p50 / p99, ms', 'busy', 'errors']
    rows = []
    for part in PARTS:
        numbers = measured['parts'][part]
        row = [part, f'{numbers["minute"]:.1f}']
        for process in measured['ends']:
            held = numbers[process]
            row += [f'{held["resident_kilobytes"] / 1024:,.1f}', f'{held["open_files"]:g}', f'{held["threads"]:g}']
        row += [f'{numbers["disk_kilobytes"]:,.0f}', f'{numbers["answers"]["per_second"]:.1f}']
        answers = numbers['answers']
        row += [_cell(answers[kind]) for kind in ('page', 'text')]
        row += [f'{answers[kind]["requests"]:,}' if kind in answers else '-' for kind in ('busy', 'error')]
        rows.append(row)
    return markdown_table(header, rows)


def _cell(latencies: dict[str, float]) -> str:
    return f'{latencies["p50_ms"]:,.0f} / {latencies["p99_ms"]:,.0f}' if latencies['requests'] else '-'


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=lambda _: tables(), measure_if='minutes')
