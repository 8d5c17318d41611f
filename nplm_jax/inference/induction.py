"""Adds new words to a trained network without training.

Section 5 of the paper proposes to initialize the features of a new word with a convex combination of the features of
words that could occur in the same contexts. Let a new word w occur k times, the i-th time between the words before_i
and after_i. Its rows in C and in the output matrices are averages over the known words v with weights proportional to

    q(v) = product_i P(v | before_i) / P(v) * P(after_i | before_i, v),

normalized over the candidates v. The last factor is included only if following words are used as evidence. By Bayes'
rule, q(v) is the posterior probability of v in all these contexts, under a uniform prior. `Weighting(rule='mean')`
selects the weights of the paper, q(v) = mean_i P(v | before_i).

The bias b_w is fitted so that the mean of P(w | context) over contexts sampled from the network equals the relative
frequency of w in the text. The bias of <rare>, which represented w before, is lowered accordingly.

Dims: W new words, V known words, K candidates, B contexts, S sampled sequences, T words in each.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.frequencies import log_frequencies
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.generation import Choice, encode_prompt, sample
from nplm_jax.inference.loaded_model import LoadedModel, check_loaded
from nplm_jax.models.language_model import LanguageModel, reorder
from nplm_jax.models.network import Network
from nplm_jax.models.network_reading import jit_float32
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS, Features, Params
from nplm_jax.utils.errors import BadInput, require

CONTEXT_WORDS = 63  # context length for networks of unlimited order; 64 with the initial <rare>
BLOCK = 64  # maximum number of contexts in a batch (B)
# Biases are fitted to sampled contexts: those of the last LAST_WORDS words in each of SEQUENCES sequences.
SEQUENCES, FIRST_WORDS, LAST_WORDS, SEED = 64, 16, 48, 1
BIAS_ITERATIONS = 3


@dataclasses.dataclass(frozen=True)
class Weighting:
    """Options for weighting the known words.

    Attributes:
        rule: `posterior` for the weights q(v) in the module docstring, or `mean` for the weights of the paper. With
            `mean`, all other options are ignored.
        following: The number of following words used as evidence. Computation time grows with K times this number.
        candidates: The maximum number K of known words with nonzero weights: those that best fit the preceding words.
        min_count: The minimum count of a candidate. The features of rarer words are poorly trained. If fewer than
            `candidates` words qualify, the most frequent words are candidates.
    """

    rule: Literal['posterior', 'mean'] = 'posterior'
    following: int = 0
    candidates: int = 1024
    min_count: int = 20

    def __post_init__(self) -> None:
        require(self.rule in ('posterior', 'mean'), 'rule', self.rule, 'must be posterior or mean')
        require(self.following >= 0, 'following', self.following, 'must be 0 or more')
        require(self.candidates >= 1, 'candidates', self.candidates, 'must be 1 or more')


class Occurrence(NamedTuple):
    """The context of an occurrence of a new word.

    Attributes:
        before: The ids of the preceding words, in reading order, int32.
        after: The ids of the following words, int32.
    """

    before: np.ndarray
    after: np.ndarray


def induce(
    run: LoadedModel,
    words: str | Sequence[str],
    lines: Sequence[Sequence[str]],
    counts: Mapping[str, int] | None = None,
    weighting: Weighting = Weighting(),
) -> LoadedModel:
    """Adds new words to a trained network without training, based on lines in which they occur.

    Args:
        run: A trained network.
        words: The new words, or one word.
        lines: Lines of words, tokenized like the corpus (`Vocabulary.tokenize`).
        counts: The counts of new words in the vocabulary's text. The default for each word is its count in `lines`.
        weighting: How the known words are weighted.

    Returns:
        A model whose network and vocabulary include the new words. Their ids follow those of the known words.

    Raises:
        BadInput: The model does not support new words, or a word is already known or does not occur in `lines`.

    References:
        Bengio et al., A neural probabilistic language model, JMLR 3, 2003, section 5, on out-of-vocabulary words.
    """
    check_loaded('run', run)
    words = [words] if isinstance(words, str) else list(words)
    require(len(words) > 0, 'words', words, 'must contain at least one new word')
    vocabulary = run.vocabulary
    network_model = check_model(run.model, vocabulary)
    seen = [find_occurrences(vocabulary, word, lines) for word in words]
    for word, occurrences in zip(words, seen):
        require(word not in vocabulary.ids, 'word', word, 'must not already be in the vocabulary')
        require(words.count(word) == 1, 'word', word, 'must not be repeated')
        require(len(occurrences) > 0, 'word', word, f'must occur in at least one of the {len(lines):,} lines')
    counts_W = [(counts or {}).get(word, len(occurrences)) for word, occurrences in zip(words, seen)]
    for word, count in zip(words, counts_W):
        require(count > 0, f'counts[{word!r}]', count, 'must be 1 or more')
    weights_WxV = word_weights(network_model, vocabulary, seen, weighting)
    grown, model = append_words(network_model, vocabulary, words, counts_W, weights_WxV)
    return LoadedModel(run.settings, grown, model)


def check_model(model: LanguageModel, vocabulary: Vocabulary) -> NeuralLanguageModel:
    """Returns the model if it is a network over this vocabulary that supports new words. Else, raises BadInput."""
    if not isinstance(model, NeuralLanguageModel):
        raise BadInput('model', 'must be a network; other models have no word features', value=type(model).__name__)
    output = model.network.output
    allowed = 'does not support new words; use output.kind=full, sampled or nce'
    require(output.takes_new_words, 'output layer', type(output).__name__, allowed)
    size = model.network.vocabulary_size
    require(size == len(vocabulary), 'vocabulary', len(vocabulary), f'must have the {size:,} words of the network')
    return model


def find_occurrences(vocabulary: Vocabulary, word: str, lines: Sequence[Sequence[str]]) -> list[Occurrence]:
    """Returns the context of each occurrence of a new word. Each line is preceded by the same context as a prompt."""
    occurrences = []
    for line in (line for line in lines if word in line):
        ids_T = encode_prompt(line, vocabulary)
        words = enumerate(line, len(ids_T) - len(line))
        occurrences += [Occurrence(ids_T[:t], ids_T[t + 1 :]) for t, other in words if other == word]
    return occurrences


def word_weights(
    model: NeuralLanguageModel,
    vocabulary: Vocabulary,
    seen: Sequence[Sequence[Occurrence]],
    weighting: Weighting = Weighting(),
) -> np.ndarray:
    """Computes the weights of known words for each new word.

    Args:
        model: The network to which the words are added.
        vocabulary: The vocabulary of the network, with counts.
        seen: The occurrences of each new word.
        weighting: How the known words are weighted.

    Returns:
        The weights, float64, W x V; each row sums to one.
    """
    if weighting.rule == 'mean':
        sums_WxV = _sum_over_contexts(model, seen, np.exp)
        return sums_WxV / sums_WxV.sum(axis=1, keepdims=True)
    counts_V, log_unigram_V = np.asarray(vocabulary.counts), log_frequencies(vocabulary.counts)
    scores_WxV = _sum_over_contexts(model, seen, lambda log_p_BxV: log_p_BxV - log_unigram_V)
    is_candidate_V = counts_V >= weighting.min_count
    num_candidates = min(weighting.candidates, len(counts_V))
    if is_candidate_V.sum() < num_candidates:
        is_candidate_V[np.argsort(-counts_V, kind='stable')[:num_candidates]] = True
    scores_WxV[:, ~is_candidate_V] = -np.inf
    weights_WxV = np.zeros_like(scores_WxV)
    for weights_V, scores_V, occurrences in zip(weights_WxV, scores_WxV, seen):
        ids_K = np.argsort(-scores_V, kind='stable')[:num_candidates]
        scores_K = scores_V[ids_K] + sum(_log_p_after(model, o, ids_K, weighting.following) for o in occurrences)
        unnormalized_K = np.exp(scores_K - scores_K.max())
        weights_V[ids_K] = unnormalized_K / unnormalized_K.sum()
    return weights_WxV


def append_rows(network: Network, params: Params, rows: Params) -> tuple[Network, Params]:
    """Appends rows for new words to the parameters of a network.

    Args:
        network: A network whose output layer supports new words.
        params: The parameters of the network.
        rows: The rows of the new words for each table in `Network.tables.of_words`.

    Returns:
        The network and the parameters with the new words. The ids of the new words follow those of the known words.
    """
    longer = {name: jnp.concatenate([params[name], rows[name]]) for name in network.tables.of_words}
    size = network.vocabulary_size + len(rows[BIAS])
    return dataclasses.replace(network, vocabulary_size=size), params | longer


def append_words(
    model: NeuralLanguageModel,
    vocabulary: Vocabulary,
    words: Sequence[str],
    counts_W: Sequence[int],
    weights_WxV: np.ndarray,
) -> tuple[Vocabulary, NeuralLanguageModel]:
    """Returns the vocabulary and the network with new words.

    Their rows are weighted averages of the rows of known words, and their biases are fitted to their counts.

    Args:
        model: The network to which the words are added.
        vocabulary: The vocabulary of the network.
        words: The new words.
        counts_W: The counts of the new words in the text from which the vocabulary was built.
        weights_WxV: The weights of the known words; each row sums to one.
    """
    num_rare = vocabulary.counts[RARE_ID]
    still_rare = max(num_rare - sum(counts_W), 0)
    log_share_W = np.log(np.asarray(counts_W, np.float64)) - np.log(sum(vocabulary.counts))
    mean = functools.partial(jnp.matmul, jnp.asarray(weights_WxV, jnp.float32), precision='float32')
    rows = {name: mean(model.params[name]) for name in model.network.tables.of_words if name != BIAS}
    # Initially, the bias minus the log frequency of a new word is the weighted mean of this difference for known words.
    rows[BIAS] = mean(model.params[BIAS] - log_frequencies(vocabulary.counts).astype(np.float32)) + log_share_W
    network, params = append_rows(model.network, model.params, rows)
    blocks = _sampled_features(model)
    log_rare = np.log(_mean_probabilities(model.network, model.params, blocks, np.asarray([RARE_ID])))
    log_rare += np.log(still_rare + 0.5) - np.log(num_rare + 0.5)
    target = np.concatenate([log_rare, log_share_W])
    ids = np.asarray([RARE_ID, *range(len(vocabulary), network.vocabulary_size)])
    for _ in range(BIAS_ITERATIONS):
        correction = target - np.log(_mean_probabilities(network, params, blocks, ids))
        params = params | {BIAS: params[BIAS].at[ids].add(correction.astype(np.float32))}
    counts = (still_rare, *vocabulary.counts[RARE_ID + 1 :], *map(int, counts_W))
    grown = dataclasses.replace(vocabulary, words=(*vocabulary.words, *words), counts=counts)
    return grown, NeuralLanguageModel(network, params)


def _sum_over_contexts(
    model: NeuralLanguageModel, seen: Sequence[Sequence[Occurrence]], function: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Sums a function of log P(v | before) over the occurrences of each new word. The result is float64, W x V."""
    sums_WxV = np.zeros((len(seen), model.network.vocabulary_size))
    contexts = [(w, _context(model, occurrence)) for w, occurrences in enumerate(seen) for occurrence in occurrences]
    by_length = sorted(contexts, key=lambda pair: len(pair[1]))
    for _, group in itertools.groupby(by_length, key=lambda pair: len(pair[1])):  # batches of contexts of equal length
        pairs = list(group)
        for first in range(0, len(pairs), BLOCK):
            words_B, contexts_B = zip(*pairs[first : first + BLOCK])
            log_p_BxV = model.next_word(np.stack(contexts_B)).astype(np.float64)
            np.add.at(sums_WxV, np.asarray(words_B), function(log_p_BxV))
    return sums_WxV


