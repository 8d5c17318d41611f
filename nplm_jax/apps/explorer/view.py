"""Computes the data shown on the explorer's page: next words, surprisals, explanations and samples.

This module does not depend on the page.

Dims: T words in the text, K listed words, M models, V vocabulary.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.data.stream import SPECIAL_TOKENS
from nplm_jax.inference import generation
from nplm_jax.inference.generation import Choice
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture import ContextBins, Mixture
from nplm_jax.models.neural import LENGTH_MULTIPLE, SCORING_BATCH
from nplm_jax.runs.command_models import LoadedModels

MAX_SHORT = 64  # maximum length (words) of a text that is scored as a line
REPLACEMENT = '\ufffd'  # replaces bytes that are not UTF-8
_MAX_COMPLETING = 3  # maximum number of bytes that complete a character
NUM_CACHED = 256  # maximum number of cached predictions, arrays of V numbers
_POSSESSIVE = re.compile(r"\s+(?=['’][sS](?!\S))")  # the space before a possessive 's

# Example beginnings. The page offers those whose words are all known to the models.
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


class Scores(NamedTuple):
    """The scores of a text under each model, before mixing.

    Attributes:
        words: The text.
        next_MxV: log P of each word in the vocabulary after the text, float32.
        log_p_MxT: log P of each word in the text given the preceding words, float32.
    """

    words: Sequence[str]
    next_MxV: np.ndarray
    log_p_MxT: np.ndarray


class Prediction(NamedTuple):
    """The predictions of one model for a text.

    Attributes:
        name: The name of the model.
        next_words: The most likely next words with their probabilities.
        branching: The perplexity of the next word: how many equally likely words would be just as uncertain.
        bits_T: -log2 P of each word in the text given the preceding words, float64.
    """

    name: str
    next_words: WeightedWords
    branching: float
    bits_T: np.ndarray

    @property
    def perplexities_T(self) -> np.ndarray:
        """The perplexity of the text up to each word. It is infinite from a word with probability 0 on."""
        return 2 ** (np.cumsum(self.bits_T) / np.arange(1, len(self.bits_T) + 1))

    @property
    def perplexity(self) -> float:
        """The perplexity of the text. It is infinite if a word has probability 0, and NaN if there are no words."""
        return float(self.perplexities_T[-1]) if len(self.bits_T) else float('nan')


class Explanation(NamedTuple):
    """What one model predicted at the position of a word.

    Attributes:
        name: The name of the model.
        probability: The probability of the word.
        rank: The number of words that are at least as likely as the word, including the word itself.
        expected: The most likely words with their probabilities.
    """

    name: str
    probability: float
    rank: int
    expected: WeightedWords


def initial_weights(models: LoadedModels) -> list[float]:
    """Returns the initial weights of the mixture, averaged over contexts if they depend on the context."""
    mixed = models.mixture
    return mixed.weights_QxM.mean(0).tolist() if isinstance(mixed, Mixture) else [1.0]


def score(models: LoadedModels, words: Sequence[str]) -> Scores:
    """Scores a text with each model, starting from the same context as for a line in other commands."""
    line = models.encode_prompt(words)
    next_words = [model.next_word(line[None])[0] for model in models.models]
    log_p = [_score_line(model, line)[len(line) - len(words) :] for model in models.models]
    return Scores(words, np.stack(next_words), np.stack(log_p))


def warm_up(models: LoadedModels) -> None:
    """Compiles the programs of `score` for texts of up to 1,000 words."""
    for length in (1, LENGTH_MULTIPLE, 200, 500, 1000):
        score(models, models.vocabulary.words[:1] * length)


def summarize(
    models: LoadedModels, scores: Scores, k: int, weights_M: Sequence[float] | None = None
) -> list[Prediction]:
    """Computes the predictions of each model from its scores. If there are several models, the mixture comes first.

    Args:
        models: The models.
        scores: The scores of the text.
        k: The number of next words in each prediction.
        weights_M: The mixture weights, which need not sum to one. None for the initial weights.
    """
    next_words = _with_mixture(models, weights_M, scores.next_MxV.astype(np.float64))
    log_p = _with_mixture(models, weights_M, scores.log_p_MxT.astype(np.float64))
    predictions = []
    for (name, log_p_V), (_, log_p_T) in zip(next_words, log_p):
        branching = float(np.exp(-np.sum(np.exp(log_p_V) * np.maximum(log_p_V, -1e3))))  # 0 log 0 is 0
        predictions.append(Prediction(name, _likeliest(models, log_p_V, k), branching, -log_p_T / np.log(2)))
    return predictions


def explain(
    models: LoadedModels, words: Sequence[str], position: int, k: int, weights_M: Sequence[float] | None = None
) -> list[Explanation]:
    """Returns the words that each model expected at a position of the text.

    Args:
        models: The models.
        words: The text.
        position: The position of the word in the text, counted from 0.
        k: The number of expected words in each explanation.
        weights_M: The mixture's weights. See `summarize`.
    """
    ids = tuple(models.encode_prompt(words).tolist())
    place = len(ids) - len(words) + position
    explanations = []
    for name, log_p_V in _with_mixture(models, weights_M, [_next_word(m, ids[:place]) for m in models.models]):
        log_p = log_p_V[ids[place]]
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
        index: The index in `models.with_mixture()` of the model that continues the text.
        words: The text.
        count: The number of words in each continuation.
        samples: The number of continuations.
        choice: The options for sampling the next word.
        seed: The random seed for sampling.
        weights_M: The mixture's weights. See `summarize`.
    """
    model = models.with_mixture()[index][1]
    if index == 0 and len(models.models) > 1 and weights_M is not None:  # a run may itself be a mixture
        model = Mixture(models.models, np.array([weights_M]) / sum(weights_M), ContextBins())
    ids_BxT = generation.sample(model, models.encode_prompt(words), count, samples, choice, seed)
    return [models.vocabulary.tokenizer.decode(models.vocabulary.decode(ids_T)) for ids_T in ids_BxT]


