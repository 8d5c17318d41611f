"""Measures how long texts take to become ids, at the first start and at the second, and their memory and disk.

    python -m experiments.scale.preparation TEXT ... [--output=experiments/scale/results/preparation.json]
    python -m experiments.scale.preparation           the table of the committed results

Each start is a process of its own with an empty cache in a temporary folder, which the second start finds filled.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from configs import text
from experiments import results
from nplm_jax.data import corpora, dataset, vocabulary
from nplm_jax.runs import provenance
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
HEADER = ['words', 'MB of text', 'types', 'first start: s', 'words/s', 'second: s', 'peak MB', 'MB in the cache']
MIN_COUNT = 3


def start(path: str) -> dict[str, Any]:
    """Makes the ids of a text, as a run does; runs in a process of its own. Times are after the imports."""
    config = text.get_config()
    config.update_from_flattened_dict({'corpus.path': path, 'corpus.min_count': MIN_COUNT})
    settings = load_settings(config)
    clock = [time.perf_counter()]
    corpus = corpora.load(settings.corpus)
    clock.append(time.perf_counter())
    data = dataset.from_corpus(corpus, vocabulary.for_corpus(corpus, settings.corpus))
    clock.append(time.perf_counter())
    helpers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        'words': len(corpus),
        'types': len(corpus.stream.types),
        'vocabulary': len(data.vocabulary),
        'cut_seconds': clock[1] - clock[0],
        'encode_seconds': clock[2] - clock[1],
        'peak_bytes': provenance.peak_memory(),
        'helper_peak_bytes': helpers,
    }


def measure(path: str) -> dict[str, Any]:
    """Measures two starts on a text."""
    starts = []
    with tempfile.TemporaryDirectory(dir=pathlib.Path(path).parent) as folder:
        for _ in range(2):
            command = [sys.executable, '-m', 'experiments.scale.preparation', path, '--child']
            env = {**os.environ, 'NPLM_JAX_CACHE': folder}
            starts.append(json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout))
        size = sum(file.stat().st_size for file in pathlib.Path(folder).rglob('*') if file.is_file())
    return {'text_bytes': os.path.getsize(path), 'cache_bytes': size, 'first': starts[0], 'second': starts[1]}


def table() -> str:
    """Returns a row for each text; the peak is that of the process and of two helper processes."""
    rows = []
    for measured in results.read(RESULTS, 'preparation')['texts']:
        first, second = measured['first'], measured['second']
        seconds, again = (s['cut_seconds'] + s['encode_seconds'] for s in (first, second))
        peak = first['peak_bytes'] + 2 * first['helper_peak_bytes']
        megabytes = [f'{size / 1e6:,.0f}' for size in (measured['text_bytes'], peak, measured['cache_bytes'])]
        counts = [f'{number:,}' for number in (first['words'], first['types'], round(first['words'] / seconds))]
        times = f'{seconds:,.1f}', f'{again:,.2f}'
        rows.append([counts[0], megabytes[0], counts[1], times[0], counts[2], times[1], *megabytes[1:]])
    return markdown_table(HEADER, rows)


def main() -> None:
    """Measures the texts that are given, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('texts', nargs='*', help='files')
    parser.add_argument('--output', type=pathlib.Path, default=RESULTS / 'preparation.json')
    parser.add_argument('--child', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(start(*arguments.texts)))
    elif arguments.texts:
        facts = {**provenance.of_module('experiments.scale.preparation'), 'load_before': os.getloadavg()}
        results.write(arguments.output, {'texts': [measure(path) for path in arguments.texts], **facts})
    else:
        results.show(table)


if __name__ == '__main__':
    main()