def _context(model: NeuralLanguageModel, occurrence: Occurrence) -> np.ndarray:
    """Returns the words before an occurrence, truncated to the number of words that the network reads."""
    size = CONTEXT_WORDS if model.n is None else model.n - 1
    return occurrence.before[max(0, len(occurrence.before) - size) :]


def _log_p_after(model: NeuralLanguageModel, occurrence: Occurrence, ids_K: np.ndarray, following: int) -> np.ndarray:
    """Returns log P(following words | preceding words, v) in nats for each candidate v in place of the new word."""
    log_p_K = np.zeros(len(ids_K))
    if not len(after := occurrence.after[:following]):
        return log_p_K
    state = reorder(model.prefill(_context(model, occurrence)[None]), np.zeros(len(ids_K), np.int32))
    next_ids_K = ids_K.astype(np.int32)
    for word in after:
        state, next_ids_K = model.advance(state, next_ids_K), np.full(len(ids_K), word, np.int32)
        log_p_K -= np.asarray(nll(model.network, model.params, state.features, next_ids_K))
    return log_p_K


@functools.lru_cache(maxsize=1)  # reused for all new words of a network
def _sampled_features(model: NeuralLanguageModel) -> list[Features]:
    """Samples sequences from the network, and returns the features at each of their last LAST_WORDS positions."""
    choice = Choice(rare=True)
    ids_SxT = sample(model, np.zeros(0, np.int32), FIRST_WORDS + LAST_WORDS, SEQUENCES, choice, seed=SEED)
    state, blocks = model.prefill(ids_SxT[:, :FIRST_WORDS]), []
    for t in range(FIRST_WORDS, FIRST_WORDS + LAST_WORDS):
        state = model.advance(state, ids_SxT[:, t])
        blocks.append(state.features)
    return blocks


def _mean_probabilities(network: Network, params: Params, blocks: Sequence[Features], ids: np.ndarray) -> np.ndarray:
    """Returns the float64 mean probability of each word in `ids` over the contexts with the given features."""
    return np.mean([np.asarray(_block_mean(network, params, features, ids), np.float64) for features in blocks], axis=0)


@jit_float32
def _block_mean(network: Network, params: Params, features: Features, ids: jax.Array) -> jax.Array:
    return jnp.mean(jnp.exp(network.output.log_probabilities(params, features)[:, ids]), axis=0)


@jit_float32
def nll(network: Network, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target | features) of each example in nats, computed by a compiled `OutputLayer.nll`."""
    return network.output.nll(params, features, targets_B)
