"""The registry of count-based models: how each `model.family` is estimated."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data.corpora import Span
from nplm_jax.data.dataset import Dataset
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram import class_ngram, interpolated, kneser_ney, pruning
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramCounts, count
from nplm_jax.models.ngram.quantization import quantize
from nplm_jax.models.ngram.scratch import Scratch
from nplm_jax.models.ngram.unsmoothed import add_delta, unsmoothed_backoff
from nplm_jax.utils.errors import require

CLASSES_FILE = 'classes.txt'


class NgramModel(NamedTuple):
    """A count-based model.

    Attributes:
        fit: Estimates it from the training words of a dataset; may read and write files in a folder.
        keys: The keys of `model.*` and `ngram.*` that it reads.
    """

    fit: Callable[[Settings, Dataset, pathlib.Path], LanguageModel]
    keys: frozenset[str] = frozenset({'model.n', 'ngram.bits'})


def check_settings(settings: Settings) -> None:
    """Raises BadInput for an order or thresholds that the model cannot have."""
    require(settings.model.n <= 100, 'model.n', settings.model.n, 'must be 100 or less for a count-based model')
    if settings.model.family == 'interpolated':
        require(settings.model.n == 3, 'model.n', settings.model.n, 'must be 3: the interpolated model is a trigram')
    pruning.parse_thresholds('ngram.prune', settings.ngram.prune, settings.model.n)


def estimate(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates the model that `model.family`, `model.n` and `ngram.*` describe from the training words.

    Args:
        settings: The run's settings; `model.family` is a key of NGRAM_MODELS.
        data: The corpus.
        folder: The run's folder. Files that take minutes to compute are kept there, and read from it; large arrays are
            unnamed files in it.

    Returns:
        The model, in fewer bits if the settings say so.

    Raises:
        BadInput: A setting does not fit the corpus, or a file in `folder` is malformed.
    """
    model = NGRAM_MODELS[settings.model.family].fit(settings, data, folder)
    if settings.ngram.bits and isinstance(model, BackoffModel):
        return quantize(model, settings.ngram.bits, Scratch(folder))
    return model


def _train_args(settings: Settings, data: Dataset) -> tuple[np.ndarray, Span, int, int]:
    """Returns the stream, the training span, the order and |V|: what most estimators take."""
    return data.tokens_T, data.train, settings.model.n, len(data.vocabulary)


def _counts(settings: Settings, data: Dataset, folder: pathlib.Path) -> NgramCounts:
    return count(*_train_args(settings, data), Scratch(folder))


def _build_modified(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    thresholds = pruning.parse_thresholds('ngram.prune', settings.ngram.prune, settings.model.n)
    return kneser_ney.fit_modified(
        *_train_args(settings, data), thresholds, Scratch(folder), settings.ngram.prune_entropy
    )


def _build_class_ngram(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates a class n-gram; the classes, which take minutes to find, are kept in `folder`."""
    tokens_T, train, n, size = _train_args(settings, data)
    num_classes = settings.ngram.classes
    require(num_classes <= size, 'ngram.classes', num_classes, f'must be {size:,}, the size of the vocabulary, or less')
    path = folder / CLASSES_FILE
    if not path.exists():
        class_ngram.save(class_ngram.exchange(tokens_T, train, num_classes, size), data.vocabulary, path)
    return class_ngram.ClassNgram.fit(tokens_T, train, n, class_ngram.load(path, data.vocabulary))


NGRAM_MODELS: dict[str, NgramModel] = {
    'maximum_likelihood': NgramModel(lambda *run: add_delta(_counts(*run))),
    'add_delta': NgramModel(
        lambda settings, *run: add_delta(_counts(settings, *run), settings.ngram.delta),
        frozenset({'model.n', 'ngram.delta', 'ngram.bits'}),
    ),
    'backoff': NgramModel(lambda *run: unsmoothed_backoff(_counts(*run))),
    'interpolated': NgramModel(
        lambda _, data, __: interpolated.fit(data.tokens_T, data.train, data.valid, len(data.vocabulary)),
        frozenset({'model.n'}),
    ),
    'kneser_ney': NgramModel(
        lambda settings, data, folder: kneser_ney.fit_backoff(
            *_train_args(settings, data), scratch=Scratch(folder), prune_entropy=settings.ngram.prune_entropy
        ),
        frozenset({'model.n', 'ngram.prune_entropy', 'ngram.bits'}),
    ),
    'modified_kneser_ney': NgramModel(
        _build_modified, frozenset({'model.n', 'ngram.prune', 'ngram.prune_entropy', 'ngram.bits'})
    ),
    'classes': NgramModel(_build_class_ngram, frozenset({'model.n', 'ngram.classes'})),
}
