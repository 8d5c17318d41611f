"""The search without a lexicon (`build_ctcdecoder`) beside that of `nplm decode`, with one model, on one speech.

    nplm train brown:modified_kneser_ney_5
    python -m experiments.decoding.lexicon_free --runs=runs   # measures, and writes results/lexicon_free.json
    python -m experiments.decoding.lexicon_free               # prints the table

The sentences, the channel and the model are those of `study`, of whose sentences the first are used. The searches are
tuned on validation sentences in the same way. `build_ctcdecoder` has its beam of 100, and its other defaults or
those of STRICT, with which it keeps no part of an unknown word. The sentences are decoded one by one, by each
search in turn.
"""

from __future__ import annotations

import math
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments import results, study
from experiments.decoding.study import BEAM, BLANK, FRAMES_PER_SECOND, NGRAM, RESULTS, SILENCE, Speech, simulate
from nplm_jax import decoding, kenlm
from nplm_jax.apps.decoding import reranking
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import process
from nplm_jax.utils.io import expand

VALID_SENTENCES, TEST_SENTENCES = 6, 20
DRAWS = 2000  # of sentences, for the intervals
STRICT = {'unk_score_offset': -100.0, 'beam_prune_logp': -20.0, 'token_min_logp': -7.0}
SYSTEMS: Mapping[str, Mapping[str, Any] | None] = {
    '`nplm decode`, beam 200': None,
    '`build_ctcdecoder`, its defaults': {},
    '`build_ctcdecoder`, strict': STRICT,
}
Search = Callable[[np.ndarray], list[decoding.Hypothesis]]


def make_search(
    model: kenlm.Model, speech: Speech, limits: Mapping[str, Any] | None, weights: decoding.Weights
) -> Search:
    """Returns a search with these weights; with limits None that over the lexicon."""
    if limits is None:
        special = {'blank': BLANK, 'silence': SILENCE}
        return decoding.Decoder(model, speech.tokens, speech.lexicon, weights, **special, **BEAM).decode
    labels = [{BLANK: '', SILENCE: ' '}.get(token, token) for token in speech.tokens]
    numbers = weights.lm_weight, weights.word_score, limits.get('unk_score_offset', -10.0)
    decoder = decoding.build_ctcdecoder(labels, model, speech.lexicon, *numbers)
    widths = {name: value for name, value in limits.items() if name != 'unk_score_offset'}

    def search(emissions_FxN: np.ndarray) -> list[decoding.Hypothesis]:
        found = []
        for beam in decoder.decode_beams(emissions_FxN, prune_history=True, **widths):
            words = tuple(beam.text.split())
            weighted = beam.lm_score - beam.logit_score - weights.word_score * len(words)
            log_p = weighted / weights.lm_weight if weights.lm_weight else 0.0
            found.append(decoding.Hypothesis(words, beam.lm_score, beam.logit_score, log_p))
        return found

    return search


def tune(model: kenlm.Model, speech: Speech, limits: Mapping[str, Any] | None) -> tuple[decoding.Weights, float]:
    """Returns the best weights, and their word error rate on the validation sentences."""
    arrays, texts = speech.emissions['valid'][:VALID_SENTENCES], speech.texts['valid'][:VALID_SENTENCES]
    weights, best = decoding.Weights(), (math.inf, decoding.Weights())
    for _ in range(2):  # with the given weights, and with those that are tuned on what they find
        search = make_search(model, speech, limits, weights)
        lists = [search(array) for array in arrays]
        error = decoding.word_error_rate([found[0].words for found in lists], texts)
        best = min(best, (error, weights), key=lambda pair: pair[0])
        weights, _ = decoding.tune(lists, texts)
    return best[1], best[0]


def measure(runs: pathlib.Path) -> dict[str, Any]:
    """Returns the errors and the processor time of each search."""
    process.set_up_process()
    speech, model = simulate(runs), kenlm.Model(runs / NGRAM)
    systems: dict[str, dict[str, Any]] = {}
    searches: dict[str, Search] = {}
    for name, limits in SYSTEMS.items():
        weights, error = tune(model, speech, limits)
        numbers = {'lm_weight': float(weights.lm_weight), 'word_score': float(weights.word_score)}
        systems[name] = {**numbers, 'valid': error, 'edits': [], 'processor_seconds': 0.0}
        searches[name] = make_search(model, speech, limits, weights)
        print(name, systems[name], flush=True)
    texts, arrays = speech.texts['test'][:TEST_SENTENCES], speech.emissions['test'][:TEST_SENTENCES]
    for text, array in zip(texts, arrays):
        for name, search in searches.items():
            started = time.process_time()
            words = search(array)[0].words
            systems[name]['processor_seconds'] += time.process_time() - started
            systems[name]['edits'].append(reranking.edit_statistics(words, text)[0])
    return {
        'lengths': [len(text) for text in texts],
        'seconds': sum(map(len, arrays)) / FRAMES_PER_SECOND,
        'systems': systems,
        'command': 'python -m experiments.decoding.lexicon_free --runs=runs',
        **provenance.provenance(),
    }


def make_table(measured: Mapping[str, Any]) -> str:
    """Returns the table of the README."""
    header = ['search', 'word error rate, %', 'difference from `nplm decode`, 95%', 'validation', 'lm_weight']
    header += ['word_score', 's per second of speech']
    lengths = np.array(measured['lengths'])
    drawn = np.random.default_rng(0).integers(len(lengths), size=(DRAWS, len(lengths)))  # sentences
    first, *_ = (np.array(row['edits']) for row in measured['systems'].values())
    rows = []
    for name, row in measured['systems'].items():
        more = 100 * (np.array(row['edits']) - first)[drawn].sum(axis=1) / lengths[drawn].sum(axis=1)
        low, high = np.percentile(more, (2.5, 97.5))
        errors = [f'{100 * sum(row["edits"]) / lengths.sum():.1f}', f'{low:.1f} to {high:.1f}']
        numbers = [f'{100 * row["valid"]:.1f}', f'{row["lm_weight"]:.2f}', f'{row["word_score"]:.2f}']
        rows.append([name, *errors, *numbers, f'{row["processor_seconds"] / measured["seconds"]:.3f}'])
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the folder."""
    parser.add_argument('--runs', help='folder with the run; default: print the committed table')


def main(flags: study.Flags) -> None:
    """Measures, and prints the table."""
    results.write(RESULTS / 'lexicon_free.json', measure(expand('--runs', flags.runs)))
    print(show(flags))


def show(_: study.Flags) -> str:
    """Returns the committed table."""
    return make_table(results.read(RESULTS, 'lexicon_free'))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='runs')
