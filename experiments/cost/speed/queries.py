r"""Compares the speed of n-gram queries with `nplm_jax.kenlm`, by line and by word, and with KenLM's `query`.

    lmplz -o 5 < train.txt > big.arpa               by KenLM, on WikiText-2 and Brown: 361 MB
    nplm prune big.arpa --entropy=1e-8 --output=pruned.arpa
    nplm mix a b --weights=0.7,0.3 --to=arpa --output=mixed.arpa     of two models trained on Brown
    python -m experiments.cost.speed.queries --query=kenlm/build/bin/query --arpa=big.arpa --text=test.txt \
        --also pruned.arpa mixed.arpa
    python -m experiments.cost.speed.queries --quick     checks that lines and words of a small model agree
    python -m experiments.cost.speed.queries --show      prints the table of the committed results

Both packages read the same ARPA file, one after the other in each round. Each model is loaded in a separate process.
The loading time of `query` is measured without a text, because it varies by more than the time needed to score a text.
The packed model is created by `nplm import` and `nplm pack`, and unpacked into the cache before timing. All times are
CPU times.
"""

from __future__ import annotations

import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from configs import text as text_config
from experiments import study
from experiments.cost.scale import generate
from experiments.cost.speed import problem
from experiments.sources import of_module
from nplm_jax import kenlm
from nplm_jax.cli import __main__ as cli
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import experiment
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results' / 'queries.json'
FEW = 50_000  # number of words scored one by one
LOAD = """
import re, sys, time
from nplm_jax import kenlm
before = time.process_time()
kenlm.Model(sys.argv[1])
print(time.process_time() - before, re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])
"""


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--query', default='', metavar='PATH', help="path of KenLM's executable `query`")
    parser.add_argument('--arpa', default='', metavar='FILE', help='ARPA file of the model')
    parser.add_argument('--text', default='', metavar='FILE', help='text file to score, with one sentence per line')
    parser.add_argument(
        '--also',
        nargs='*',
        default=[],
        metavar='FILE',
        help='more ARPA files whose scores are compared with KenLM without timing',
    )
    parser.add_count('--rounds', 3, 'number of turns of each contestant')
    parser.add_output_path(RESULTS)
    parser.add_quick(rounds=1, output='runs/quick/queries.json')


class Load(NamedTuple):
    """The CPU time of loading a model, in seconds, and the peak memory of the process in MB."""

    seconds: float
    megabytes: float


def query(program: pathlib.Path, arpa: pathlib.Path) -> Load:
    """Loads a model with `query`, which receives no text until its memory has been measured."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(program), '-v', 'summary', str(arpa)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        kilobytes, sleeps = 0, False
        while not sleeps:  # until `query` waits for the text
            time.sleep(0.2)
            status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
            found = int(re.findall(r'VmHWM:\s*(\d+)', status)[0])
            kilobytes, sleeps = found, found == kilobytes and 'S (sleeping)' in status
        process.communicate(b'')
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Load(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, kilobytes / 1024)


def load(path: pathlib.Path) -> Load:
    """Loads a model with `nplm_jax.kenlm`."""
    done = subprocess.run([sys.executable, '-c', LOAD, str(path)], capture_output=True, check=True, text=True)
    seconds, kilobytes = map(float, done.stdout.split())
    return Load(seconds, kilobytes / 1024)


def lines_of(text: bytes) -> list[str]:
    """Returns the lines as KenLM reads them: Unicode's other line breaks do not end a line."""
    return text.decode().removesuffix('\n').split('\n')


def one_by_one(model: kenlm.Model, lines: list[str]) -> int:
    """Scores words with BaseScore and returns their number."""
    state, number = kenlm.State(), 0
    for line in lines:
        model.BeginSentenceWrite(state)
        for word in (*line.split(), '</s>'):
            model.BaseScore(state, word, state)
            number += 1
    return number


def between_lines_and_words(model: kenlm.Model, lines: list[str]) -> float:
    """Returns the largest difference in log10 P between `score_lines` and `full_scores`."""
    together = np.concatenate([line.log10_p_T for line in model.score_lines(lines)])
    return float(np.abs(together - [p for line in lines for p, *_ in model.full_scores(line)]).max())


def differences(model: kenlm.Model, program: pathlib.Path, arpa: pathlib.Path, text: bytes) -> dict[str, Any]:
    """Returns the largest differences in log10 P and in n-gram length from the output of `query`."""
    printed = subprocess.run([program, '-v', 'word', arpa], input=text, capture_output=True, check=True).stdout
    found = re.findall(rb'=\d+ (\d+) (-?[\d.e+-]+)\t', printed)
    lengths, log10_p = np.array([int(length) for length, _ in found]), np.array([float(p) for _, p in found])
    lines = lines_of(text)
    scored = [*model.score_lines(lines)]
    ours, our_lengths = (np.concatenate([getattr(x, key) for x in scored]) for key in ('log10_p_T', 'lengths_T'))
    return {
        'words': len(ours),
        'from_query': float(np.abs(ours - log10_p).max()),
        'between_lines_and_words': between_lines_and_words(model, lines),
        'different_lengths': int((our_lengths != lengths).sum()),
    }


def timed(call: Callable[[], int]) -> float:
    """Returns the words per second of CPU time of a call that returns the number of words."""
    before = time.process_time()
    return call() / (time.process_time() - before)


