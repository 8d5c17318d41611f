"""Estimates the count-based models described by settings."""

import pathlib

from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import lines
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.utils.errors import require


def reads_lines(settings: Settings, data: Dataset) -> bool:
    """Returns whether a run reads its corpus line by line.

    If `corpus.context=auto`, this depends on the corpus and on the model.
    """
    context = settings.corpus.context
    if context != 'auto':
        return context == 'line'
    return data.has_lines and not settings.is_neural and settings.model.reads_lines


def read(settings: Settings, data: Dataset, folder: pathlib.Path | None = None) -> Dataset:
    """Returns a corpus in the form that a run requires: as one stream, or divided into lines.

    Args:
        settings: The settings of a run of any model family.
        data: The corpus.
        folder: The folder for the temporary file of a large stream. None selects the system's temporary folder.

    Raises:
        BadInput: The run reads lines, but `<p>` is not in the vocabulary.
    """
    if data.by_lines or not reads_lines(settings, data):
        return data
    problem = f'requires {PARAGRAPH_BOUNDARY} in the vocabulary; without it, set corpus.context=stream'
    require(PARAGRAPH_BOUNDARY in data.vocabulary.ids, 'corpus.context', settings.corpus.context, problem)
    return lines.by_lines(data, SharedScratch(folder))


def estimate(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates the model described by `model.*` from the training words.

    Args:
        settings: The settings of a count-based model.
        data: The corpus, in the form that the run requires. See `read`.
        folder: The folder of the run. See `Estimator.fit`.

    Raises:
        BadInput: A setting is incompatible with the corpus.
    """
    model: LanguageModel = settings.model.fit(read(settings, data, folder), folder)
    return model
