"""Trains networks with several seeds, records their scores, and compares them seed by seed."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from configs import brown
from experiments import results
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import summarize
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs import loading
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.train import fit, train

SEEDS = (1, 2, 3)
SPLITS = ('valid', 'test')
EPOCHS = 1  # passes over the training words
KEPT = (
    *('model.n', 'model.m', 'model.h', 'model.direct', 'model.dropout'),
    *('optimizer.learning_rate', 'optimizer.table_rate', 'optimizer.decay'),
)
VALID_WORDS = 50_000  # number of validation words for choosing a strength
# Lowest and highest training count of the words of each band.
BANDS = ((0, 0), (1, 3), (4, 10), (11, 30), (31, 100), (101, 1000), (1001, 10**9))


def quick(changes: dict[str, Any]) -> Settings:
    """Returns the settings of configs/brown.py:quick for EPOCHS passes, with some flattened keys changed.

    If the body or the optimizer is replaced, the keys in KEPT keep their values.
    """
    settings = config_lib.from_config(brown.get_config('quick'))
    values = config_lib.to_flat(settings)
    kept = {key: values[key] for key in KEPT}
    return config_lib.replace(settings, {**kept, 'train.epochs': EPOCHS, 'train.evaluate_every': 10**6, **changes})


def load_data() -> Dataset:
    """Returns Brown with only the first VALID_WORDS validation words."""
    data = loading.load_dataset(quick({}))
    return dataclasses.replace(data, valid=Span(data.valid.start, data.valid.start + VALID_WORDS))


def measure(settings: Settings, data: Dataset) -> tuple[NeuralLanguageModel, Any]:
    """Trains a network and scores it.

    Args:
        settings: The settings of the run.
        data: The corpus of the network.

    Returns:
        The network and its scores: perplexities, the mean NLL of each band of test words, and seconds.
    """
    run = prepare_run(settings, data)
    params, _, progress = fit(train(run, None, Reporter()))
    model = NeuralLanguageModel(run.program.network, params)
    log_p = {split: model.score(data.tokens_T, data.splits[split]) for split in SPLITS}
    facts = {
        'seed': settings.seed,
        'parameters': run.program.network.num_parameters(),
        'seconds': round(progress.seconds, 1),
        'updates': progress.step,
        'best_update': progress.best_step,
    }
    scores = {split: summarize(log_p[split], data.splits[split]).perplexity for split in SPLITS}
    jax.clear_caches()  # each run has its own program
    return model, {**scores, **facts, 'bands': band_nll(log_p['test'], data)}


def band_nll(log_p_T: np.ndarray, data: Dataset) -> dict[str, list[float | None]]:
    """Returns the mean NLL of test words, in nats, both by the word's band and by the previous word's band."""
    nll = {}
    for name, band_T in test_bands(data).items():
        masks = (band_T == i for i in range(len(BANDS)))
        nll[name] = [float(-log_p_T[mask].mean(dtype=np.float64)) if mask.any() else None for mask in masks]
    return nll


def test_bands(data: Dataset) -> dict[str, np.ndarray]:
    """Returns the band of each test word and of the word before it: indices into BANDS."""
    counts_V = np.bincount(data.train_words, minlength=len(data.vocabulary))
    bands_V = np.searchsorted([highest for _, highest in BANDS], counts_V)
    spans = {'predicted': data.test, 'before': Span(data.test.start - 1, data.test.stop - 1)}
    return {name: bands_V[data.tokens_T[span.start : span.stop]] for name, span in spans.items()}


def band_words(data: Dataset) -> dict[str, list[int]]:
    """Returns the number of test words in each band."""
    return {name: np.bincount(band_T, minlength=len(BANDS)).tolist() for name, band_T in test_bands(data).items()}


class Record:
    """The runs of a study in a JSON file, written after each run so that an interrupted study can resume.

    Each run has its own origin, because a study may resume at another commit or with another version.
    """

    def __init__(self, path: pathlib.Path, module: str) -> None:
        """Reads the file if it exists. `module` is the module of the study, for the command recorded in the file."""
        self._path, self._facts = path, of_module(module)
        recorded = results.read(path.parent, path.stem) if path.exists() else {'runs': {}, **self._facts}
        self.content: dict[str, Any] = recorded

    def add(self, name: str, seed: int, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the scores of a run. If they are not in the file, measures the run."""
        key = f'{name}, seed {seed}'
        if key not in self.content['runs']:
            print(f'{key} ...', end=' ', file=sys.stderr, flush=True)
            scored = self.content['runs'][key] = {**measured(), **self._facts}
            self.write({})
            print(f'valid {scored["valid"]:.1f}, test {scored["test"]:.1f}, {scored["seconds"]} s', file=sys.stderr)
        return self.content['runs'][key]

    def write(self, further: dict[str, Any]) -> None:
        """Writes the file with additional entries."""
        self.content |= further
        results.write(self._path, self.content)


def seeds_of(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Returns the scores of the runs with the given name, by seed."""
    return [content['runs'][f'{name}, seed {seed}'] for seed in SEEDS]


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """Formats the mean and the standard deviation."""
    return f'{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}'


def gains(content: dict[str, Any], name: str, baseline: str, split: str = 'test') -> list[float]:
    """Returns the change in perplexity relative to a baseline, seed by seed, in percent. Negative is better."""
    pairs = zip(seeds_of(content, name), seeds_of(content, baseline))
    return [100 * (run[split] / other[split] - 1) for run, other in pairs]


def band_gains(content: dict[str, Any], name: str, baseline: str, by: str, band: int) -> list[float]:
    """Returns the change in perplexity of the test words in a band, seed by seed, in percent."""
    pairs = zip(seeds_of(content, name), seeds_of(content, baseline))
    return [100 * math.expm1(run['bands'][by][band] - other['bands'][by][band]) for run, other in pairs]
