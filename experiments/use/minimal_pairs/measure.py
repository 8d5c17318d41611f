"""Accuracy of trained models on BLiMP's 67,000 minimal pairs, by the probability of whole sentences.

    python -m experiments.use.minimal_pairs.measure --runs=runs/studies/ladder       every finished run of the folder
    python -m experiments.use.minimal_pairs.measure --runs=runs/studies/ladder --models kneser_ney_5 lstm-1

Writes results/NAME.json for each run, and for the mixture of each lstm with modified_kneser_ney_5; existing results are
kept unless --again is given. `python -m experiments.runs reading_times` trains the runs. BLiMP is downloaded, or read
from --data=PATH or ../shared/data/blimp.zip. experiments.use.minimal_pairs.table prints the tables.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments import results, study
from experiments.sources import of_module, of_runs
from experiments.use.minimal_pairs import pairs as pairs_lib
from experiments.use.minimal_pairs.pairs import Pair
from nplm_jax.apps.psycholinguistics import minimal_pairs
from nplm_jax.apps.psycholinguistics.measurement import Options
from nplm_jax.apps.psycholinguistics.minimal_pairs import EncodedPairs
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.reporting import catalog
from nplm_jax.runs import loading, process, workdir
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results'
START = Options(context='<text> <p>')  # each sentence begins a text
MIXING_WORDS = 50_000  # validation words for the weights of a mixture, as in experiments/use/reading_times
MIXED, COUNTED = 'lstm', 'modified_kneser_ney_5'  # the families of the models in the mixture


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
    """Returns the counts of a model by subset and paradigm; see `minimal_pairs.count`.

    Each sentence begins a text, after an unscored <text> <p>.
    """
    encoded = sentences.encode(vocabulary)
    difference_P = minimal_pairs.differences(minimal_pairs.log_p(model, encoded))
    paradigms = [pair.paradigm for pair in sentences.pairs]
    counts = {name: minimal_pairs.count(difference_P, paradigms, mask) for name, mask in encoded.subsets.items()}
    same = int((encoded.rows_Px2[:, 0] == encoded.rows_Px2[:, 1]).sum())
    return {'counts': counts, 'read_as_one_sentence': same, 'paradigms': pairs_lib.phenomena(sentences.pairs)}


def find_runs(folder: pathlib.Path, names: Sequence[str]) -> list[str]:
    """Returns the names of the finished runs in a folder, or checks the given names.

    Raises:
        BadInput: There is no finished run, or a named run is not finished.
    """
    finished = sorted(path.name for path in folder.glob('*') if catalog.is_finished(path))
    require(
        len(finished) > 0,
        '--runs',
        str(folder),
        'contains no finished runs; train some with `python -m experiments.runs reading_times`',
    )
    for name in names:
        require(name in finished, '--models', name, f'must be a finished run; {folder} contains {", ".join(finished)}')
    return list(names) or finished


def fit_mixture(folder: pathlib.Path, name: str, models: Sequence[LanguageModel]) -> mixture.Mixture:
    """Returns the mixture of a network and a count-based model, with weights learned on validation words."""
    paths = [folder / name, folder / COUNTED]
    data = loading.prepare_recorded(workdir.read_settings(paths[0]), *paths)
    first = Span(data.valid.start, min(data.valid.start + MIXING_WORDS, data.valid.stop))
    return mixture.fit(models, data.tokens_T, first)


def measured(
    folder: pathlib.Path, name: str, sentences: Sentences, output: pathlib.Path, again: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the missing results of a run and of its mixture, if any, by name."""
    family, seed = results.split_name(name)
    mixed = f'mixture-{seed}' if family == MIXED and catalog.is_finished(folder / COUNTED) else ''
    missing = [n for n in (name, mixed) if n and (again or not (output / f'{n}.json').exists())]
    if not missing:
        return
    run = loading.load(folder / name)
    vocabulary = run.vocabulary
    model = mixture.CachedScores(run.model) if mixed else run.model
    if name in missing:
        facts = {'model': family, 'seed': seed, 'perplexity': (run.results or {}).get('perplexity', {})}
        yield name, _timed(model, vocabulary, sentences, {**facts, 'trained': of_runs([run.results])})
    if mixed in missing:
        counted = loading.load(folder / COUNTED)
        is_same = counted.vocabulary.words == vocabulary.words
        require(is_same, '--runs', COUNTED, f'must have the same vocabulary as {name}')
        both = fit_mixture(folder, name, [model, counted.model])
        facts = {'model': 'mixture', 'seed': seed, 'of': [name, COUNTED], 'weights': both.weights_QxM[0].tolist()}
        trained = of_runs([run.results, counted.results])
        yield mixed, _timed(both, vocabulary, sentences, {**facts, 'trained': trained})


def _timed(
    model: LanguageModel,
    vocabulary: Vocabulary,
    sentences: Sentences,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    started, processor = time.perf_counter(), time.process_time()
    evaluated = evaluate(model, vocabulary, sentences)
    times = {'seconds': time.perf_counter() - started, 'processor_seconds': time.process_time() - processor}
    source = {
        **{key: round(value, 1) for key, value in times.items()},
        'load': os.getloadavg()[0],
        **of_module('experiments.use.minimal_pairs.measure'),
    }
    return {**facts, **evaluated, **source}


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--runs', required=True, help='folder that contains the trained models; required')
    parser.add_argument(
        '--models', nargs='+', default=[], help='names of the runs to measure; default: all finished runs'
    )
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
    folder, output = expand('--runs', flags.runs), flags.output
    names = find_runs(folder, flags.models)
    sentences = Sentences(pairs_lib.load(flags.data))
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        for result, facts in measured(folder, name, sentences, output, flags.again):
            results.write(output / f'{result}.json', facts)
            print(f'{result}: {facts["seconds"]:.0f} s', file=sys.stderr, flush=True)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
