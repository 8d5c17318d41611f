"""Compares the time, peak memory and disk space that nplm-jax and KenLM's lmplz need for 5-grams of generated text.

    python -m experiments.cost.scale.ngrams --folder=/a/large/disk --kenlm=/folder/of/lmplz --words=1_000_000,10_600_000
    python -m experiments.cost.scale.ngrams --quick         runs a check with 20,000 words
    python -m experiments.cost.scale.ngrams         prints the table of the committed results

Both programs read the same words. Each estimate is a separate process, and the programs alternate. nplm-jax reads ids
from a mapped file and writes model.safetensors; lmplz counts words of text and writes an ARPA file. lmplz reads the
text as one line between <s> and </s>, whereas nplm-jax puts four rare words before it. The n-gram tables differ by
these n-grams, and |V| differs by the two words <unk> and </s>. The test words are scored without <s> and </s>.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np

from experiments import results, study
from experiments.cost.scale import generate, preparation
from experiments.sources import of_module
from nplm_jax.data.stream import Span
from nplm_jax.ngram import kneser_ney, storage
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import require

ORDER = 5
TEST_WORDS = 200_000
MAX_RANK = 65_535  # words with a higher or equal rank are read as the rare word
REPEATS = 2  # runs of each estimate of fewer words than SLOW; the fastest counts
SLOW = 50_000_000
RESULTS = pathlib.Path(__file__).parent / 'results' / 'ngrams.json'
QUICK_WORDS = 20_000
HEADER = [
    'words',
    'n-grams',
    'program',
    'seconds',
    'processor s',
    'peak MB',
    'peak MB on disk',
    'MB of the model',
    'test perplexity',
]


def prepare(folder: pathlib.Path, words: int) -> dict[str, int]:
    """Writes ids.bin and, for lmplz, train.txt and test.txt. Returns their sizes and |V|."""
    ranks_T = np.empty(words + TEST_WORDS, np.int32)
    at = 0
    for batch in generate.ranks(len(ranks_T)):
        ranks_T[at : at + len(batch)] = np.minimum(batch, MAX_RANK)
        at += len(batch)
    occurs = np.bincount(ranks_T[:words], minlength=MAX_RANK + 1) > 0
    occurs[MAX_RANK] = False
    ranks_T[~occurs[ranks_T]] = MAX_RANK  # both programs read test words outside the training text as the rare word
    ids = np.where(occurs, np.cumsum(occurs), 0).astype(np.int32)
    ids[ranks_T].tofile(folder / 'ids.bin')
    for name, part_T in (('train', ranks_T[:words]), ('test', ranks_T[words:])):
        with (folder / f'{name}.txt').open('wb') as file:
            for start in range(0, len(part_T), 2**22):
                file.write(generate.to_text(part_T[start : start + 2**22], in_lines=False))
            file.write(b'\n')
    return {'vocabulary': int(occurs.sum()) + 1, 'text_bytes': (folder / 'train.txt').stat().st_size}


def estimate(folder: pathlib.Path, words: int, vocabulary_size: int) -> dict[str, Any]:
    """Estimates, saves and loads the model, and scores the test words. Runs in a separate process."""
    tokens_T = np.memmap(folder / 'ids.bin', np.int32, 'r')
    helper_peaks = preparation.watch_helpers()
    clock = [time.perf_counter()]
    model = kneser_ney.fit_modified(
        count(tokens_T, Span(0, words), ORDER, vocabulary_size, scratch=SharedScratch(folder))
    )
    clock.append(time.perf_counter())
    storage.save(model, folder / 'model.safetensors')
    clock.append(time.perf_counter())
    peak = provenance.peak_memory()
    loaded = storage.load(folder / 'model.safetensors', vocabulary_size)
    clock.append(time.perf_counter())
    log_p_T = loaded.score(tokens_T, Span(words, len(tokens_T)))
    clock.append(time.perf_counter())
    helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
    train_words = min(words, SLOW // 4)
    loaded.score(tokens_T, Span(0, train_words))
    clock.append(time.perf_counter())
    seconds = np.diff(clock).tolist()
    names = ('estimate_seconds', 'save_seconds', 'load_seconds', 'test_seconds', 'train_score_seconds')
    return {
        **dict(zip(names, seconds)),
        'scored_train_words': train_words,
        'cpu_seconds': time.process_time() + helpers.ru_utime + helpers.ru_stime,
        'peak_bytes': peak,
        'helper_peak_bytes': max(helper_peaks.values(), default=0),
        'peak_bytes_with_scoring': provenance.peak_memory(),
        'ngrams': [model.table.size(k) for k in range(1, ORDER + 1)],
        'model_bytes': (folder / 'model.safetensors').stat().st_size,
        'perplexity': float(np.exp(-log_p_T.mean(dtype=np.float64))),
    }


def measure(command: list[str], folder: pathlib.Path) -> dict[str, Any]:
    """Runs a command. Returns its output, time in seconds, peak resident memory, and peak disk space."""
    free, done = [shutil.disk_usage(folder).free], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            free.append(shutil.disk_usage(folder).free)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = process.communicate()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return {'output': output, 'errors': errors, 'seconds': seconds, 'peak_disk_bytes': free[0] - min(free)}


def measure_ours(folder: pathlib.Path, words: int, vocabulary_size: int) -> dict[str, Any]:
    """Measures `estimate`. The time includes the start of the process."""
    module = ['-m', 'experiments.cost.scale.ngrams', f'--folder={folder}', f'--words={words}']
    measured = measure([sys.executable, *module, f'--child={vocabulary_size}'], folder)
    child = json.loads(measured['output'])
    return {**child, **{key: measured[key] for key in ('seconds', 'peak_disk_bytes')}}


def measure_lmplz(folder: pathlib.Path, kenlm: pathlib.Path, memory: str) -> dict[str, Any]:
    """Measures lmplz, which reports its own peak memory."""
    files = ['--text', f'{folder}/train.txt', '--arpa', f'{folder}/model.arpa', '-T', f'{folder}/kenlm']
    measured = measure([str(kenlm / 'lmplz'), '-o', str(ORDER), '-S', memory, *files], folder)
    report = dict(re.findall(r'(\w+):([0-9.]+)', measured['errors'].splitlines()[-1]))
    return {
        'seconds': measured['seconds'],
        'cpu_seconds': float(report['CPU']),
        'peak_bytes': int(report['RSSMax']) * 1024,
        'peak_disk_bytes': measured['peak_disk_bytes'],
        'model_bytes': (folder / 'model.arpa').stat().st_size,
    }


def lmplz_perplexity(folder: pathlib.Path, kenlm: pathlib.Path) -> float:
    """Returns the perplexity of the test words according to KenLM's query, without <s> and </s>."""
    with (folder / 'test.txt').open() as text:
        query = [str(kenlm / 'query'), '-n', '-v', 'summary', str(folder / 'model.arpa')]
        output = subprocess.run(query, stdin=text, capture_output=True, text=True, check=True).stdout
    (perplexity,) = re.findall(r'Perplexity including OOVs:\s*([0-9.]+)', output)
    return float(perplexity)


