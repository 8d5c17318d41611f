"""The data of the explorer's page: next words, surprisals, neighbours and samples. Imports no page, for notebooks.

Dims: T words of the text, K words listed, M models, V vocabulary.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.cli.loaded_models import LoadedModels
from nplm_jax.data.corpora import Span
from nplm_jax.inference import generation
from nplm_jax.inference.generation import Choice
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture import ContextBins, Mixture
from nplm_jax.utils.errors import require

BLOCK = 256  # the text is padded to a multiple of it, so that scoring compiles once and not for each length
NUM_CACHED = 64  # texts whose predictions a model keeps: at most this many arrays of V numbers

# Beginnings that a visitor may try; those are offered whose words the models know.
BEGINNINGS = (
    'the old man shook his',
    'in the united states of',
    'she was one of the most',
    'it is not',
    'i love',
    'i like',
    'i hate',
)

WeightedWords = list[tuple[str, float]]  # words with their probabilities or cosines, largest first


class Prediction(NamedTuple):
    """The predictions of one model for a text.

    Attributes:
        name: The name of the model.
        next_words: The likeliest next words with their probabilities.
        branching: The perplexity of the next word: among how many equally likely words the choice would be as open.
        bits_T: -log2 P of each word of the text given the words before it, float64.
    """

    name: str
    next_words: WeightedWords
    branching: float
    bits_T: np.ndarray

    @property
    def perplexities_T(self) -> np.ndarray:
        """The perplexity of the text up to each word: infinite after a word of probability 0."""
        return 2 ** (np.cumsum(self.bits_T) / np.arange(1, len(self.bits_T) + 1))

    @property
    def perplexity(self) -> float:
        """The perplexity of the text: infinite if the model gives a word probability 0, nan without words."""
        return float(self.perplexities_T[-1]) if len(self.bits_T) else float('nan')


class Explanation(NamedTuple):
    """What one model expected where a word of the text stands.

    Attributes:
        name: The name of the model.
        probability: The probability of the word.
        rank: How many words were at least as likely, the word included: 1 for the likeliest.
        expected: The likeliest words with their probabilities.
    """

    name: str
    probability: float
    rank: int
    expected: WeightedWords


class CachedModel(LanguageModel):
    """A model that keeps its latest predictions, so that mixing them with other weights computes no network."""

    def __init__(self, model: LanguageModel) -> None:
        self.n = model.n
        self._next_word = functools.lru_cache(NUM_CACHED)(lambda *key: model.next_word(_array(*key)))
        self._score = functools.lru_cache(NUM_CACHED)(lambda span, *key: model.score(_array(*key), span))

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`."""
        return self._score(span, *_key(tokens_T))

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return self._next_word(*_key(contexts_BxN))


def with_mixture(
    models: LoadedModels,
    weights_M: Sequence[float] | None,
    wrap: Callable[[LanguageModel], LanguageModel] | None = None,
) -> list[tuple[str, LanguageModel]]:
    """Returns the models with their names; the mixture comes first where there are several.

    Args:
        models: The models.
        weights_M: The mixture's weights, up to a common factor; None for the mixture as it was loaded.
        wrap: What each model is replaced by.
    """
    wrapped = list(map(wrap, models.models)) if wrap else models.models
    named = list(zip(models.names, wrapped))
    if not isinstance(models.mixture, Mixture):  # there is one model
        return named
    weights_QxM, bins = models.mixture.weights_QxM, models.mixture.bins
    if weights_M is not None:
        fit = (
            len(weights_M) == len(named) and all(np.isfinite(weights_M)) and min(weights_M) >= 0 and sum(weights_M) > 0
        )
        require(fit, 'weights', weights_M, f'give {len(named)} numbers, 0 or more, one of them above 0')
        weights_QxM, bins = np.array([weights_M], np.float64) / sum(weights_M), ContextBins()
    return [('mixture', Mixture(wrapped, weights_QxM, bins)), *named]


def initial_weights(models: LoadedModels) -> list[float]:
    """Returns the weights of the mixture as it was loaded; their mean over contexts where they depend on these."""
    mixed = models.mixture
    return mixed.weights_QxM.mean(0).tolist() if isinstance(mixed, Mixture) else [1.0]


