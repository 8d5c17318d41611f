"""Prepares and counts a text by workers of Dask on this machine, kills some of them, and plans for larger texts.

    python -m experiments.cost.scale.cluster TEXT --workers=2,4,8  results/cluster.json: cost by the number of workers
    python -m experiments.cost.scale.cluster TEXT --kills=20       results/kills.json: one worker killed in each run
    python -m experiments.cost.scale.cluster TEXT --rehearse       results/rehearsal.json: 8 workers, and the plan
    python -m experiments.cost.scale.cluster                       the tables of the committed results, and the plan

The plan multiplies what the run with most workers in cluster.json spent on a word, and on an n-gram, by the numbers of
a larger text; its n-grams follow the power law of results/ngrams.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from configs import text
from experiments import results, study
from experiments.sources import of_module
from nplm_jax.config.settings import override
from nplm_jax.data import corpora, encoding
from nplm_jax.data.stream import Span
from nplm_jax.executors import processes, workers
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results'
ORDER = 5
PLANNED = (10_000_000_000, 100_000_000_000)  # words
MACHINES = 64
STAGES = ('prepare', 'count')
REHEARSED = {'processor_seconds': ('processor s', 1.0), 'written': ('MB written', 1e6)}  # by figure: name and unit
HEADER = ['workers', 'prepare: s', 'processor s', 'MB written', 'count: s', 'processor s', 'MB written', 'n-grams']
KILLS_HEADER = ['runs', 'workers killed', 'equal', 'seconds: median', 'without a kill']
PLAN_HEADER = [
    'words',
    'n-grams',
    'TB written',
    'processor hours',
    'hours of the leader',
    f'hours on {MACHINES} workers',
]


@contextlib.contextmanager
def start_cluster(num_workers: int, folder: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Starts a scheduler and workers on this machine, which come back when they are killed.

    Args:
        num_workers: The number of workers, of one thread each.
        folder: Where they write temporary files.

    Yields:
        The address, and the scheduler's process.

    Raises:
        BadInput: They have not started within a minute.
    """
    port = processes.free_port()
    address = f'tcp://127.0.0.1:{port}'
    dask = [sys.executable, '-m', 'dask']
    options = [f'--nworkers={num_workers}', '--nthreads=1', '--memory-limit=0', f'--local-directory={folder}']
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
    scheduler = [*dask, 'scheduler', '--host=127.0.0.1', f'--port={port}', '--no-dashboard']
    with (
        subprocess.Popen(scheduler, **quiet) as scheduler_process,
        subprocess.Popen([*dask, 'worker', address, *options, '--no-dashboard'], **quiet) as nannies,
    ):
        try:
            _wait(address, num_workers)
            yield address, scheduler_process
        finally:
            nannies.terminate()
            scheduler_process.terminate()


def _wait(address: str, num_workers: int) -> None:
    from nplm_jax.apps.cluster.dask_cluster import Client  # noqa: PLC0415 (an optional package)

    try:
        with Client(address, timeout=60, set_as_default=False) as client:
            if num_workers:
                client.wait_for_workers(num_workers, timeout=60)
    except OSError:
        raise BadInput(address, f'{num_workers} workers did not start within a minute') from None


def prepare_and_count(path: str, address: str) -> dict[str, Any]:
    """Prepares and counts a text; runs in a process of its own. Times are after the imports."""
    settings = load_settings(override(text.get_config(), {'corpus.path': path}))
    with contextlib.ExitStack() as stack:
        pids: Iterable[int] = ()
        if address:
            from nplm_jax.apps.cluster.dask_cluster import DaskCluster  # noqa: PLC0415 (an optional package)

            cluster = stack.enter_context(DaskCluster(address))
            stack.enter_context(workers.use(cluster))
            pids = list(cluster.on_each(os.getpid))
        usage = [_usage(pids)]
        corpus = corpora.load(settings.corpus)
        data = encoding.build_dataset(corpus, encoding.build_vocabulary(corpus, settings.corpus))
        usage.append(_usage(pids))
        span, scratch = Span(0, len(corpus)), SharedScratch(pathlib.Path(path).parent)
        counted = count(data.tokens_T, span, ORDER, len(data.vocabulary), scratch)
        usage.append(_usage(pids))
    digest = hashlib.sha256()
    for array in (data.tokens_T, *counted.table.keys, *counted.counts, *counted.suffix_nodes):
        digest.update(np.ascontiguousarray(array).data)
    stages = zip(STAGES, usage, usage[1:])
    return {
        'words': len(corpus),
        'ngrams': sum(map(len, counted.counts)),
        'digest': digest.hexdigest(),
        **{stage: {key: after[key] - before[key] for key in before} for stage, before, after in stages},
    }


