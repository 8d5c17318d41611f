"""`nplm_jax.kenlm` beside KenLM's Python package: the distribution over all next words, sentences, and their numbers.

    python launch.py --config=configs/brown.py:modified_kneser_ney_5 --workdir=runs/brown-mkn5
    python -m experiments.cost.speed.next_words --run=runs/brown-mkn5    needs `pip install kenlm`
    python -m experiments.cost.speed.next_words --show   the table of the committed results, nothing measured

The run is exported to an ARPA file, which both read. Contexts are the first halves of sentences of Brown. KenLM gives a
distribution by a loop of BaseScore over the words, `nplm_jax.kenlm` by the same loop and by `next_words`; they take
turns. Writes results/next_words.json and prints the tables. All seconds are those of the processor.
"""

from __future__ import annotations

import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from experiments import study
from experiments.cost.speed import problem
from experiments.sources import of_module
from nplm_jax import kenlm
from nplm_jax.cli import __main__ as cli
from nplm_jax.data import brown
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results' / 'next_words.json'
CONTEXTS = 64
BATCHES = (1, 8, 64)


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument('--run', default='runs/brown-mkn5', help='the run of an n-gram model')
    parser.add_count('--sentences', 10_000, 'sentences to compare', least=CONTEXTS)
    parser.add_count('--rounds', 5, 'turns of each contestant')
    parser.add_output_path(RESULTS)


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the processor seconds of a call, and what it returns."""
    started = time.process_time()
    value = call()
    return time.process_time() - started, value


def sentences(number: int) -> list[str]:
    """Returns different sentences of Brown in lower case, drawn at random."""
    lines = dict.fromkeys(line.strip().lower() for text in brown.texts() for line in text.splitlines() if line.strip())
    require(number <= len(lines), '--sentences', number, f'must be at most {len(lines)}, those of Brown')
    return random.Random(0).sample([*lines], number)


def distributions(ours: kenlm.Model, theirs: Any, module: Any, texts: list[str], rounds: int) -> dict[str, Any]:
    """Returns the seconds of a distribution in each round and way, and the largest difference of log10 P."""
    words = ours.vocabulary
    our_states, their_states = [], []
    for text in texts[:CONTEXTS]:
        read = text.split()
        our_state, their_state = kenlm.State(), module.State()
        ours.BeginSentenceWrite(our_state)
        theirs.BeginSentenceWrite(their_state)
        for word in read[: len(read) // 2]:
            ours.BaseScore(our_state, word, our_state)
            before, their_state = their_state, module.State()
            theirs.BaseScore(before, word, their_state)
        our_states.append(our_state)
        their_states.append(their_state)

    def loop(model: Any, states: list[Any], out_state: Any) -> list[list[float]]:
        return [[model.BaseScore(state, word, out_state) for word in words] for state in states]

    few = CONTEXTS // 8
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        'kenlm, BaseScore': (CONTEXTS, lambda: loop(theirs, their_states, module.State())),
        'ours, BaseScore': (few, lambda: loop(ours, our_states[:few], kenlm.State())),
    }
    for size in BATCHES:
        starts = range(0, CONTEXTS, size)
        call = [our_states[start : start + size] for start in starts]
        ways[f'ours, next_words, {size} at once'] = (CONTEXTS, lambda call=call: [*map(ours.next_words, call)])
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (number, call) in ways.items():
            found[name].append(seconds(call)[0] / number)
    predicted_V = np.array(words) != '<s>'
    differences = ours.next_words(our_states) - np.array(ways['kenlm, BaseScore'][1]())
    return {'seconds': found, 'largest_difference': float(np.abs(differences[:, predicted_V]).max())}


def compare(ours: kenlm.Model, theirs: Any, texts: list[str]) -> dict[str, Any]:
    """Returns the seconds of the sentences, and the largest differences of log10 P of a word and of a sentence."""
    our_seconds, our_scores = seconds(lambda: [list(ours.full_scores(text)) for text in texts])
    their_seconds, their_scores = seconds(lambda: [list(theirs.full_scores(text)) for text in texts])
    totals = [abs(ours.score(text) - theirs.score(text)) for text in texts]
    pairs = [pair for one, other in zip(our_scores, their_scores, strict=True) for pair in zip(one, other, strict=True)]
    return {
        'sentences': len(texts),
        'words': len(pairs),
        'words_per_second': {'kenlm': len(pairs) / their_seconds, 'ours': len(pairs) / our_seconds},
        'largest_difference_of_a_word': max(abs(one[0] - other[0]) for one, other in pairs),
        'different_lengths_or_oovs': sum(one[1:] != other[1:] for one, other in pairs),
        'largest_difference_of_a_sentence': {
            most: max(d for d, text in zip(totals, texts) if len(text.split()) <= int(most))
            for most in ('20', '60', '1000')
        },
    }


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields all results."""
    import kenlm as module  # noqa: PLC0415 (an optional package)

    texts = sentences(flags.sentences)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'model.arpa'
        cli.main(['export', flags.run, '--to=arpa', f'--output={path}'])
        their_load, theirs = seconds(lambda: module.Model(str(path)))
        our_load, ours = seconds(lambda: kenlm.Model(path))
        run_load, _ = seconds(lambda: kenlm.Model(flags.run))
        yield {
            **of_module('experiments.cost.speed.next_words'),
            'vocabulary': len(ours.vocabulary),
            'arpa_bytes': path.stat().st_size,
            'load_seconds': {'kenlm': their_load, 'ours': our_load, 'ours, the run': run_load},
            'distributions': distributions(ours, theirs, module, texts, flags.rounds),
            'sentences': compare(ours, theirs, texts),
        }


def _format(ratio: float) -> str:
    return f'{ratio:,.0f}' if ratio >= 10 else f'{ratio:.2f}'


def make_table(measured: dict[str, Any]) -> str:
    """Returns the tables: medians over the rounds."""
    found, read = measured['distributions'], measured['sentences']
    medians = {name: statistics.median(values) for name, values in found['seconds'].items()}
    kenlms, loop = (medians[f'{name}, BaseScore'] for name in ('kenlm', 'ours'))
    rows = [[name, f'{s * 1e3:.3f}', *(_format(other / s) for other in (kenlms, loop))] for name, s in medians.items()]
    header = ['distribution over all words', 'ms a state', "KenLM's loop / it", 'our loop / it']
    rates = {name: f'{rate:,.0f}' for name, rate in read['words_per_second'].items()}
    loads = ', '.join(f'{name} {load:.1f} s' for name, load in measured['load_seconds'].items())
    totals = ', '.join(f'{d:.1e} (up to {most} words)' for most, d in read['largest_difference_of_a_sentence'].items())
    lines = [
        f'|V| = {measured["vocabulary"]:,}, {measured["device"]}.',
        f'Largest difference of log10 P: {found["largest_difference"]:.1e}.',
        f'{read["sentences"]:,} sentences, {read["words"]:,} words with the ends:',
        f'{rates["kenlm"]} words a second by kenlm, {rates["ours"]} by ours.',
        f'Largest difference for a word: {read["largest_difference_of_a_word"]:.1e};',
        f'for a sentence: {totals}.',
        f'Different lengths or OOVs: {read["different_lengths_or_oovs"]}.',
        f'Loading the ARPA file of {measured["arpa_bytes"] / 1e6:.0f} MB: {loads}.',
    ]
    return '\n'.join([markdown_table(header, rows), '', *lines])


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
