"""N-gram queries by `nplm_jax.kenlm` in lines and one by one; its loading and numbers beside KenLM's `query`.

    lmplz -o 5 < train.txt > big.arpa               of KenLM, here of WikiText-2 and Brown: 386 MB
    python -m experiments.speed.queries --query=kenlm/build/bin/query --arpa=big.arpa --text=test.txt
    python -m experiments.speed.queries --show      the table of the committed results, nothing measured

Both read the same ARPA file, one after the other in each round; a model is loaded by a process of its own. The time of
`query` without a text is that of loading: the words of a text add less than that varies. The packed model is made by
`nplm import arpa` and `nplm pack`, and is unpacked into the cache before it is timed. All seconds are those of the
processor.
"""

from __future__ import annotations

import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments import study
from experiments.speed import problem
from nplm_jax import kenlm
from nplm_jax.cli import __main__ as cli
from nplm_jax.runs import provenance
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results' / 'queries.json'
FEW = 50_000  # words that are read one by one
LOAD = """
import sys, time
from nplm_jax import kenlm
before = time.process_time()
kenlm.Model(sys.argv[1])
print(time.process_time() - before)
"""


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument('--query', default='', metavar='PATH', help="KenLM's program")
    parser.add_argument('--arpa', default='', metavar='FILE', help='the model')
    parser.add_argument('--text', default='', metavar='FILE', help='the text to score, a sentence per line')
    parser.add_count('--rounds', 3, 'turns of each contestant')
    problem.add_output(parser, RESULTS)


def query(program: pathlib.Path, arpa: pathlib.Path) -> float:
    """Returns the processor seconds of `query` without a text."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, '-v', 'summary', arpa], input=b'', capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def load(path: pathlib.Path) -> float:
    """Returns the processor seconds of loading a model here."""
    done = subprocess.run([sys.executable, '-c', LOAD, str(path)], capture_output=True, check=True, text=True)
    return float(done.stdout)


def one_by_one(model: kenlm.Model, lines: list[str]) -> int:
    """Scores words by BaseScore, and returns their number."""
    state, number = kenlm.State(), 0
    for line in lines:
        model.BeginSentenceWrite(state)
        for word in (*line.split(), '</s>'):
            model.BaseScore(state, word, state)
            number += 1
    return number


def differences(model: kenlm.Model, program: pathlib.Path, arpa: pathlib.Path, text: bytes) -> dict[str, Any]:
    """Returns how far log10 P of single words and the lengths of n-grams are from those that `query` prints."""
    printed = subprocess.run([program, '-v', 'word', arpa], input=text, capture_output=True, check=True).stdout
    found = re.findall(rb'=\d+ (\d+) (-?[\d.e+-]+)\t', printed)
    lengths, log10_p = np.array([int(length) for length, _ in found]), np.array([float(p) for _, p in found])
    lines = [*model.score_lines(text.decode().splitlines())]
    ours, our_lengths = (np.concatenate([getattr(x, key) for x in lines]) for key in ('log10_p_T', 'lengths_T'))
    single = [p for line in text.decode().splitlines() for p, *_ in model.full_scores(line)]
    return {
        'words': len(ours),
        'from_query': float(np.abs(ours - log10_p).max()),
        'between_lines_and_words': float(np.abs(ours - single).max()),
        'different_lengths': int((our_lengths != lengths).sum()),
    }


def timed(call: Callable[[], int]) -> float:
    """Returns the words a processor second of a call that returns their number."""
    before = time.process_time()
    return call() / (time.process_time() - before)


def measure(flags: study.Flags) -> dict[str, Any]:
    """Returns all results."""
    paths = {name: expand(f'--{name}', getattr(flags, name)) for name in ('query', 'arpa', 'text')}
    for name, path in paths.items():
        require(path.is_file(), f'--{name}', str(path), 'must be a file')
    program, arpa, text = paths['query'], paths['arpa'], paths['text'].read_bytes()
    lines = text.decode().splitlines()
    words = len(text.split()) + len(lines)
    few = lines[: max(1, len(lines) * FEW // words)]
    loads: dict[str, list[float]] = {'kenlm': [], 'ours': [], 'ours, packed': []}
    rates: dict[str, list[float]] = {'score_lines': [], 'full_scores': [], 'BaseScore': []}
    with tempfile.TemporaryDirectory() as folder:
        run, packed = pathlib.Path(folder) / 'run', pathlib.Path(folder) / 'model.nplm'
        cli.main(['import', 'arpa', str(arpa), f'--workdir={run}'])
        cli.main(['pack', str(run), str(packed)])
        load(packed)
        model = kenlm.Model(arpa)
        for _ in range(flags.rounds):
            loads['kenlm'].append(query(program, arpa))
            loads['ours'].append(load(arpa))
            loads['ours, packed'].append(load(packed))
            rates['score_lines'].append(timed(lambda: sum(len(line.ids_T) for line in model.score_lines(lines))))
            rates['full_scores'].append(timed(lambda: sum(len([*model.full_scores(line)]) for line in few)))
            rates['BaseScore'].append(timed(lambda: one_by_one(model, few)))
        return {
            **provenance.of_module('experiments.speed.queries'),
            'order': model.order,
            'vocabulary': len(model.vocabulary),
            'arpa_bytes': arpa.stat().st_size,
            'packed_bytes': packed.stat().st_size,
            'loads': loads,
            'words_per_second': rates,
            'differences': differences(model, program, arpa, text),
        }


def make_table(measured: dict[str, Any]) -> str:
    """Returns the tables: medians over the rounds, and of the ratios in the same round."""
    rates, loads, differ = measured['words_per_second'], measured['loads'], measured['differences']

    def ratio(one: list[float], other: list[float]) -> str:
        return f'{statistics.median(a / b for a, b in zip(one, other)):.2f}'

    rows = [[name, f'{statistics.median(x):,.0f}', ratio(x, rates['BaseScore'])] for name, x in rates.items()]
    table = markdown_table(['queries', 'words a second', "of BaseScore's"], rows)
    rows = [[name, f'{statistics.median(x):.1f}', ratio(x, loads['kenlm'])] for name, x in loads.items()]
    lines = [
        f'{measured["order"]}-gram model of {measured["vocabulary"]:,} words, an ARPA file of '
        f'{measured["arpa_bytes"] / 1e6:.0f} MB, packed {measured["packed_bytes"] / 1e6:.0f} MB; {measured["device"]}.',
        f'{differ["words"]:,} words with the ends. Largest difference of log10 P of a word from that printed by query:',
        f'{differ["from_query"]:.1e}; between lines and single words: {differ["between_lines_and_words"]:.1e}.',
        f'Different lengths: {differ["different_lengths"]}.',
    ]
    loading = markdown_table(['loading', 'seconds', "of kenlm's"], rows)
    return '\n'.join([table, '', loading, '', *lines])


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='query')
