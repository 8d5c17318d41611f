"""Measures how well the surprisals of models predict reading times, and writes results/gains.json.

    python -m experiments.use.reading_times.measure --runs=runs/studies/use --data=naturalstories

`python -m experiments.runs use` trains the runs. Unfinished runs are reported and skipped. The data are a clone of the
corpus (see natural_stories.py). --cache keeps the surprisals, so that a later start measures only the new runs.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import results, study
from experiments.sources import of_module, of_runs
from experiments.use import models as models_lib
from experiments.use.models import ADAPTED, BEST, COUNTED, MIXED, MIXING_WORDS, Run
from experiments.use.reading_times import natural_stories
from experiments.use.reading_times.natural_stories import CONTROL, GPT3, Stories
from nplm_jax.apps.adaptive.dynamic_evaluation import DynamicEvaluation, root_mean_square_gradients
from nplm_jax.apps.psycholinguistics import gains, measurement
from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import Span
from nplm_jax.inference import scoring
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting import catalog
from nplm_jax.runs import loading, process
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.untrusted import read_bytes, read_json

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
RATE, DECAY, SEGMENT, NUM_SEGMENTS = 3e-3, 1e-3, 20, 1000  # of dynamic evaluation, tuned on Brown
MEASURES = {'log': 'log_rt_W', 'mean': 'mean_rt_W'}  # of reading time


class Uniform(LanguageModel):
    """The uniform distribution, P = 1 / |V|, used to compute the columns that do not depend on a model."""

    n = 1

    def __init__(self, vocabulary_size: int) -> None:
        self._size = vocabulary_size

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`."""
        return np.full(len(span), -math.log(self._size), np.float32)

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return np.full((len(contexts_BxN), self._size), -math.log(self._size), np.float32)


class Texts(NamedTuple):
    """The stories, tokenized for the models.

    Attributes:
        lines: The ids of the tokens of each story, int32.
        start: The ids before a story.
        words_T: The word to which each token belongs.
        columns: The columns of `nplm_jax.surprisal` that do not depend on a model, float64 or bool.
    """

    lines: list[np.ndarray]
    start: LineStart
    words_T: np.ndarray
    columns: dict[str, np.ndarray]


def columns_of(stories: Stories, loaded: LoadedModel) -> dict[str, list[Any]]:
    """Returns the columns of `nplm_jax.surprisal` that depend only on the vocabulary of a model."""
    columns = {'item': stories.story_W.tolist(), 'zone': stories.zone_W.tolist(), 'word': stories.words}
    uniform = LoadedModel(loaded.settings, loaded.vocabulary, Uniform(len(loaded.vocabulary)))
    return measurement.measure({'uniform': uniform}, stimuli_lib.from_columns(columns, 'the stories'))


def read_texts(stories: Stories, loaded: LoadedModel) -> Texts:
    """Tokenizes the words of the stories with the vocabulary of a model trained on Brown."""
    vocabulary, measured = loaded.vocabulary, columns_of(stories, loaded)
    cut = [vocabulary.encode(tokens.split()) for tokens in measured['tokens']]
    lines = [np.concatenate([cut[i] for i in np.flatnonzero(stories.story_W == s)]) for s in np.unique(stories.story_W)]
    kept = {name: np.array(measured[name]) for name in ('length', 'log_frequency', 'in_vocabulary')}
    marks = tuple(vocabulary.ids[mark] for mark in measured['starts_after'][0].split())
    return Texts(lines, LineStart(marks), np.repeat(np.arange(len(cut)), list(map(len, cut))), kept)


def word_surprisals(model: LanguageModel, texts: Texts) -> np.ndarray:
    """Returns the surprisal of each word in the stories, in nats."""
    scored = scoring.score(model, texts.lines, texts.start)
    nats_T = -scoring.LOG_10 * np.concatenate([line.log10_p_T for line in scored])
    return np.bincount(texts.words_T, nats_T)


def adapted(model: NeuralLanguageModel, data: Dataset) -> LanguageModel:
    """Returns a network under dynamic evaluation."""
    rms = root_mean_square_gradients(model, data.tokens_T, data.train, SEGMENT, NUM_SEGMENTS)
    return DynamicEvaluation(model, rms, RATE, DECAY, SEGMENT)


def measure(surprisal_W: np.ndarray, stories: Stories, texts: Texts) -> dict[str, Any]:
    """Returns the perplexity, the gain for each measure of reading time, and the slopes."""
    is_kept_W, baseline_WxB = analysed(stories, texts)
    known_W = texts.columns['in_vocabulary'] & (stories.zone_W > 1)
    added_WxA = gains.with_words_before(surprisal_W, stories.story_W)[is_kept_W]
    measured: dict[str, Any] = {'perplexity': math.exp(surprisal_W[known_W].mean())}
    for name, attribute in MEASURES.items():
        arguments = getattr(stories, attribute)[is_kept_W], stories.story_W[is_kept_W], baseline_WxB, added_WxA
        gain = gains.gain(*arguments)
        measured[name] = {'gain': gain.per_word, 'sums': gain.sums_S.tolist(), 'slopes': gains.slopes(*arguments)}
    return measured


