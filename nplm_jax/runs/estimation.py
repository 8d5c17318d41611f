"""Count-based models from settings: the corpus as a run reads it, and the estimate."""

import pathlib

from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import lines
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.utils.errors import require


def reads_lines(settings: Settings, data: Dataset) -> bool:
    """Returns whether a run reads its corpus line by line: what `corpus.context` says, or what `auto` finds."""
    context = settings.corpus.context
    if context != 'auto':
        return context == 'line'
    return data.has_lines and not settings.is_neural and settings.model.reads_lines


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
    return lines.by_lines(data, SharedScratch(folder))


def estimate(settings: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """Estimates the model that `model.*` describes from the training words.

    Args:
        settings: The settings of a count-based model.
        data: The corpus, of which `read` makes what the run reads.
        folder: The run's folder; see `Estimator.fit`.

    Raises:
        BadInput: A setting does not fit the corpus.
    """
    model: LanguageModel = settings.model.fit(read(settings, data, folder), folder)
    return model
