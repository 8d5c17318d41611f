"""Static linear interpolation of back-off models into one back-off model, as in SRILM's `ngram -mix-lm`.

The result contains the n-grams of all models, with p(h w) = sum over models i of weight_i P_i(w | h). A model without
the n-gram h w backs off to compute P_i(w | h). The back-off weights of the result are normalized. For n-grams in the
result, the probabilities are the same as in `mixture.Mixture`. For other n-grams, they may differ, because the result
has a single back-off weight per context instead of one per model.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from nplm_jax.ngram.backoff import BackoffModel, take
from nplm_jax.ngram.counts import Block, NgramTable
from nplm_jax.ngram.normalization import find_suffixes, log_p_of_words, ngram_words, normalize, require_sums_of_one
from nplm_jax.ngram.scratch import Scratch


@dataclasses.dataclass
class _Member:
    """A component model of the mixture, with its n-grams of the highest order mixed so far.

    Attributes:
        model: The model.
        union: The node in the mixture of each n-gram of the model, in increasing order.
        nodes: The node in the model of each n-gram of the mixture, or -1.
        log_p: log P of each n-gram of the mixture according to the model, nats.
    """

    model: BackoffModel
    union: np.ndarray
    nodes: np.ndarray
    log_p: np.ndarray

    def keys(self, order: int) -> np.ndarray:
        """Returns the mixture's keys for the model's n-grams of the next order."""
        if order > self.model.n:
            return np.zeros(0, np.int64)
        contexts, words = np.divmod(self.model.table.keys[order - 1], self.model.table.vocabulary_size)
        return self.union[contexts] * self.model.table.vocabulary_size + words


def interpolate(models: Sequence[BackoffModel], weights: Sequence[float]) -> BackoffModel:
    """Interpolates models into one back-off model, whose order is the highest order among the models.

    Args:
        models: Models with the same vocabulary; the orders may differ. Their probabilities sum to one, up to the
            rounding of numbers in a file, unless their weight is zero.
        weights: The weight of each model; they sum to one.

    Raises:
        BadInput: The probabilities of a model do not sum to one.
    """
    words = np.arange(models[0].table.vocabulary_size)
    members = [_Member(model, words, words, np.asarray(model.log_p[0])) for model in models]
    _mix_excesses([np.exp(member.log_p).sum(keepdims=True) - 1 for member in members], weights)
    keys, log_p, suffixes = (
        [words],
        [_mix([member.log_p for member in members], weights)],
        np.zeros(len(words), np.int64),
    )
    excesses = []
    for k in range(2, max(model.n for model in models) + 1):
        lower, keys_by_member = NgramTable(len(words), tuple(keys)), [member.keys(k) for member in members]
        keys.append(np.unique(np.concatenate(keys_by_member)))
        suffixes = find_suffixes(lower, k, keys[-1], suffixes)
        excesses_by_member = []
        for member, member_keys in zip(members, keys_by_member):
            union = np.searchsorted(keys[-1], member_keys)
            nodes = np.full(len(keys[-1]), -1)
            nodes[union] = np.arange(len(union))
            member.log_p, excess = _score(member, lower, k, keys[-1], nodes, suffixes)
            excesses_by_member.append(excess)
            member.union, member.nodes = union, nodes
        log_p.append(_mix([member.log_p for member in members], weights))
        excesses.append(_mix_excesses(excesses_by_member, weights))
    return normalize(NgramTable(len(words), tuple(keys)), log_p, Scratch(), excesses)


def _score(
    member: _Member, lower: NgramTable, order: int, keys: np.ndarray, nodes: np.ndarray, suffixes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Scores n-grams of the mixture with a model.

    Args:
        member: The model.
        lower: The mixture's n-grams of the lower orders.
        order: The order of the n-grams.
        keys: The keys of the n-grams in the mixture.
        nodes: The node of each n-gram in the model, or -1.
        suffixes: The suffix node of each n-gram in `lower`, or -1.

    Returns:
        Two arrays: log P of the n-grams, in nats; and, for each of their contexts, the amount by which the sum of the
        probabilities after the context exceeds one.
    """
    model, (contexts, words) = member.model, np.divmod(keys, lower.vocabulary_size)
    log_p, missing = member.log_p[suffixes], np.flatnonzero(suffixes < 0)
    if len(missing):
        words_BxK = np.column_stack([ngram_words(lower, order - 1, contexts[missing]), words[missing]])
        log_p[missing] = log_p_of_words(model, words_BxK[:, 1:])
    block = Block(slice(0, len(keys)), slice(0, lower.size(order - 1)), contexts)
    unseen = 1 - block.sum_by_context(np.exp(log_p))
    if order > model.n:
        return log_p, np.zeros_like(unseen)
    log_b = np.where(member.nodes >= 0, take(model.log_b[order - 2], member.nodes), 0)
    log_p = np.where(nodes >= 0, take(model.log_p[order - 1], nodes), log_p + log_b[contexts])
    return log_p, np.exp(log_b) * unseen - (1 - block.sum_by_context(np.exp(log_p)))


def _mix_excesses(excesses: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Returns the weighted sum of excesses over one. Raises BadInput if one is too large for a rounding error."""
    for excess, weight in zip(excesses, weights):
        if weight:
            require_sums_of_one(excess, '--to', 'arpa')
    return np.sum([weight * excess for weight, excess in zip(weights, excesses)], axis=0)


def _mix(log_p: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Returns the log of the weighted sum of probabilities, in nats."""
    with np.errstate(divide='ignore'):
        return np.log(sum(weight * np.exp(log_p_N) for weight, log_p_N in zip(weights, log_p)))
