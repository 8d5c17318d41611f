"""The registry of count-based models: how each `model.family` is estimated."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import corpora
from nplm_jax.data.corpora import Span
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.tokenizers.tokenizer import PARAGRAPH_BOUNDARY
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram import class_ngram, interpolated, kneser_ney, lines, pruning
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
        fit: Estimates it from the training words of a dataset; may write files into a folder.
        keys: The keys of `model.*` and `ngram.*` that it reads.
        reads_lines: Whether it can read a text line by line, as `corpus.context=line` asks.
        is_backoff: Whether it is a back-off model, which an ARPA file can hold.
    """

    fit: Callable[[Settings, Dataset, pathlib.Path], LanguageModel]
    keys: frozenset[str] = frozenset({'model.n', 'ngram.bits'})
    reads_lines: bool = False
    is_backoff: bool = True


def check_settings(settings: Settings) -> None:
    """Raises BadInput for an order, thresholds or a context that the model cannot have."""
    require(settings.model.n <= 100, 'model.n', settings.model.n, 'must be 100 or less for a count-based model')
    if settings.model.family == 'interpolated':
        require(settings.model.n == 3, 'model.n', settings.model.n, 'must be 3: the interpolated model is a trigram')
    pruning.parse_thresholds('ngram.prune', settings.ngram.prune, settings.model.n)
    check_context(settings)


def check_context(settings: Settings) -> None:
    """Raises BadInput for `corpus.context=line` if the family, any there is, or the tokens cannot serve it."""
    if settings.corpus.context != 'line':
        return
    families = [name for name, model in NGRAM_MODELS.items() if model.reads_lines]
    tokenizer = corpora.make_tokenizer(settings.corpus)
    has_marks = tokenizer.boundary_tokens and not tokenizer.is_lossless
    problem = f'needs model.family={"|".join(families)}; model.family={settings.model.family} reads a stream'
    require(settings.model.family in families, 'corpus.context', 'line', problem)
    require(has_marks, 'corpus.context', 'line', 'needs corpus.boundary_tokens=True, and tokens that are words')


def reads_lines(settings: Settings, data: Dataset) -> bool:
    """Returns whether a run reads its corpus line by line: what `corpus.context` says, or what `auto` finds."""
    family, context = NGRAM_MODELS.get(settings.model.family), settings.corpus.context
    return bool(family and family.reads_lines) and (context == 'line' or (context == 'auto' and data.has_lines))


def read(settings: Settings, data: Dataset, folder: pathlib.Path | None = None) -> Dataset:
    """Returns a corpus as the run reads it: as a stream, or by lines.

    Args:
        settings: The run's settings, of any family.
        data: The corpus.
        folder: Where a large stream is an unnamed file; None is the system's temporary folder.

    Raises:
        BadInput: `<p>` is no word of the vocabulary.
    """
    if data.by_lines or not reads_lines(settings, data):
        return data
    problem = f'needs {PARAGRAPH_BOUNDARY} in the vocabulary; corpus.context=stream does not'
    require(PARAGRAPH_BOUNDARY in data.vocabulary.ids, 'corpus.context', settings.corpus.context, problem)
    return lines.by_lines(data, Scratch(folder))


def estimate(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates the model that `model.family`, `model.n` and `ngram.*` describe from the training words.

    Args:
        settings: The run's settings; `model.family` is a key of NGRAM_MODELS.
        data: The corpus, of which `read` makes what the run reads.
        folder: The run's folder. The classes are written into it; large arrays are unnamed files in it.

    Returns:
        The model, in fewer bits if the settings say so.

    Raises:
        BadInput: A setting does not fit the corpus.
    """
    data = read(settings, data, folder)
    model = NGRAM_MODELS[settings.model.family].fit(settings, data, folder)
    if settings.ngram.bits and isinstance(model, BackoffModel):
        return quantize(model, settings.ngram.bits, Scratch(folder))
    return model


def _train_args(settings: Settings, data: Dataset) -> tuple[np.ndarray, Span, int, int]:
    """Returns the stream, the training span, the order and |V|: what most estimators take."""
    return data.tokens_T, data.train, settings.model.n, len(data.vocabulary)


def _counts(settings: Settings, data: Dataset, folder: pathlib.Path) -> NgramCounts:
    marks = lines.marks_of(data.vocabulary) if data.by_lines else None
    return count(*_train_args(settings, data), Scratch(folder), marks)


def _build_modified(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    thresholds = pruning.parse_thresholds('ngram.prune', settings.ngram.prune, settings.model.n)
    return kneser_ney.fit_modified(_counts(settings, data, folder), thresholds, settings.ngram.prune_entropy)


def _build_class_ngram(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates a class n-gram, and writes the classes into `folder` for people to read."""
    tokens_T, train, n, size = _train_args(settings, data)
    num_classes = settings.ngram.classes
    require(num_classes <= size, 'ngram.classes', num_classes, f'must be {size:,}, the size of the vocabulary, or less')
    classes_V = class_ngram.exchange(tokens_T, train, num_classes, size)
    class_ngram.save(classes_V, data.vocabulary, folder / CLASSES_FILE)
    return class_ngram.ClassNgram.fit(tokens_T, train, n, classes_V)


NGRAM_MODELS: dict[str, NgramModel] = {
    'maximum_likelihood': NgramModel(lambda *run: add_delta(_counts(*run))),
    'add_delta': NgramModel(
        lambda settings, data, folder: add_delta(_counts(settings, data, folder), settings.ngram.delta),
        frozenset({'model.n', 'ngram.delta', 'ngram.bits'}),
    ),
    'backoff': NgramModel(lambda *run: unsmoothed_backoff(_counts(*run)), reads_lines=True),
    'interpolated': NgramModel(
        lambda _, data, __: interpolated.fit(data.tokens_T, data.train, data.valid, len(data.vocabulary)),
        frozenset({'model.n'}),
        is_backoff=False,
    ),
    'kneser_ney': NgramModel(
        lambda settings, data, folder: kneser_ney.fit_backoff(
            _counts(settings, data, folder), prune_entropy=settings.ngram.prune_entropy
        ),
        frozenset({'model.n', 'ngram.prune_entropy', 'ngram.bits'}),
        reads_lines=True,
    ),
    'modified_kneser_ney': NgramModel(
        _build_modified,
        frozenset({'model.n', 'ngram.prune', 'ngram.prune_entropy', 'ngram.bits'}),
        reads_lines=True,
    ),
    'classes': NgramModel(_build_class_ngram, frozenset({'model.n', 'ngram.classes'}), is_backoff=False),
}
