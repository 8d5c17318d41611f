"""Measures the time, memory and disk space for tokenizing texts, at the first and at the second start.

    python -m experiments.cost.scale.preparation TEXT ... [--tokens=pieces] [--output=FILE.json]
    python -m experiments.cost.scale.preparation --quick                  checks two starts on a small text
    python -m experiments.cost.scale.preparation [--tokens=pieces]        prints the table of the committed results

--tokens=pieces learns 8,000 subwords from the first 80% of the words. Its results are in results/pieces.json.

Each start is a separate process. The cache is empty at the first start and filled at the second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs import text
from experiments import results, study
from experiments.cost.scale import generate
from experiments.sources import of_module
from nplm_jax.config.settings import override
from nplm_jax.data import corpora, encoding
from nplm_jax.executors import workers
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results'
HEADER = ['words', 'MB of text', 'types', 'first start: s', 'words/s', 'second: s', 'peak MB', 'MB in the cache']
PIECES_HEADER = ['words', 'MB of text', 'tokens', 'learn: s', 'encode: s', 'words/s', 'second: s', 'peak MB']
FILES = {'words': 'preparation', 'pieces': 'pieces'}  # of results


def start(path: str, tokens: str) -> dict[str, Any]:
    """Tokenizes and encodes a text as a run does, in a separate process. The times exclude the imports."""
    settings = load_settings(override(text.get_config(), {'corpus.path': path, 'corpus.tokens': tokens}))
    peaks = watch_helpers()
    clock = [time.perf_counter()]
    corpus = corpora.load(settings.corpus)
    clock.append(time.perf_counter())
    data = encoding.build_dataset(corpus, encoding.build_vocabulary(corpus, settings.corpus))
    clock.append(time.perf_counter())
    return {
        'words': len(corpus) if tokens == 'words' else sum(size.words for size in data.sizes.values()),
        'tokens': len(corpus),
        'types': len(corpus.stream.types),
        'vocabulary': len(data.vocabulary),
        'cut_seconds': clock[1] - clock[0],
        'encode_seconds': clock[2] - clock[1],
        'peak_bytes': provenance.peak_memory(),
        'helper_peak_bytes': max(peaks.values(), default=0),
    }


def watch_helpers() -> dict[int, int]:
    """Returns the peak resident memory of each helper process by process id, updated while this process runs.

    `resource.getrusage` also counts memory that a helper shared with its parent before it started.
    """
    peaks: dict[int, int] = {}

    def watch() -> None:
        while True:
            for pid in map(int, pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text().split()):
                with contextlib.suppress(OSError):
                    status = pathlib.Path(f'/proc/{pid}/status').read_text()
                    if match := re.search(r'VmHWM:\s+(\d+)', status):
                        peaks[pid] = int(match[1]) * 1024
            time.sleep(0.1)

    threading.Thread(target=watch, daemon=True).start()
    return peaks


def learn(path: str, tokens: str) -> dict[str, Any]:
    """Only learns the tokens, with as many processes as `start`. Runs in a separate process."""
    settings = load_settings(override(text.get_config(), {'corpus.path': path, 'corpus.tokens': tokens}))
    texts = [part.read for part in corpora.find_sources(settings.corpus)]
    begin = time.perf_counter()
    corpora.make_tokenizer(settings.corpus).learn(texts, workers.local_processes(is_large=True).map)
    return {'learn_seconds': time.perf_counter() - begin, 'peak_bytes': provenance.peak_memory()}


def measure(path: str, tokens: str) -> dict[str, Any]:
    """Measures two starts on a text, and the time needed to learn its tokens."""
    starts = []
    with tempfile.TemporaryDirectory(dir=pathlib.Path(path).parent) as folder:
        for child in ('start', 'start', *(['learn'] if tokens == 'pieces' else [])):
            flags = [f'--tokens={tokens}', f'--child={child}']
            command = [sys.executable, '-m', 'experiments.cost.scale.preparation', path, *flags]
            env = {**os.environ, 'NPLM_JAX_CACHE': folder}
            starts.append(json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout))
        size = sum(file.stat().st_size for file in pathlib.Path(folder).rglob('*') if file.is_file())
    measured = {'text_bytes': os.path.getsize(path), 'cache_bytes': size, 'first': starts[0], 'second': starts[1]}
    return measured | ({'learn': starts[2]} if tokens == 'pieces' else {})


def path_of(flags: study.Flags) -> pathlib.Path:
    """Returns the results file."""
    return flags.output or RESULTS / f'{FILES[flags.tokens]}.json'


def make_table(flags: study.Flags) -> str:
    """Returns the table for words or for subwords."""
    path = path_of(flags)
    texts = results.read(path.parent, path.stem)['texts']
    return {'words': table, 'pieces': pieces_table}[flags.tokens](texts)


def seconds_of(started: Mapping[str, Any]) -> float:
    """Returns the time of a start in seconds."""
    return started['cut_seconds'] + started['encode_seconds']


def peak_bytes(started: Mapping[str, Any]) -> int:
    """Returns the peak memory of a start, summed over the main process and the two helper processes, if any."""
    return started['peak_bytes'] + 2 * started.get('helper_peak_bytes', 0)


def table(texts: Sequence[dict[str, Any]]) -> str:
    """Returns one row per text."""
    rows = []
    for measured in texts:
        first, second = measured['first'], measured['second']
        seconds, again = seconds_of(first), seconds_of(second)
        sizes = measured['text_bytes'], peak_bytes(first), measured['cache_bytes']
        megabytes = [f'{size / 1e6:,.0f}' for size in sizes]
        counts = [f'{number:,}' for number in (first['words'], first['types'], round(first['words'] / seconds))]
        times = f'{seconds:,.1f}', f'{again:,.2f}'
        rows.append([counts[0], megabytes[0], counts[1], times[0], counts[2], times[1], *megabytes[1:]])
    return markdown_table(HEADER, rows)


def pieces_table(texts: Sequence[dict[str, Any]]) -> str:
    """Returns one row per text in subwords. Learning is part of the first start, and is also measured separately."""
    rows = []
    for measured in texts:
        first, second, learned = measured['first'], measured['second'], measured['learn']['learn_seconds']
        seconds, again = seconds_of(first), seconds_of(second)
        encoding = seconds - learned
        sizes = f'{first["words"]:,}', f'{measured["text_bytes"] / 1e6:,.0f}', f'{first["tokens"]:,}'
        times = f'{learned:,.1f}', f'{encoding:,.1f}', f'{first["words"] / encoding:,.0f}', f'{again:,.2f}'
        rows.append([*sizes, *times, f'{peak_bytes(first) / 1e6:,.0f}'])
    return markdown_table(PIECES_HEADER, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('texts', nargs='*', metavar='TEXT', help='text files to prepare')
    parser.add_argument('--tokens', choices=FILES, default='words', help='kind of tokens into which the text is split')
    parser.add_output_path(help='file to write the results to; default: a file in results/')
    parser.add_quick(output='runs/quick/preparation.json')
    parser.add_argument('--child', choices=('start', 'learn'), help=argparse.SUPPRESS)


def main(flags: study.Flags) -> None:
    """Measures the given texts."""
    if flags.child:
        stages: dict[str, Callable[..., Any]] = {'start': start, 'learn': learn}
        print(json.dumps(stages[flags.child](*flags.texts, flags.tokens)))
        return
    for file in flags.texts:
        require(os.path.isfile(file), 'TEXT', file, 'must be a file')
    if flags.quick and not flags.texts:
        with generate.small_text(20_000) as text:
            measure_texts(flags, [text])
    else:
        measure_texts(flags, flags.texts)


def measure_texts(flags: study.Flags, files: Sequence[str]) -> None:
    """Measures texts and writes the results after each of them."""
    facts = {**of_module('experiments.cost.scale.preparation'), 'load_before': os.getloadavg()}
    texts: list[dict[str, Any]] = []
    for file in files:
        texts.append(measure(file, flags.tokens))
        results.write(path_of(flags), {'texts': texts, **facts})


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=make_table, measure_if='texts')
