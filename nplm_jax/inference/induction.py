"""New words for a trained network, without training: features from the words that could stand in their place.

Section 5 of the paper: the features of a new word are a convex combination of those of the words that could stand in
its place. A new word w was seen k times, the i-th time between the words before_i and after_i. Its rows in C and in the
output matrices are sums over the known words v with the weights

    q(v) = product_i [P(v | before_i) / P(v) * P(after_i | before_i, v)], divided by its sum over the candidates v
    (the last factor if words after are evidence),

by Bayes' rule the probability that v is the word in all these contexts, with a uniform prior. `Weighting(rule='mean')`
has the weights of the paper, q(v) = mean_i P(v | before_i).

The count of w sets its bias b_w: over contexts that the network itself writes, the mean of P(w | context) is the share
of w in the text. The bias of <rare>, the former symbol of w, falls by as much: what w gains, <rare> loses.

Dims: W new words, V known words, K candidates, B contexts, D width of a row, S contexts of a block.
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
from nplm_jax.inference.generation import Choice, sample
from nplm_jax.inference.loaded_model import LoadedModel, check_loaded
from nplm_jax.models.language_model import LanguageModel, reorder
from nplm_jax.models.network import Network
from nplm_jax.models.network_reading import jit_float32
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS, Features, Params
from nplm_jax.utils.errors import BadInput, require

CONTEXT_WORDS = 63  # words before a new word that a network without an order reads: with <rare>, four times 16
BLOCK = 64  # contexts of one array of B x V
# The contexts that the bias is fitted on: the last words of sequences that the network writes.
SEQUENCES, FIRST_WORDS, LAST_WORDS, SEED = 64, 16, 48, 1
BIAS_ITERATIONS = 3


@dataclasses.dataclass(frozen=True)
class Weighting:
    """How the weights of the known words follow from the contexts of a new word.

    Attributes:
        rule: `posterior` for the module's equation, `mean` for the paper's, which uses no other attribute.
        following: Number of words after the new word that are evidence. Each costs the probabilities of K contexts for
            each occurrence.
        candidates: K, the largest number of words with a weight: those that the words before fit best.
        min_count: Words with a lower count are no candidates, since training hardly moved their features. If fewer than
            `candidates` words have it, the most frequent words are candidates.
    """

    rule: Literal['posterior', 'mean'] = 'posterior'
    following: int = 0
    candidates: int = 1024
    min_count: int = 20

    def __post_init__(self) -> None:
        require(self.rule in ('posterior', 'mean'), 'rule', self.rule, 'must be posterior or mean')
        require(self.following >= 0, 'following', self.following, 'must be 0 or more words')
        require(self.candidates >= 1, 'candidates', self.candidates, 'must be 1 or more words')


class Occurrence(NamedTuple):
    """The words around an occurrence of a new word.

    Attributes:
        before: Ids of the words before it, in reading order, int32.
        after: Ids of the words after it.
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
    """Adds new words to a trained network, from the lines in which they were seen. Nothing is trained.

    Args:
        run: A trained network.
        words: The new words, or one word.
        lines: Lines of words, tokenized as the corpus was (`Vocabulary.tokenize`).
        counts: The occurrences of new words in the text that the vocabulary counts; default: those in `lines`.
        weighting: How the weights follow from the contexts.

    Returns:
        The network and the vocabulary with the new words, whose ids follow the last one.

    Raises:
        BadInput: The model is no network or cannot take words, or a word is known already or in no line.

    References:
        The paper, section 5, on words outside the vocabulary.
    """
    check_loaded('run', run)
    words = [words] if isinstance(words, str) else list(words)
    require(len(words) > 0, 'words', words, 'must be one new word or more')
    vocabulary = run.vocabulary
    network_model = check_model(run.model, vocabulary)
    seen = [find_occurrences(vocabulary, word, lines) for word in words]
    for word, occurrences in zip(words, seen):
        require(word not in vocabulary.ids, 'word', word, 'is known already; must be a word outside the vocabulary')
        require(words.count(word) == 1, 'word', word, 'must be given once')
        require(len(occurrences) > 0, 'word', word, f'occurs in none of the {len(lines):,} lines; must occur in one')
    counts_W = [(counts or {}).get(word, len(occurrences)) for word, occurrences in zip(words, seen)]
    for word, count in zip(words, counts_W):
        require(count > 0, f'counts[{word!r}]', count, 'must be 1 or more occurrences')
    weights_WxV = word_weights(network_model, vocabulary, seen, weighting)
    grown, model = append_words(network_model, vocabulary, words, counts_W, weights_WxV)
    return LoadedModel(run.settings, grown, model)


def check_model(model: LanguageModel, vocabulary: Vocabulary) -> NeuralLanguageModel:
    """Returns the model. Raises BadInput unless it is a network over this vocabulary that can take new words."""
    if not isinstance(model, NeuralLanguageModel):
        raise BadInput(
            'model', 'must be one network; other models have no features of words', value=type(model).__name__
        )
    output = model.network.output
    allowed = 'cannot take new words; the networks of output.kind full, sampled and nce can'
    require(output.takes_new_words, 'output layer', type(output).__name__, allowed)
    size = model.network.vocabulary_size
    require(size == len(vocabulary), 'vocabulary', len(vocabulary), f'must have the {size:,} words of the network')
    return model