def measure_size(folder: pathlib.Path, words: int, kenlm: pathlib.Path | None, memory: str) -> dict[str, Any]:
    """Measures both programs alternately on a text of one size."""
    sizes = prepare(folder, words)
    ours, lmplz = [], []
    for _ in range(REPEATS if words < SLOW else 1):
        ours.append(measure_ours(folder, words, sizes['vocabulary']))
        if kenlm:
            lmplz.append(measure_lmplz(folder, kenlm, memory))
    row: dict[str, Any] = {'words': words, **sizes, 'nplm_jax': _faster(ours)}
    if kenlm:
        row['lmplz'] = _faster(lmplz)
        if words < SLOW:
            row['lmplz']['perplexity'] = lmplz_perplexity(folder, kenlm)
    for name in ('ids.bin', 'train.txt', 'test.txt', 'model.safetensors', 'model.arpa'):
        (folder / name).unlink(missing_ok=True)
    return row


def _faster(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the fastest run, with the times of all runs."""
    return {**min(runs, key=lambda run: run['seconds']), 'all_seconds': [run['seconds'] for run in runs]}


def table(flags: study.Flags) -> str:
    """Returns two rows per size of text."""
    rows = []
    for size in results.load(flags.output)['sizes']:
        for name, key in (('nplm-jax', 'nplm_jax'), ('lmplz', 'lmplz')):
            r = size[key]
            first = [f'{size["words"]:,}', f'{sum(size["nplm_jax"]["ngrams"]):,}'] if key == 'nplm_jax' else ['', '']
            sizes = preparation.peak_bytes(r), r['peak_disk_bytes'], r['model_bytes']
            megabytes = [f'{size / 1e6:,.0f}' for size in sizes]
            perplexity = f'{r["perplexity"]:.2f}' if 'perplexity' in r else '-'
            rows.append([*first, name, f'{r["seconds"]:,.1f}', f'{r["cpu_seconds"]:,.1f}', *megabytes, perplexity])
    return markdown_table(HEADER, rows)


def numbers(text: str) -> list[int]:
    """Parses comma-separated positive numbers."""
    return [int(study.positive(int)(number)) for number in text.split(',')]


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument(
        '--folder',
        type=pathlib.Path,
        help='folder to write the text, the models and temporary files to, required without --quick; default: none',
    )
    parser.add_argument(
        '--words',
        type=numbers,
        default='1_000_000,10_600_000,100_000_000',
        help='sizes of the text in words, separated by commas',
    )
    parser.add_argument(
        '--kenlm',
        type=pathlib.Path,
        help="folder that contains KenLM's lmplz and query; default: measure only nplm-jax",
    )
    parser.add_argument('--memory', default='2G', help='memory that lmplz may use (its option -S)')
    parser.add_output_path(RESULTS)
    parser.add_quick(words=[QUICK_WORDS], output='runs/quick/ngrams.json')
    parser.add_argument('--child', type=int, help=argparse.SUPPRESS)  # |V|: this is the measured process


def main(flags: study.Flags) -> None:
    """Measures the sizes and writes the results after each of them."""
    if flags.child:
        print(json.dumps(estimate(flags.folder, flags.words[0], flags.child)))
        return
    require(flags.quick or flags.folder.is_dir(), '--folder', str(flags.folder), 'must be a folder')
    require(flags.quick or os.access(flags.folder, os.W_OK), '--folder', str(flags.folder), 'must be writable')
    for name in ('lmplz', 'query') if flags.kenlm else ():
        require((flags.kenlm / name).is_file(), '--kenlm', str(flags.kenlm), f'must contain {name}')
    if flags.quick:
        with tempfile.TemporaryDirectory() as folder:
            measure_sizes(flags, pathlib.Path(folder))
    else:
        measure_sizes(flags, flags.folder)


def measure_sizes(flags: study.Flags, folder: pathlib.Path) -> None:
    """Measures the sizes in a folder and writes the results after each of them."""
    facts = {**of_module('experiments.cost.scale.ngrams'), 'seed': generate.SEED}
    facts |= {'lmplz_memory': flags.memory, 'load_before': os.getloadavg()}
    rows: list[dict[str, Any]] = []
    for words in flags.words:
        rows.append(measure_size(folder, words, flags.kenlm, flags.memory))
        results.write(flags.output, {'sizes': rows, **facts})
        print(json.dumps(rows[-1], indent=2), flush=True)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=table, measure_if='folder')