def small_model(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes a generated text and the ARPA file of its trigrams to a folder. Returns their paths."""
    text, arpa = folder / 'text.txt', folder / 'small.arpa'
    generate.write(text, 20_000)
    config = text_config.get_config('modified_kneser_ney_3')
    config.corpus.path = str(text)
    experiment.run(config, folder / 'trained')
    cli.main(['export', str(folder / 'trained'), '--to=arpa', f'--output={arpa}'])
    return text, arpa


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the results after each round, and after the comparison of each file."""
    names = () if flags.quick else ('query', 'arpa', 'text')
    for name in names:
        path = expand(f'--{name}', getattr(flags, name))
        require(path.is_file(), f'--{name}', str(path), 'must be a file')
    is_executable = flags.quick or os.access(expand('--query', flags.query), os.X_OK)
    require(is_executable, '--query', flags.query, 'must be an executable file')
    for name in flags.also:
        require(expand('--also', name).is_file(), '--also', name, 'must be a file')
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if flags.quick:
            text, arpa = small_model(folder)
            yield from measure_files(flags, folder, arpa, text, None)
        else:
            program, arpa, text = (expand(f'--{name}', getattr(flags, name)) for name in names)
            yield from measure_files(flags, folder, arpa, text, program)


def measure_files(
    flags: study.Flags, folder: pathlib.Path, arpa: pathlib.Path, text_file: pathlib.Path, program: pathlib.Path | None
) -> Iterator[dict[str, Any]]:
    """Yields the results for a model and a text, and for the --also files. Without `query`, measures only nplm-jax."""
    text = text_file.read_bytes()
    try:
        lines = lines_of(text)
    except UnicodeDecodeError:
        raise BadInput('--text', 'must be a UTF-8 text file', value=text_file) from None
    words = len(text.split()) + len(lines)
    few = lines[: max(1, len(lines) * FEW // words)]
    run, packed = folder / 'run', folder / 'model.nplm'
    cli.main(['import', str(arpa), f'--workdir={run}'])
    cli.main(['pack', str(run), f'--output={packed}'])
    load(packed)
    model = kenlm.Model(arpa)
    loads: dict[str, list[Load]] = {**({'kenlm': []} if program else {}), 'ours': [], 'ours, packed': []}
    rates: dict[str, list[float]] = {'score_lines': [], 'full_scores': [], 'BaseScore': []}
    measured: dict[str, Any] = {
        **of_module('experiments.cost.speed.queries'),
        'order': model.order,
        'vocabulary': len(model.vocabulary),
        'arpa_bytes': arpa.stat().st_size,
        'packed_bytes': packed.stat().st_size,
        'loads': loads,
        'words_per_second': rates,
        'differences': {},
    }
    for _ in range(flags.rounds):
        if program:
            loads['kenlm'].append(query(program, arpa))
        loads['ours'].append(load(arpa))
        loads['ours, packed'].append(load(packed))
        rates['score_lines'].append(timed(lambda: sum(len(line.ids_T) for line in model.score_lines(lines))))
        rates['full_scores'].append(timed(lambda: sum(len([*model.full_scores(line)]) for line in few)))
        rates['BaseScore'].append(timed(lambda: one_by_one(model, few)))
        yield measured
    if not program:
        require(
            (apart := between_lines_and_words(model, few)) < 1e-6,
            'log10 P',
            apart,
            'must differ by less than 1e-6 between scoring lines and scoring words',
        )
        return
    for file in (arpa, *(expand('--also', name) for name in flags.also)):
        measured['differences'][file.name] = differences(kenlm.Model(file), program, file, text)
        yield measured


def make_table(measured: dict[str, Any]) -> str:
    """Returns the tables, with medians over the rounds and the median ratio within a round."""
    rates, loads, differ = measured['words_per_second'], measured['loads'], measured['differences']

    def ratio(one: list[float], other: list[float]) -> str:
        return f'{statistics.median(a / b for a, b in zip(one, other)):.2f}'

    rows = [[name, f'{statistics.median(x):,.0f}', ratio(x, rates['BaseScore'])] for name, x in rates.items()]
    table = markdown_table(['queries', 'words/s', 'relative to BaseScore'], rows)
    seconds = {name: [one[0] for one in x] for name, x in loads.items()}
    first, reference = next(iter(seconds.values())), 'KenLM' if 'kenlm' in seconds else 'ours'
    rows = [
        [name, f'{statistics.median(x):.1f}', ratio(x, first), f'{max(one[1] for one in loads[name]):,.0f}']
        for name, x in seconds.items()
    ]
    loading = markdown_table(['loading', 'seconds', f'relative to {reference}', 'peak MB'], rows)
    rows = [
        [
            name,
            f'{x["words"]:,}',
            f'{x["from_query"]:.1e}',
            f'{x["between_lines_and_words"]:.1e}',
            x['different_lengths'],
        ]
        for name, x in differ.items()
    ]
    header = ['file', 'words', 'largest difference from query', 'between lines and words', 'different lengths']
    model = (
        f'The {measured["order"]}-gram model has {measured["vocabulary"]:,} words. The size of the ARPA file is '
        f'{measured["arpa_bytes"] / 1e6:.0f} MB, and that of the packed model is '
        f'{measured["packed_bytes"] / 1e6:.0f} MB. The times were measured on {measured["device"]}.'
    )
    return '\n\n'.join([table, loading, markdown_table(header, rows), model])


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='query')
