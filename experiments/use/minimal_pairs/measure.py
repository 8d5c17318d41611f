"""Measures the accuracy of trained models on BLiMP's 67,000 minimal pairs, by the probability of whole sentences.

    python -m experiments.use.minimal_pairs.measure --runs=runs/studies/use

Writes results/NAME.json for each finished run, and for the mixture of each five_minutes run with modified_kneser_ney_5.
Existing results are kept unless --again is given. `python -m experiments.runs use` trains the runs. BLiMP is
downloaded, or read from --data=PATH or ../shared/data/blimp.zip. experiments.use.minimal_pairs.table prints the tables.
"""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments import results, study
from experiments.sources import of_module, of_runs
from experiments.use import models
from experiments.use.minimal_pairs import pairs as pairs_lib
from experiments.use.minimal_pairs.pairs import Pair
from experiments.use.models import BEST, COUNTED, Run
from nplm_jax.apps.psycholinguistics import minimal_pairs
from nplm_jax.apps.psycholinguistics.measurement import Options
from nplm_jax.apps.psycholinguistics.minimal_pairs import EncodedPairs
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.runs import loading, process
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results'
START = Options(context='<text> <p>')  # each sentence begins a text


class Sentences:
    """The pairs, encoded once for all models with the same vocabulary and tokenization."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        """Stores the pairs."""
        self.pairs = pairs
        self._stimuli = pairs_lib.to_stimuli(pairs)
        self._encoded: dict[Any, EncodedPairs] = {}

    def encode(self, vocabulary: Vocabulary) -> EncodedPairs:
        """Returns the pairs encoded for models with this vocabulary."""
        key = vocabulary.tokenizer, vocabulary.words
        if key not in self._encoded:
            self._encoded = {key: minimal_pairs.encode(self._stimuli, vocabulary, START)}
        return self._encoded[key]


def evaluate(model: LanguageModel, vocabulary: Vocabulary, sentences: Sentences) -> dict[str, Any]:
    """Returns the counts for a model by subset and paradigm. See `minimal_pairs.count`.

    Each sentence begins a text, after an unscored <text> <p>.
    """
    encoded = sentences.encode(vocabulary)
    difference_P = minimal_pairs.differences(minimal_pairs.log_p(model, encoded))
    paradigms = [pair.paradigm for pair in sentences.pairs]
    counts = {name: minimal_pairs.count(difference_P, paradigms, mask) for name, mask in encoded.subsets.items()}
    same = int((encoded.rows_Px2[:, 0] == encoded.rows_Px2[:, 1]).sum())
    return {'counts': counts, 'read_as_one_sentence': same, 'paradigms': pairs_lib.phenomena(sentences.pairs)}


def measured(
    run: Run, runs: Mapping[Run, pathlib.Path], sentences: Sentences, output: pathlib.Path, again: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the missing results of a run and of its mixture, if any, by name."""
    mixed = f'mixture-{run.seed}'
    names = [run.name, mixed] if run.model == BEST and Run(COUNTED) in runs else [run.name]
    missing = [name for name in names if again or not (output / f'{name}.json').exists()]
    if not missing:
        return
    loaded = loading.load(runs[run])
    vocabulary = loaded.vocabulary
    model = mixture.CachedScores(loaded.model) if mixed in missing else loaded.model
    if run.name in missing:
        facts = {'model': run.model, 'seed': run.seed, 'perplexity': (loaded.results or {}).get('perplexity', {})}
        yield run.name, {**facts, **evaluate(model, vocabulary, sentences), 'trained': of_runs([loaded.results])}
    if mixed in missing:
        counted = loading.load(runs[Run(COUNTED)])
        is_same = counted.vocabulary.words == vocabulary.words
        require(is_same, '--runs', COUNTED, f'must have the same vocabulary as {run.name}')
        data = loading.prepare_recorded(loaded.settings, runs[run], runs[Run(COUNTED)])
        both = models.mixed([model, counted.model], data)
        facts = {'model': 'mixture', 'seed': run.seed, 'of': [run.name, COUNTED]}
        facts['weights'] = both.weights_QxM[0].tolist()
        trained = of_runs([loaded.results, counted.results])
        yield mixed, {**facts, **evaluate(both, vocabulary, sentences), 'trained': trained}


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--runs', required=True, help='folder that contains the trained models; required')
    parser.add_argument(
        '--data',
        default='',
        help='path of BLiMP.zip; default: ../shared/data/blimp.zip if it exists, otherwise a downloaded copy',
    )
    parser.add_output_path(RESULTS, folder=True)
    parser.add_switch('--again', 'repeat existing measurements')


def main(flags: study.Flags) -> None:
    """Measures the missing results."""
    process.set_up_process()
    runs, output = models.finished(expand('--runs', flags.runs)), flags.output
    sentences = Sentences(pairs_lib.load(flags.data))
    output.mkdir(parents=True, exist_ok=True)
    for run in runs:
        started = time.perf_counter()
        for name, found in measured(run, runs, sentences, output, flags.again):
            results.write(output / f'{name}.json', {**found, **of_module(__spec__.name)})
            print(f'{name}: {time.perf_counter() - started:.0f} s', file=sys.stderr, flush=True)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