def find_occurrences(vocabulary: Vocabulary, word: str, lines: Sequence[Sequence[str]]) -> list[Occurrence]:
    """Returns the words around each occurrence of a new word."""
    occurrences = []
    for line in lines:
        if word in line:
            ids_T = vocabulary.encode(line)
            occurrences += [Occurrence(ids_T[:t], ids_T[t + 1 :]) for t, other in enumerate(line) if other == word]
    return occurrences


def word_weights(
    model: NeuralLanguageModel,
    vocabulary: Vocabulary,
    seen: Sequence[Sequence[Occurrence]],
    weighting: Weighting = Weighting(),
) -> np.ndarray:
    """Returns the weights of the known words for each new word, float64, W x V; each row sums to one.

    Args:
        model: The network.
        vocabulary: Its vocabulary, for the counts.
        seen: The occurrences of each new word.
        weighting: How the weights follow from them.
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
    """Returns the network and the parameters with more words, whose ids follow the last one.

    Args:
        network: A network whose output layer takes new words.
        params: Its parameters.
        rows: The rows of the new words, of each of `Network.tables.of_words`.
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
    """Adds words whose rows are weighted means of the known words' rows, with biases that fit their counts.

    Args:
        model: The network.
        vocabulary: Its vocabulary.
        words: The new words.
        counts_W: Their occurrences in the text that the vocabulary counts.
        weights_WxV: The weights of the known words; each row sums to one.

    Returns:
        The vocabulary and the network with the new words.
    """
    num_rare = vocabulary.counts[RARE_ID]
    still_rare = max(num_rare - sum(counts_W), 0)
    log_share_W = np.log(np.asarray(counts_W, np.float64)) - np.log(sum(vocabulary.counts))
    mean = functools.partial(jnp.matmul, jnp.asarray(weights_WxV, jnp.float32), precision='float32')
    rows = {name: mean(model.params[name]) for name in model.network.tables.of_words if name != BIAS}
    # A first guess, which takes as the score of a word less its log-frequency what it is in the mean of the words.
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
    model: NeuralLanguageModel,
    seen: Sequence[Sequence[Occurrence]],
    function: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Returns for each new word the sum of a function of log P(v | before) over its occurrences, float64, W x V."""
    sums_WxV = np.zeros((len(seen), model.network.vocabulary_size))
    contexts = [(w, _context(model, occurrence)) for w, occurrences in enumerate(seen) for occurrence in occurrences]
    by_length = sorted(contexts, key=lambda pair: len(pair[1]))
    for _, group in itertools.groupby(by_length, key=lambda pair: len(pair[1])):  # an array has contexts of one length
        pairs = list(group)
        for first in range(0, len(pairs), BLOCK):
            words_B, contexts_B = zip(*pairs[first : first + BLOCK])
            log_p_BxV = model.next_word(np.stack(contexts_B)).astype(np.float64)
            np.add.at(sums_WxV, np.asarray(words_B), function(log_p_BxV))
    return sums_WxV


def _context(model: NeuralLanguageModel, occurrence: Occurrence) -> np.ndarray:
    """Returns the words before an occurrence that the network reads: as many as its order says, at most."""
    size = CONTEXT_WORDS if model.n is None else model.n - 1
    return occurrence.before[max(0, len(occurrence.before) - size) :]


def _log_p_after(model: NeuralLanguageModel, occurrence: Occurrence, ids_K: np.ndarray, following: int) -> np.ndarray:
    """Returns log P(the next words | the words before, v) for each candidate v in place of the new word, K, nats."""
    after = occurrence.after[:following]
    log_p_K = np.zeros(len(ids_K))
    if not len(after):
        return log_p_K
    state = reorder(model.prefill(_context(model, occurrence)[None]), np.zeros(len(ids_K), np.int32))
    next_ids_K = ids_K.astype(np.int32)
    for word in after:
        state, next_ids_K = model.advance(state, next_ids_K), np.full(len(ids_K), word, np.int32)
        log_p_K -= np.asarray(nll(model.network, model.params, state.features, next_ids_K))
    return log_p_K


@functools.lru_cache(maxsize=1)  # further words for the same network need the same
def _sampled_features(model: NeuralLanguageModel) -> list[Features]:
    """Returns the features after the words of sequences that the network writes, one block for each position."""
    choice = Choice(rare=True)
    ids_SxT = sample(model, np.zeros(0, np.int32), FIRST_WORDS + LAST_WORDS, SEQUENCES, choice, seed=SEED)
    state, blocks = model.prefill(ids_SxT[:, :FIRST_WORDS]), []
    for t in range(FIRST_WORDS, FIRST_WORDS + LAST_WORDS):
        state = model.advance(state, ids_SxT[:, t])
        blocks.append(state.features)
    return blocks


def _mean_probabilities(network: Network, params: Params, blocks: Sequence[Features], ids: np.ndarray) -> np.ndarray:
    """Returns the mean probability of some words over contexts that are given by their features, float64."""
    return np.mean([np.asarray(_block_mean(network, params, features, ids), np.float64) for features in blocks], axis=0)


@jit_float32
def _block_mean(network: Network, params: Params, features: Features, ids: jax.Array) -> jax.Array:
    return jnp.mean(jnp.exp(network.output.log_probabilities(params, features)[:, ids]), axis=0)


@jit_float32
def nll(network: Network, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target | features) of each example, B, nats: `OutputLayer.nll`, compiled."""
    return network.output.nll(params, features, targets_B)
