"""The data of the explorer's page: next words, surprisals, neighbours and samples. Imports no page, for notebooks.

Dims: T words of the text, K words listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.cli.loaded_models import LoadedModels
from nplm_jax.data.corpora import Span
from nplm_jax.inference import embeddings, generation
from nplm_jax.inference.generation import Choice
from nplm_jax.utils.errors import require

BLOCK = 256  # the text is padded to a multiple of it, so that scoring compiles once and not for each length

WeightedWords = list[tuple[str, float]]  # words with their probabilities or cosines, largest first


class Prediction(NamedTuple):
    """The predictions of one model for a text.

    Attributes:
        name: the name of the model.
        next_words: the likeliest next words with their probabilities.
        bits_T: -log2 P of each word of the text given the words before it, float64.
    """

    name: str
    next_words: WeightedWords
    bits_T: np.ndarray

    @property
    def perplexity(self) -> float:
        """The perplexity of the text: infinite if the model gives a word probability 0, nan without words."""
        return float(2 ** np.mean(self.bits_T)) if len(self.bits_T) else float('nan')


def predict(models: LoadedModels, words: Sequence[str], k: int) -> list[Prediction]:
    """Returns the predictions of each model; those of the mixture come first where there are several models.

    The rare-word symbol stands before the first word, as before a corpus.

    Args:
        models: the models.
        words: the text.
        k: how many next words each prediction lists.
    """
    require(k >= 1, 'k', k, 'must be 1 or more')
    ids_T = models.vocabulary.encode(words)
    padded_T = np.pad(ids_T, (0, -len(ids_T) % BLOCK))
    predictions = []
    for name, model in models.with_mixture():
        log_p_V = model.next_word(ids_T[None])[0]
        best_K = np.argsort(-log_p_V, kind='stable')[:k].tolist()
        next_words = list(zip(models.vocabulary.decode(best_K), np.exp(log_p_V[best_K]).tolist()))
        log_p_T = model.score(padded_T, Span(0, len(ids_T))) if len(ids_T) else np.zeros(0)
        predictions.append(Prediction(name, next_words, -log_p_T.astype(np.float64) / np.log(2)))
    return predictions


def neighbours(models: LoadedModels, word: str, k: int) -> list[tuple[str, WeightedWords]]:
    """Returns the k words nearest to `word` by each network's features; an empty list for an unknown word."""
    nearest = []
    for name, features_VxM in models.word_features() if word in models.vocabulary.ids else []:
        ids_1xK, cosines_1xK = embeddings.neighbours(features_VxM, [models.vocabulary.ids[word]], k)
        nearest.append((name, list(zip(models.vocabulary.decode(ids_1xK[0]), cosines_1xK[0].tolist()))))
    return nearest


def continue_text(
    models: LoadedModels, index: int, words: Sequence[str], count: int, samples: int, choice: Choice, seed: int
) -> list[str]:
    """Returns continuations of a text.

    Args:
        models: the models.
        index: which model continues the text, counted in `with_mixture`.
        words: the text.
        count: the number of words of a continuation.
        samples: the number of continuations.
        choice: from which words the next one is drawn.
        seed: the seed of the samples.
    """
    model = models.with_mixture()[index][1]
    ids_BxT = generation.sample(model, models.vocabulary.encode(words), count, samples, choice, seed)
    return [' '.join(models.vocabulary.decode(ids_T)) for ids_T in ids_BxT]