def examples(models: LoadedModels, k: int = 4) -> list[str]:
    """Returns up to k entries of BEGINNINGS whose words are all known, or k samples of the mixture."""
    if models.vocabulary.tokenizer.is_lossless:
        lines = (text.split() for text in continue_text(models, 0, [], 12, k, Choice(top_k=5), seed=1))
        return [' '.join(words).rstrip(REPLACEMENT) for words in lines]
    known = [text for text in BEGINNINGS if all(word in models.vocabulary.ids for word in models.tokenize(text, ''))]
    return known[:k] or continue_text(models, 0, [], 3, k, Choice(top_k=20), seed=1)


def append(models: LoadedModels, words: Sequence[str], text: str, word: str) -> str:
    """Appends a word, as returned by `models.show`, to a text.

    If the token is only part of a character, the mixture's most likely next tokens complete the character.

    Args:
        models: The models.
        words: The tokens in the text.
        text: The text.
        word: The word.
    """
    vocabulary, chosen = models.vocabulary, models.vocabulary.find(word)
    if chosen is None:
        return join(models, text, word)
    if not vocabulary.tokenizer.is_lossless:
        spelled = f'{word} ' if word in SPECIAL_TOKENS else vocabulary.tokenizer.utf8(word).decode(errors='ignore')
        ends_word = spelled.strip() != '' and spelled.endswith(' ')
        return join(models, text, spelled.strip()) if ends_word else f'{text}{spelled}'.lstrip()
    tokens = [*words, vocabulary.words[chosen]]
    for _ in range(_MAX_COMPLETING):
        if not vocabulary.tokenizer.decode(tokens).endswith(REPLACEMENT):
            break
        (ids_T,) = generation.sample(models.mixture, models.encode_prompt(tokens), 1, 1, generation.GREEDY)
        tokens += vocabulary.decode(ids_T)
    return vocabulary.tokenizer.decode(tokens)


def join(models: LoadedModels, text: str, more: str) -> str:
    """Appends generated words to a text. Separates words by a space. Other tokens contain their own spaces.

    If the corpus separates the possessive 's from its noun, no space is inserted between them, because an 's after a
    space would be split again at the apostrophe.
    """
    tokenizer = models.vocabulary.tokenizer
    if tokenizer.is_lossless:
        return text + more
    kept = text.rstrip()
    added = f'{text} {more}'[len(kept) :]
    return (kept + (_POSSESSIVE.sub('', added) if getattr(tokenizer, 'split_possessive', False) else added)).strip()


def describe_probability(p: float) -> str:
    """Formats a probability as a percentage, or as `1 in N` below 0.1%."""
    if p >= 0.001:
        return f'{p:.1%}'
    return f'1 in {1 / p:,.0f}' if p > 0 else 'never'


def _likeliest(models: LoadedModels, log_p_V: np.ndarray, k: int) -> WeightedWords:
    """Returns the k most likely words with their probabilities."""
    best_K = generation.largest(log_p_V, k)
    return list(zip(models.show(best_K), np.exp(log_p_V[best_K]).tolist()))


def _with_mixture(
    models: LoadedModels, weights_M: Sequence[float] | None, log_p: Sequence[np.ndarray] | np.ndarray
) -> list[tuple[str, np.ndarray]]:
    """Returns the result of each model by name. If there are several models, the mixture comes first."""
    named = list(zip(models.names, log_p))
    if len(named) == 1:
        return named
    weights = weights_M or initial_weights(models)
    with np.errstate(divide='ignore'):  # a weight may be 0
        log_weights_M = np.log(np.array(weights) / sum(weights))
    return [('mixture', np.logaddexp.reduce([w + x for w, x in zip(log_weights_M, log_p)])), *named]


@functools.lru_cache(NUM_CACHED)
def _next_word(model: LanguageModel, ids: tuple[int, ...]) -> np.ndarray:
    """Returns the float64 log P of each word in the vocabulary after a text.

    Results are cached, so the models do not run again when the mixture weights change.
    """
    return model.next_word(np.array([ids], np.int32))[0].astype(np.float64)


def _score_line(model: LanguageModel, line: np.ndarray) -> np.ndarray:
    """Returns the float32 log P of each word in a line. Pads long lines to a few lengths to limit compilations."""
    if len(line) <= MAX_SHORT:
        return next(iter(model.score_lines([line])))
    blocks = 1 << (-(-len(line) // SCORING_BATCH) - 1).bit_length()
    return model.score(np.pad(line, (0, blocks * SCORING_BATCH - len(line))))[: len(line)]