def _usage(pids: Iterable[int]) -> dict[str, float]:
    """Returns the seconds, the processor seconds and the bytes written so far, by this process and by workers."""
    own = os.times()
    used = {'seconds': time.perf_counter(), 'leader_seconds': own.user + own.system, 'written': 0.0}
    used['processor_seconds'] = used['leader_seconds'] + own.children_user + own.children_system
    for pid in (os.getpid(), *pids):
        with contextlib.suppress(FileNotFoundError):  # a worker that was killed
            fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
            written = pathlib.Path(f'/proc/{pid}/io').read_text().partition('wchar: ')[2].split()[0]
            used['written'] += int(written)
            if pid != os.getpid():
                used['processor_seconds'] += (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
    return used


def run_child(path: str, address: str, kill_after: float | None = None) -> dict[str, Any]:
    """Runs `prepare_and_count` with an empty cache; kills a worker after some seconds, if they are given."""
    with tempfile.TemporaryDirectory(dir=pathlib.Path(path).parent) as folder:
        link = pathlib.Path(folder) / 'text.txt'
        os.link(path, link)
        command = [
            sys.executable,
            '-m',
            'experiments.cost.scale.cluster',
            str(link),
            '--child',
            f'--scheduler={address}',
        ]
        environment = {**os.environ, 'NPLM_JAX_CACHE': f'{folder}/cache'}
        begin = time.perf_counter()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            killed = kill_after is not None and _kill_worker(address, kill_after)
            output, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return {**json.loads(output), 'killed': killed, 'all_seconds': time.perf_counter() - begin}


def _kill_worker(address: str, after: float) -> bool:
    """Kills a worker with SIGKILL after some seconds."""
    from nplm_jax.apps.cluster.dask_cluster import Client  # noqa: PLC0415 (an optional package)

    time.sleep(after)
    with Client(address, timeout=60, set_as_default=False) as client:
        os.kill(min(client.run(os.getpid, on_error='ignore').values()), signal.SIGKILL)
    return True


def measure_workers(path: str, numbers: list[int], folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields rows of the processes of this machine, then of clusters of some numbers of workers, after each."""
    rows = [{'workers': 0, **run_child(path, '')}]
    yield {'rows': rows}
    for number in tqdm(numbers, 'clusters', disable=None):
        with start_cluster(number, folder) as (address, _):
            rows.append({'workers': number, **run_child(path, address)})
        if rows[-1]['digest'] != rows[0]['digest']:
            raise BadInput(f'{number} workers', 'not the words and counts of one machine')
        yield {'rows': rows}


def rehearse(path: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields a run on eight workers beside its plan."""
    *_, measured = measure_workers(path, [8], folder)
    row, planned = measured['rows'][-1], plan(measured['rows'][-1]['words'])
    figures = {
        key: {'measured': sum(row[stage][key] for stage in STAGES), 'planned': planned[key]} for key in REHEARSED
    }
    yield {'words': row['words'], 'workers': 8, 'row': row, 'figures': figures}


def measure_kills(path: str, number: int, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Kills one of two workers in each run, after a time within the run. Yields all runs, after each."""
    with start_cluster(2, folder) as (address, _):
        without = run_child(path, address)
        random.seed(0)
        delays = [random.uniform(0.15, 0.85) * without['all_seconds'] for _ in range(number)]
        runs = []
        for delay in tqdm(delays, disable=None):
            runs.append(run_child(path, address, delay))
            yield {'without': without, 'runs': runs}


def num_ngrams(words: float) -> float:
    """Returns the n-grams of a text of so many words, by the power law through the two largest measured texts."""
    (w0, n0), (w1, n1) = (
        (s['words'], sum(s['nplm_jax']['ngrams'])) for s in results.read(RESULTS, 'ngrams')['sizes'][-2:]
    )
    return n1 * (words / w1) ** (math.log(n1 / n0) / math.log(w1 / w0))


def plan(words: float) -> dict[str, float]:
    """Returns what a text of so many words costs, from the rates of the largest cluster in cluster.json."""
    row = results.read(RESULTS, 'cluster')['rows'][-1]
    grown = {'prepare': words / row['words'], 'count': num_ngrams(words) / row['ngrams']}
    keys = ('processor_seconds', 'leader_seconds', 'written')
    return {key: sum(row[stage][key] * grown[stage] for stage in STAGES) for key in keys}


def make_tables(flags: study.Flags) -> str:
    """Returns the tables of the committed results, and the plan."""
    tables = [cluster_table(), plan_table()]
    if (RESULTS / 'kills.json').exists():
        tables.append(kills_table())
    if (RESULTS / 'rehearsal.json').exists():
        tables.append(rehearsal_table())
    return '\n\n'.join(tables)


def cluster_table() -> str:
    """Returns a row for this machine's processes and for each number of workers."""
    rows = []
    for row in results.read(RESULTS, 'cluster')['rows']:
        cells = [str(row['workers'] or 'this machine')]
        for stage in STAGES:
            used = row[stage]
            cells += [f'{used["seconds"]:,.1f}', f'{used["processor_seconds"]:,.1f}', f'{used["written"] / 1e6:,.0f}']
        rows.append([*cells, f'{row["ngrams"]:,}'])
    return markdown_table(HEADER, rows)


def kills_table() -> str:
    """Returns how many runs gave the same words and counts although a worker was killed."""
    killed = results.read(RESULTS, 'kills')
    runs, without = killed['runs'], killed['without']
    equal = sum(run['digest'] == without['digest'] for run in runs)
    median = sorted(run['all_seconds'] for run in runs)[len(runs) // 2]
    numbers = len(runs), sum(run['killed'] for run in runs), equal
    seconds = f'{median:,.1f}', f'{without["all_seconds"]:,.1f}'
    return markdown_table(KILLS_HEADER, [[*map(str, numbers), *seconds]])


def plan_table() -> str:
    """Returns what larger texts would cost."""
    rows = []
    for words in PLANNED:
        cost = plan(words)
        leader, everybody = cost['leader_seconds'], cost['processor_seconds']
        hours = (f'{s / 3600:,.1f}' for s in (everybody, leader, leader + (everybody - leader) / MACHINES))
        rows.append([f'{words:,}', f'{num_ngrams(words):.2g}', f'{cost["written"] / 1e12:,.1f}', *hours])
    return markdown_table(PLAN_HEADER, rows)


def rehearsal_table() -> str:
    """Returns what was planned for a run, and what it took."""
    rehearsal, rows = results.read(RESULTS, 'rehearsal'), []
    for key, (name, unit) in REHEARSED.items():
        found = rehearsal['figures'][key]
        error = f'{found["planned"] / found["measured"] - 1:+.0%}'
        rows.append([name, *(f'{found[figure] / unit:,.1f}' for figure in ('planned', 'measured')), error])
    header = [
        f'{rehearsal["words"]:,} words, {rehearsal["workers"]} workers',
        'planned',
        'measured',
        'error of the plan',
    ]
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument(
        'text', nargs='?', metavar='TEXT', help='a file, on a disk with space for a hundred times its size'
    )
    parser.add_argument('--workers', type=study.counts, default=[2, 4, 8], metavar='N,...', help='numbers of workers')
    parser.add_count('--kills', 0, 'kill a worker in each of so many runs instead', least=0)
    parser.add_switch('--rehearse', 'compare a run on 8 workers with its plan instead')
    parser.add_output_path(help='the file of the results; default: in results')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--scheduler', default='', help=argparse.SUPPRESS)


def main(flags: study.Flags) -> None:
    """Measures."""
    if flags.child:
        print(json.dumps(prepare_and_count(flags.text, flags.scheduler)))
        return
    path = str(expand('TEXT', flags.text).absolute())
    require(os.path.isfile(path), 'TEXT', flags.text, 'is no file')
    from nplm_jax.apps.cluster import dask_cluster  # noqa: F401, PLC0415 (says at once if the package is missing)

    facts = {**of_module('experiments.cost.scale.cluster'), 'load_before': os.getloadavg()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if flags.rehearse:
            name, states = 'rehearsal', rehearse(path, folder)
        elif flags.kills:
            name, states = 'kills', measure_kills(path, flags.kills, folder)
        else:
            name, states = 'cluster', measure_workers(path, flags.workers, folder)
        output = flags.output or RESULTS / f'{name}.json'
        results.write_each(output, ({**measured, **facts} for measured in states))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=make_tables, measure_if='text')
