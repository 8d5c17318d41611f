"""Evaluates the word features of networks and of word2vec on similarity and analogy tasks.

    python -m experiments.use.similarity.measure --runs=runs/studies/use              every finished network there
    python -m experiments.use.similarity.measure --runs=runs/studies/use --word2vec   word2vec too, by gensim

Writes results/NAME.json. Existing results are kept unless --again is given. Requires gensim:
pip install "nplm-jax[studies]". `python -m experiments.runs use` trains the networks.
"""

from __future__ import annotations

import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from experiments import results, study
from experiments.sources import of_module, of_runs
from experiments.use import models
from experiments.use.models import NETWORKS, Run
from experiments.use.similarity import tasks
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY, TEXT_BOUNDARY
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import EMBEDDING
from nplm_jax.runs import experiment, loading, process
from nplm_jax.runs.command_line import load_config
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results'
KINDS = {'cbow': 0, 'skipgram': 1}
DIMENSIONS = (30, 60, 200, 320)
WORD2VEC = {'window': 5, 'negative': 5, 'min_count': 1, 'sample': 1e-3, 'epochs': 10, 'seed': 1, 'workers': 1}


def vectors(model: NeuralLanguageModel) -> dict[str, np.ndarray]:
    """Returns C and the other output matrices with one row per word, by name; V x D."""
    names = [EMBEDDING, *(name for name in model.network.body.widths if name != EMBEDDING)]
    arrays = {name: np.asarray(model.params[name]) for name in names if name in model.params}
    return {name: array for name, array in arrays.items() if len(array) == model.network.vocabulary_size}


def paragraphs(data: Dataset) -> list[list[str]]:
    """Returns the training words by paragraph, without boundary tokens."""
    marks = {data.vocabulary.ids[m] for m in (TEXT_BOUNDARY, PARAGRAPH_BOUNDARY) if m in data.vocabulary.ids}
    ids_T = np.asarray(data.train_words)
    parts = np.split(ids_T, np.flatnonzero(np.isin(ids_T, list(marks))))
    lines = [data.vocabulary.decode([i for i in part.tolist() if i not in marks]) for part in parts]
    return [list(line) for line in lines if len(line)]


def train_word2vec(sentences: Sequence[Sequence[str]], kind: str, dimension: int) -> tuple[np.ndarray, list[str]]:
    """Trains word2vec. Returns the vectors, V x D, and their words."""
    from gensim.models import Word2Vec  # noqa: PLC0415 (only word2vec needs it)

    vectors = Word2Vec(sentences, vector_size=dimension, sg=KINDS[kind], **WORD2VEC).wv
    return vectors.vectors, list(vectors.index_to_key)


def measure_run(run: Run, folder: pathlib.Path, data: pathlib.Path) -> dict[str, Any]:
    """Returns the results of a network."""
    loaded = loading.load(folder)
    named = vectors(cast(NeuralLanguageModel, loaded.model))
    measured = {name: tasks.measure(array, loaded.vocabulary.words, data) for name, array in named.items()}
    return {'model': run.model, 'seed': run.seed, 'vectors': measured, 'trained': of_runs([loaded.results])}


def save(name: str, measured: Mapping[str, Any], started: float, output: pathlib.Path) -> None:
    """Writes the results of a model with their provenance."""
    seconds = round(time.perf_counter() - started, 1)
    source = of_module('experiments.use.similarity.measure')
    results.write(output / f'{name}.json', {**measured, 'seconds': seconds, **source})
    print(f'{name}: {seconds:.0f} s', file=sys.stderr, flush=True)


def measure_word2vec(output: pathlib.Path, data: pathlib.Path, again: bool) -> None:
    """Trains word2vec on Brown's training words, with each kind and dimension, and evaluates it."""
    named = {f'{kind}-{size}': (kind, size) for kind in KINDS for size in DIMENSIONS}
    missing = [name for name in named if again or not (output / f'{name}.json').exists()]
    if not missing:
        return
    sentences = paragraphs(loading.load_dataset(experiment.load_settings(load_config('configs/brown.py'))))
    for name in missing:
        started, (kind, size) = time.perf_counter(), named[name]
        array_VxD, words = train_word2vec(sentences, kind, size)
        measured = {'vectors': {'': tasks.measure(array_VxD, words, data)}}
        save(name, {'model': kind, 'seed': WORD2VEC['seed'], 'word2vec': WORD2VEC, **measured}, started, output)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--runs', required=True, help='folder that contains the trained networks; required')
    parser.add_switch('--word2vec', 'train and measure word2vec on the training words')
    parser.add_output_path(RESULTS, folder=True)
    parser.add_switch('--again', 'repeat existing measurements')


def main(flags: study.Flags) -> None:
    """Measures the missing results."""
    process.set_up_process()
    runs, output, data = models.finished(expand('--runs', flags.runs)), flags.output, tasks.data_folder()
    output.mkdir(parents=True, exist_ok=True)
    for run in (run for run in runs if run.model in NETWORKS):
        started = time.perf_counter()
        if flags.again or not (output / f'{run.name}.json').exists():
            save(run.name, measure_run(run, runs[run], data), started, output)
    if flags.word2vec:
        measure_word2vec(output, data, flags.again)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
