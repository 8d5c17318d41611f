"""Which count-based model a config names, and its estimation."""

from __future__ import annotations

import pathlib

from nplm_jax.config import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram import class_ngram, interpolated, kneser_ney
from nplm_jax.models.ngram.counts import count
from nplm_jax.models.ngram.unsmoothed import AddDelta, shorter_when_unseen
from nplm_jax.utils.errors import require

CLASSES_FILE = 'classes.txt'


NGRAM_MODELS = (
    'maximum_likelihood',
    'add_delta',
    'backoff',
    'interpolated',
    'kneser_ney',
    'modified_kneser_ney',
    'classes',
)


def check_settings(settings: Settings) -> None:
    """Raises: BadInput for an order that the model cannot have."""
    if settings.model.family == 'interpolated':
        require(settings.model.n == 3, 'model.n', settings.model.n, 'must be 3: the interpolated model is a trigram')


def estimate(wanted: Settings, data: Dataset, folder: pathlib.Path) -> LanguageModel:
    """The model that `model.family`, `model.n` and `ngram.*` name, from the training words.

    folder: where the word classes are kept, which take minutes to find: read when they are there, else written.
    Raises: BadInput for a classes file of another form.
    """
    args = data.tokens_T, data.train
    n, size = wanted.model.n, len(data.vocabulary)
    match wanted.model.family:
        case 'maximum_likelihood':
            return AddDelta(count(*args, n, size))
        case 'add_delta':
            return AddDelta(count(*args, n, size), wanted.ngram.delta)
        case 'backoff':
            return shorter_when_unseen(count(*args, n, size))
        case 'interpolated':
            return interpolated.fit(*args, data.valid, size)
        case 'kneser_ney':
            return kneser_ney.fit_backoff(*args, n, size)
        case 'modified_kneser_ney':
            return kneser_ney.fit_modified(*args, n, size)
        case 'classes':
            allowed = f'must be {size:,}, the vocabulary, or less'
            require(wanted.ngram.classes <= size, 'ngram.classes', wanted.ngram.classes, allowed)
            path = folder / CLASSES_FILE
            if not path.exists():
                class_ngram.save(class_ngram.exchange(*args, wanted.ngram.classes, size), data.vocabulary, path)
            return class_ngram.ClassNgram(*args, n, class_ngram.load(path, data.vocabulary))
    raise ValueError(f'{wanted.model.family} is no count-based model')
