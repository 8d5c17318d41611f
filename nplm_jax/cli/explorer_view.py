"""What the page shows, as data: next words, surprises, neighbours and samples of each model. Knows of no page.

Dims: T words of the text, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.cli.trained import Trained
from nplm_jax.data.corpora import Span
from nplm_jax.inference import embeddings, generation
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.utils.errors import require

BLOCK = 256  # the text is padded to a multiple of it, so that scoring compiles once and not for each length

Weighed = list[tuple[str, float]]  # words, each with its probability or cosine, the largest first


class Prediction(NamedTuple):
    """What one model makes of the text."""

    name: str
    following: Weighed  # the words that may come next, with their probabilities
    bits_T: np.ndarray  # -log2 P of each word of the text after those before it, float64

    @property
    def perplexity(self) -> float:
        """Of the text; infinite where the model holds a word of it for impossible, nan without words."""
        return float(2 ** np.mean(self.bits_T)) if len(self.bits_T) else float('nan')


def predict(models: Trained, words: Sequence[str], k: int) -> list[Prediction]:
    """What each model, and first the mixture where there are several, makes of a text.

    Before its first word stands the rare-word symbol, as before a corpus. k: how many words that may follow.
    """
    require(k >= 1, 'k', k, 'must be 1 or more')
    ids_T = models.vocabulary.encode(words)
    padded_T = np.pad(ids_T, (0, -len(ids_T) % BLOCK))
    predictions = []
    for name, model in models.named():
        log_p_V = model.next_word(ids_T[None])[0]
        best = np.argsort(-log_p_V, kind='stable')[:k].tolist()
        following = list(zip(models.vocabulary.decode(best), np.exp(log_p_V[best]).tolist()))
        log_p_T = model.score(padded_T, Span(0, len(ids_T))) if len(ids_T) else np.zeros(0)
        predictions.append(Prediction(name, following, -log_p_T.astype(np.float64) / np.log(2)))
    return predictions


def neighbours(models: Trained, word: str, k: int) -> list[tuple[str, Weighed]]:
    """The words nearest to one by the features of each network; none for other models or an unknown word."""
    i = models.vocabulary.ids.get(word)
    networks = [(n, m) for n, m in models.named() if isinstance(m, NeuralLanguageModel) and i is not None]
    found = []
    for name, network in networks:
        ids_1xK, cosines_1xK = embeddings.neighbours(network.params['C_VxM'], [i], k)
        found.append((name, list(zip(models.vocabulary.decode(ids_1xK[0]), cosines_1xK[0].tolist()))))
    return found


def write_on(
    models: Trained, source: int, words: Sequence[str], count: int, samples: int, choice: generation.Choice, seed: int
) -> list[str]:
    """What one of the models, by its place in `named`, writes after a text: `samples` times `count` words."""
    model = models.named()[source][1]
    ids_BxT = generation.sample(model, models.vocabulary.encode(words), count, samples, choice, seed)
    return [' '.join(models.vocabulary.decode(ids_T)) for ids_T in ids_BxT]
