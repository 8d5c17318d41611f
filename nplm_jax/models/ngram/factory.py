"""The registry of count-based models: how each `model.family` is estimated."""

import pathlib
from collections.abc import Callable

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

Builder = Callable[[Settings, Dataset, pathlib.Path], LanguageModel]


def check_settings(settings: Settings) -> None:
    """Raises BadInput for an order, thresholds or bits that the model cannot have."""
    require(settings.model.n <= 100, 'model.n', settings.model.n, 'must be 100 or less for a count-based model')
    if settings.model.family == 'interpolated':
        require(settings.model.n == 3, 'model.n', settings.model.n, 'must be 3: the interpolated model is a trigram')
    thresholds = pruning.parse_thresholds('ngram.prune', settings.ngram.prune, settings.model.n)
    is_prunable = settings.model.family == 'modified_kneser_ney'
    require(is_prunable or not any(thresholds), 'ngram.prune', settings.ngram.prune, 'needs modified_kneser_ney, or 0')
    is_backoff = settings.model.family not in ('interpolated', 'classes')
    require(is_backoff or not settings.ngram.bits, 'ngram.bits', settings.ngram.bits, 'must be 0 for this model.family')


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
    model = NGRAM_MODELS[settings.model.family](settings, data, folder)
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
    return kneser_ney.fit_modified(*_train_args(settings, data), thresholds, Scratch(folder))


def _build_class_ngram(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates a class n-gram; the classes, which take minutes to find, are kept in `folder`."""
    tokens_T, train, n, size = _train_args(settings, data)
    num_classes = settings.ngram.classes
    require(num_classes <= size, 'ngram.classes', num_classes, f'must be {size:,}, the size of the vocabulary, or less')
    path = folder / CLASSES_FILE
    if not path.exists():
        class_ngram.save(class_ngram.exchange(tokens_T, train, num_classes, size), data.vocabulary, path)
    return class_ngram.ClassNgram.fit(tokens_T, train, n, class_ngram.load(path, data.vocabulary))


NGRAM_MODELS: dict[str, Builder] = {
    'maximum_likelihood': lambda *run: add_delta(_counts(*run)),
    'add_delta': lambda settings, *run: add_delta(_counts(settings, *run), settings.ngram.delta),
    'backoff': lambda *run: unsmoothed_backoff(_counts(*run)),
    'interpolated': lambda _, data, __: interpolated.fit(data.tokens_T, data.train, data.valid, len(data.vocabulary)),
    'kneser_ney': lambda settings, data, folder: kneser_ney.fit_backoff(
        *_train_args(settings, data), scratch=Scratch(folder)
    ),
    'modified_kneser_ney': _build_modified,
    'classes': _build_class_ngram,
}
