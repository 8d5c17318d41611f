"""Searches beside each other, with one model, on one speech: error rates and processor time.

    nplm train brown:modified_kneser_ney_5
    pip install flashlight-text rapidfuzz                 # Python 3.11 or 3.12
    python -m experiments.use.decoding.searches --runs=runs   # measures, and writes results/searches.json
    python -m experiments.use.decoding.searches               # prints the table

The sentences, the channel and the model are those of `study`, of whose test sentences the first are used. The searches
over the lexicon have the weights that `study` tuned for flashlight-text, and a beam of 200. Those without a lexicon
follow pyctcdecode's rules, with `alpha` 1 and `beta` 0, and a beam of 100; the strict one keeps no part of an unknown
word. The sentences are decoded one by one, by each search in turn.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import results, study
from experiments.use.decoding import flashlight_search
from experiments.use.decoding.study import BEAM, BLANK, FRAMES_PER_SECOND, NGRAM, RESULTS, SILENCE, interval, simulate
from nplm_jax import decoding, kenlm
from nplm_jax.apps.decoding import reranking
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import process
from nplm_jax.utils.io import expand

SENTENCES = 60
WEIGHTS = decoding.Weights(0.973321277785605, -1.463089825325244)  # tuned for flashlight-text
STRICT = {'beam_prune_logp': -20.0, 'token_min_logp': -7.0}
FLASHLIGHT, OURS = 'flashlight-text', '`nplm decode --lexicon`'
Search = Callable[[np.ndarray], Sequence[str]]


def make_searches(runs: pathlib.Path, speech: Any) -> dict[str, Search]:
    """Returns the words that each search finds."""
    model, special = kenlm.Model(runs / NGRAM), {'blank': BLANK, 'silence': SILENCE}
    given = model, speech.tokens, speech.lexicon, WEIGHTS
    over_lexicon = {
        FLASHLIGHT: flashlight_search.FlashlightDecoder(*given, **special),
        OURS: decoding.Decoder(*given, **special, **BEAM),
    }
    labels = [{BLANK: '', SILENCE: ' '}.get(token, token) for token in speech.tokens]
    defaults, strict = (
        decoding.build_ctcdecoder(labels, model, speech.lexicon, 1.0, 0.0, offset) for offset in (-10.0, -100.0)
    )
    return {
        **{name: lambda x, search=search: search.decode(x)[0].words for name, search in over_lexicon.items()},
        "pyctcdecode's rules, its defaults": lambda x: defaults.decode(x).split(),
        "pyctcdecode's rules, strict": lambda x: strict.decode(x, **STRICT).split(),
    }


def measure(runs: pathlib.Path) -> dict[str, Any]:
    """Returns the errors and the processor time of each search."""
    process.set_up_process()
    speech = simulate(runs)
    searches = make_searches(runs, speech)
    systems: dict[str, dict[str, Any]] = {name: {'edits': [], 'processor_seconds': 0.0} for name in searches}
    texts, arrays = speech.texts['test'][:SENTENCES], speech.emissions['test'][:SENTENCES]
    for text, array in zip(texts, arrays):
        for name, search in searches.items():
            started = time.process_time()
            words = search(array)
            systems[name]['processor_seconds'] += time.process_time() - started
            systems[name]['edits'].append(reranking.word_edits(words, text))
    return {
        'lengths': [len(text) for text in texts],
        'seconds': sum(map(len, arrays)) / FRAMES_PER_SECOND,
        'systems': systems,
        'command': 'python -m experiments.use.decoding.searches --runs=runs',
        **provenance.provenance(),
    }


def make_table(measured: Mapping[str, Any]) -> str:
    """Returns the table of the README."""
    header = ['search', 'word error rate, %', f'difference from {FLASHLIGHT}, 95%', 's per second of speech']
    lengths = np.array(measured['lengths'])
    first = np.array(measured['systems'][FLASHLIGHT]['edits'])
    rows = []
    for name, row in measured['systems'].items():
        more = interval(np.array(row['edits']) - first, lengths)
        errors = [f'{100 * sum(row["edits"]) / lengths.sum():.1f}', more]
        rows.append([name, *errors, f'{row["processor_seconds"] / measured["seconds"]:.3f}'])
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the folder."""
    parser.add_argument('--runs', help='folder with the run; default: print the committed table')


def main(flags: study.Flags) -> None:
    """Measures, and prints the table."""
    results.write(RESULTS / 'searches.json', measure(expand('--runs', flags.runs)))
    print(show(flags))


def show(_: study.Flags) -> str:
    """Returns the committed table."""
    return make_table(results.read(RESULTS, 'searches'))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='runs')
