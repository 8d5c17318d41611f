"""Tunes and evaluates caches, dynamic evaluation and mixtures of them.

Dims: T words in a stream.
"""

import concurrent.futures
import functools
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.adaptive.dynamic_evaluation import SEGMENTS, DynamicEvaluation, root_mean_square_gradients
from nplm_jax.apps.adaptive.neural_cache import NeuralCache
from nplm_jax.apps.adaptive.ngram_cache import NgramCache
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.utils.errors import NonFiniteError

# The values that are tried in tuning.
NGRAM_CACHE = {'order': (1, 3), 'num_remembered': (500, 2000, 8000), 'concentration': (5.0,)}
NEURAL_CACHE = {'num_remembered': (500, 2000), 'sharpness': (5.0, 10.0, 20.0)}
RATES, DECAYS = (1.4e-3, 2e-3, 2.8e-3), (5e-4, 1.5e-3, 5e-3)  # for dynamic evaluation
ANCHOR_RATE = 3e-3  # chosen from the measurements in experiments/beyond/frontier/README.md
SEGMENT, NUM_SEGMENTS = 10, 2000  # words per segment, and number of segments on which gradients are measured
MIN_WORDS = SEGMENT * SEGMENTS  # minimum number of words for measuring gradients


class TunedModel(NamedTuple):
    """An adaptive model and its tuned values.

    Attributes:
        model: The model.
        values: The tuned values by name.
    """

    model: LanguageModel
    values: dict[str, float]


def adapt(
    models: Mapping[str, LanguageModel],
    data: Dataset,
    tune_words: int,
    methods: Sequence[str],
    watch: Callable[[str], Any],
) -> list[dict[str, Any]]:
    """Evaluates models with and without adaptation, both separately and in a mixture.

    Args:
        models: The models by name. Networks are evaluated with all methods. Other models are evaluated only with the
            n-gram cache. The n-gram cache is tuned in a mixture with the first model.
        data: The corpus of the models.
        tune_words: The number of words at the start of the validation split that are used for tuning. Mixture weights
            are learned on all validation words.
        methods: A subset of ngram_cache, neural_cache and dynamic.
        watch: A function that is called with a description of each step before the step begins.

    Returns:
        One row per combination of model and method. Each row has the keys `name`, `valid` and `test` (perplexities),
        `weights` (of the mixture components, by name), and `values` (tuned, by name).
    """
    tuning = Span(data.valid.start, min(data.valid.start + tune_words, data.valid.stop))
    rows: list[dict[str, Any]] = []

    def measure(name: str, parts: Mapping[str, LanguageModel], values: Mapping[str, float] | None = None) -> None:
        watch(name)
        rows.append({'name': name, **_mix(parts, data), 'values': dict(values or {})})

    caches: dict[str, LanguageModel] = {}
    static: dict[str, LanguageModel] = {}
    adapted: dict[str, LanguageModel] = {}
    for name, model in models.items():
        static[name] = adapted[name] = mixture.CachedScores(model)
        measure(name, {name: static[name]})
        network = model if isinstance(model, NeuralLanguageModel) else None
        if 'ngram_cache' in methods:
            if not caches:
                watch('n-gram cache: tuning')
                candidates = _grid(functools.partial(NgramCache, len(data.vocabulary)), NGRAM_CACHE)
                caches['n-gram cache'], chosen = choose(candidates, data.tokens_T, tuning, static[name])
            measure(f'{name} + n-gram cache', {name: static[name], **caches}, chosen)
        own = {}
        if network and 'neural_cache' in methods:
            watch(f'{name} + neural cache: tuning')
            candidates = _grid(functools.partial(NeuralCache, network), NEURAL_CACHE)
            own['neural cache'], values = choose(candidates, data.tokens_T, tuning, static[name])
            measure(f'{name} + neural cache', {name: static[name], **own}, values)
        if network and 'dynamic' in methods:
            watch(f'{name}, dynamic evaluation: tuning')
            adapted[name], values = choose_dynamic(network, data, tuning)
            measure(f'{name}, dynamic evaluation', {name: adapted[name]}, values)
            if caches or own:
                measure(f'{name}, dynamic evaluation + caches', {name: adapted[name], **caches, **own})
        adapted |= {f'{name}: {key}': cache for key, cache in own.items()}
    if len(models) > 1:
        measure('all mixed', static)
        measure('all mixed, adapted', adapted | caches)
    return rows


def _mix(parts: Mapping[str, LanguageModel], data: Dataset) -> dict[str, Any]:
    """Returns the perplexities of a mixture and, if it has several components, their weights by name."""
    mixed = mixture.fit(list(parts.values()), data.tokens_T, data.valid)
    perplexities = {s: evaluate(mixed, data.tokens_T, data.splits[s]).perplexity for s in ('valid', 'test')}
    weights = dict(zip(parts, mixed.weights_QxM[0].tolist())) if len(parts) > 1 else {}
    return {**perplexities, 'weights': weights}


def choose(
    candidates: Iterator[TunedModel], tokens_T: np.ndarray, span: Span, beside: LanguageModel | None = None
) -> TunedModel:
    """Returns the candidate with the lowest perplexity on `span`.

    Args:
        candidates: The models to try, with the values from which they were created.
        tokens_T: Ids of the stream.
        span: The words to predict.
        beside: A model to mix with each candidate, or None for no mixture. The mixture weights are learned on `span`.
    """

    def perplexity(choice: TunedModel) -> float:
        parts = [choice.model, *([] if beside is None else [beside])]
        try:
            return evaluate(mixture.fit(parts, tokens_T, span), tokens_T, span).perplexity
        except NonFiniteError:  # the rate is too large
            return math.inf

    tried = list(candidates)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:  # scoring one stream uses less than one core
        perplexities = list(pool.map(perplexity, tried))
    return tried[int(np.argmin(perplexities))]


def choose_dynamic(model: NeuralLanguageModel, data: Dataset, tuning: Span) -> TunedModel:
    """Tunes dynamic evaluation: first the rate, then the decay at the best rate.

    The model reads the validation words and then the test words as one stream, without a reset.

    Args:
        model: The network.
        data: The corpus of the network.
        tuning: The words used for tuning.
    """
    rms = root_mean_square_gradients(model, data.tokens_T, data.train, SEGMENT, NUM_SEGMENTS)

    @functools.cache  # both grids contain the best rate with the first decay
    def make(rate: float, decay: float) -> LanguageModel:
        return mixture.CachedScores(DynamicEvaluation(model, rms, rate, decay, SEGMENT, ANCHOR_RATE))

    first = choose(_grid(make, {'rate': RATES, 'decay': DECAYS[:1]}), data.tokens_T, tuning).values
    values = choose(_grid(make, {'rate': [first['rate']], 'decay': DECAYS}), data.tokens_T, tuning).values
    chosen, whole = make(**values), Span(data.valid.start, data.test.stop)
    log_p_T = chosen.score(data.tokens_T, whole)
    scored = mixture.CachedScores(chosen)
    for s in (data.valid, data.test):
        scored.add(data.tokens_T, s, log_p_T[s.start - whole.start : s.stop - whole.start])
    return TunedModel(scored, values)


def _grid(make: Callable[..., LanguageModel], grid: Mapping[str, Sequence[float]]) -> Iterator[TunedModel]:
    """Yields the model that `make` creates for each combination of values. The scores of these models are cached."""
    for values in itertools.product(*grid.values()):
        named = dict(zip(grid, values))
        yield TunedModel(mixture.CachedScores(make(**named)), named)