def analysed(stories: Stories, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mask of the words to analyse, bool, W, and the baseline predictors of these words."""
    columns, of_word = texts.columns, (stories.words, stories.story_W, stories.zone_W)
    is_kept_W = gains.choose_words(*of_word, columns['in_vocabulary'])
    return is_kept_W, gains.make_baseline(*of_word, columns['length'], columns['log_frequency'])[is_kept_W]


def shuffled(surprisal_W: np.ndarray, story_W: np.ndarray) -> np.ndarray:
    """Shuffles the surprisals within each story. The first words, which have no surprisal, stay in place."""
    generator, order_W = np.random.default_rng(0), np.arange(len(story_W))
    for story in np.unique(story_W):
        places = np.flatnonzero((story_W == story) & np.isfinite(surprisal_W))
        order_W[places] = generator.permutation(places)
    return surprisal_W[order_W]


class Surprisals:
    """The surprisals of runs, cached in files."""

    def __init__(self, texts: Texts, data: Callable[[], Dataset], cache: pathlib.Path) -> None:
        """Stores the stories, the function that reads Brown, and the cache folder."""
        self._texts, self._data, self._cache, self._source = texts, data, cache, of_module(__spec__.name)

    def of(self, name: str, folders: Sequence[pathlib.Path]) -> dict[str, Any]:
        """Returns the `surprisals` of a run, of ADAPTED, or of MIXED, which has two folders, and their origin."""
        settings = repr((RATE, DECAY, SEGMENT, NUM_SEGMENTS, MIXING_WORDS)).encode()
        runs = b''.join(read_bytes(str(f), f / 'results.json') for f in folders)
        digest = hashlib.sha256(settings + runs).hexdigest()
        path = self._cache / f'{name.replace(" ", "")}-{digest[:16]}.json'
        if path.exists():
            return read_json(path)
        print(f'{name}: {folders[0].name}', file=sys.stderr, flush=True)
        model, *others = (loading.load(folder).model for folder in folders)
        if name == ADAPTED:
            assert isinstance(model, NeuralLanguageModel)
            model = adapted(model, self._data())
        elif name == MIXED:
            model = models_lib.mixed([model, *others], self._data())
        surprisal_W = word_surprisals(model, self._texts)
        self._cache.mkdir(parents=True, exist_ok=True)
        found = {'name': 'surprisals', 'surprisals': surprisal_W.tolist(), **self._source}
        write_atomically(path, json.dumps(found))
        return found


def variants(runs: Mapping[Run, pathlib.Path]) -> Iterator[tuple[str, int, list[pathlib.Path]]]:
    """Yields the name, seed and required folders of each model. Adapted models, the slowest, come last."""
    counts = [folder for run, folder in runs.items() if run.model == COUNTED]
    best = {run.seed: folder for run, folder in runs.items() if run.model == BEST}
    yield from ((run.model, run.seed, [folder]) for run, folder in runs.items())
    yield from ((MIXED, seed, [folder, *counts]) for seed, folder in best.items() if counts)
    yield from ((ADAPTED, seed, [folder]) for seed, folder in best.items())


def measure_all(runs: Mapping[Run, pathlib.Path], data_folder: str, cache: pathlib.Path) -> dict[str, Any]:
    """Returns the content of results/gains.json, given the folders of finished runs."""
    stories = natural_stories.read(data_folder)
    first = loading.load(next(iter(runs.values())))
    texts = read_texts(stories, first)
    surprisals = Surprisals(texts, functools.cache(lambda: loading.load_dataset(first.settings)), cache)
    models: dict[str, Any] = collections.defaultdict(dict)
    for name, seed, folders in variants(runs):
        found = surprisals.of(name, folders)
        measured = measure(np.array(found['surprisals']), stories, texts)
        recorded = [catalog.finished(folder) or {} for folder in folders]
        own = {} if name in (MIXED, ADAPTED) else {'valid': recorded[0]['perplexity']['valid']}
        models[name][str(seed)] = {**measured, **own, 'trained': of_runs([*recorded, found])}
    anchors = {GPT3: stories.gpt3_W, CONTROL: shuffled(stories.gpt3_W, stories.story_W)}
    is_kept_W, baseline_WxB = analysed(stories, texts)
    return {
        'stories': _describe(stories, texts, is_kept_W, baseline_WxB),
        'models': models,
        'anchors': {name: measure(surprisal_W, stories, texts) for name, surprisal_W in anchors.items()},
    }


def _describe(stories: Stories, texts: Texts, is_kept_W: np.ndarray, baseline_WxB: np.ndarray) -> dict[str, Any]:
    """Returns the word counts, and the share of the variance within stories that the baseline explains."""
    story_W = stories.story_W[is_kept_W]
    explained = {
        name: gains.explained_variance(getattr(stories, attribute)[is_kept_W], story_W, baseline_WxB)
        for name, attribute in MEASURES.items()
    }
    return {
        'words': len(stories.words),
        'in_vocabulary': int(texts.columns['in_vocabulary'].sum()),
        'analysed': int(is_kept_W.sum()),
        'counts': [int((story_W == story).sum()) for story in np.unique(story_W)],
        'baseline_r2': explained,
    }


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--runs', required=True, help='folder that contains the trained models; required')
    parser.add_argument(
        '--data', required=True, help="folder that contains a clone of the corpus's repository; required"
    )
    parser.add_argument(
        '--cache', default='', help='folder to keep the surprisals in; default: .natural_stories in --runs'
    )
    parser.add_output_path(RESULTS / 'gains.json')


def main(flags: study.Flags) -> None:
    """Measures all finished runs and writes the results."""
    process.set_up_process()
    source = of_module(__spec__.name)
    folder = expand('--runs', flags.runs)
    cache = expand('--cache', flags.cache) if flags.cache else folder / '.natural_stories'
    measured = measure_all(models_lib.finished(folder), flags.data, cache)
    results.write(flags.output, {**measured, **source})


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