def predict(
    models: LoadedModels, words: Sequence[str], k: int, weights_M: Sequence[float] | None = None
) -> list[Prediction]:
    """Returns the predictions of each model; those of the mixture come first where there are several models.

    A text begins as a line does in every command.

    Args:
        models: The models.
        words: The text.
        k: How many next words each prediction lists.
        weights_M: The mixture's weights; see `with_mixture`.
    """
    ids_T = models.encode_prompt(words)
    padded_T, text = np.pad(ids_T, (0, -len(ids_T) % BLOCK)), Span(len(ids_T) - len(words), len(ids_T))
    predictions = []
    for name, model in with_mixture(models, weights_M, _cached):
        log_p_V = model.next_word(ids_T[None])[0].astype(np.float64)
        log_p_T = model.score(padded_T, text) if words else np.zeros(0)
        branching = float(np.exp(-np.sum(np.exp(log_p_V) * np.maximum(log_p_V, -1e3))))  # 0 log 0 is 0
        bits_T = -log_p_T.astype(np.float64) / np.log(2)
        predictions.append(Prediction(name, _likeliest(models, log_p_V, k), branching, bits_T))
    return predictions


def explain(
    models: LoadedModels, words: Sequence[str], position: int, k: int, weights_M: Sequence[float] | None = None
) -> list[Explanation]:
    """Returns what each model expected at a position of the text.

    Args:
        models: The models.
        words: The text.
        position: The word's place in the text, from 0.
        k: How many expected words each explanation lists.
        weights_M: The mixture's weights; see `with_mixture`.
    """
    require(0 <= position < len(words), 'position', position, f'must be one of the {len(words)} words')
    ids_T = models.encode_prompt(words)
    place = len(ids_T) - len(words) + position
    explanations = []
    for name, model in with_mixture(models, weights_M, _cached):
        log_p_V = model.next_word(ids_T[None, :place])[0].astype(np.float64)
        log_p = log_p_V[ids_T[place]]
        expected = _likeliest(models, log_p_V, k)
        explanations.append(Explanation(name, float(np.exp(log_p)), int(np.sum(log_p_V >= log_p)), expected))
    return explanations


def continue_text(
    models: LoadedModels,
    index: int,
    words: Sequence[str],
    count: int,
    samples: int,
    choice: Choice,
    seed: int,
    weights_M: Sequence[float] | None = None,
) -> list[str]:
    """Returns continuations of a text.

    Args:
        models: The models.
        index: Which model continues the text, counted in `with_mixture`.
        words: The text.
        count: The number of words of a continuation.
        samples: The number of continuations.
        choice: From which words the next one is drawn.
        seed: The seed of the samples.
        weights_M: The mixture's weights; see `with_mixture`.
    """
    model = with_mixture(models, weights_M)[index][1]
    ids_BxT = generation.sample(model, models.encode_prompt(words), count, samples, choice, seed)
    return [models.vocabulary.tokenizer.decode(models.vocabulary.decode(ids_T)) for ids_T in ids_BxT]


def examples(models: LoadedModels, k: int = 4) -> list[str]:
    """Returns k beginnings to try: BEGINNINGS whose words the models know, else what the mixture writes itself."""
    known = [text for text in BEGINNINGS if all(word in models.vocabulary.ids for word in models.tokenize(text, ''))]
    return known[:k] or continue_text(models, 0, [], 3, k, Choice(top_k=20), seed=1)


def describe_probability(p: float) -> str:
    """Returns a probability as per cent, or as `1 in` a number where it is below 0.1%."""
    if p >= 0.001:
        return f'{p:.1%}'
    return f'1 in {1 / p:,.0f}' if p > 0 else 'never'


def _likeliest(models: LoadedModels, log_p_V: np.ndarray, k: int) -> WeightedWords:
    """Returns the k likeliest words with their probabilities."""
    require(k >= 1, 'k', k, 'must be 1 or more')
    best_K = np.argsort(-log_p_V, kind='stable')[:k]
    return list(zip(models.vocabulary.decode(best_K), np.exp(log_p_V[best_K]).tolist()))


@functools.lru_cache(maxsize=32)
def _cached(model: LanguageModel) -> CachedModel:
    return CachedModel(model)


def _key(ids: np.ndarray) -> tuple[bytes, tuple[int, ...]]:
    """Returns word ids as a key of a cache."""
    ids = np.asarray(ids, np.int32)
    return ids.tobytes(), ids.shape


def _array(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(data, np.int32).reshape(shape)
