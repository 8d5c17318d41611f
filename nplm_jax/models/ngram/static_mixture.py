"""The linear interpolation of back-off models as one back-off model.

It has the n-grams of all models, each with p(h w) = sum over models i of weight_i P_i(w | h), where a model that lacks
the n-gram backs off, and back-off weights with which the probabilities sum to one. For these n-grams it equals
`mixture.Mixture`; for others it differs, because a context has one back-off weight, where the mixture has one of each
model. SRILM's `ngram -mix-lm` computes the same.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramTable
from nplm_jax.models.ngram.normalization import find_suffixes, log_p_of_words, ngram_words, normalize
from nplm_jax.models.ngram.scratch import Scratch, Writer
from nplm_jax.utils.mapped_arrays import release


@dataclasses.dataclass
class _Part:
    """A model, and what is known of the n-grams of the last order that was mixed.

    Attributes:
        model: The model.
        union: The node in the mixture of each of the model's n-grams; increasing.
        nodes: The node in the model of each of the mixture's n-grams, or -1.
        log_p: log P of each of the mixture's n-grams by the model, nats.
    """

    model: BackoffModel
    union: np.ndarray
    nodes: np.ndarray
    log_p: np.ndarray

    def ngrams(self, order: int, contexts: slice, size: int) -> tuple[int, np.ndarray]:
        """Returns the model's first n-gram after these contexts of the mixture, and the keys in the mixture of all."""
        if order > self.model.n:
            return 0, np.zeros(0, np.int64)
        keys = self.model.table.keys[order - 1]
        start, stop = np.searchsorted(keys, np.searchsorted(self.union, [contexts.start, contexts.stop]) * size)
        old_contexts, words = np.divmod(keys[start:stop], size)
        return int(start), self.union[old_contexts] * size + words


def interpolate(
    models: Sequence[BackoffModel], weights: Sequence[float], scratch: Scratch | None = None
) -> BackoffModel:
    """Returns one back-off model of the largest order.

    Args:
        models: Models of one vocabulary, each of which sums to one; the orders may differ.
        weights: The weight of each; they sum to one.
        scratch: Where large arrays are kept; None is the system's temporary folder.
    """
    scratch, words = scratch or Scratch(), np.arange(models[0].table.vocabulary_size)
    parts = [_Part(model, words, words, np.asarray(model.log_p[0])) for model in models]
    keys, log_p, suffixes = [words], [_mix([part.log_p for part in parts], weights)], np.zeros(len(words), np.int64)
    for k in range(2, max(model.n for model in models) + 1):
        lower = NgramTable(len(words), tuple(keys))
        writers = [scratch.writer(dtype) for dtype in (np.int64, np.int64, np.float64)]
        of_parts = [[scratch.writer(dtype) for dtype in (np.int64, np.int64, np.float64)] for _ in parts]
        size = 0
        for contexts in _blocks(parts, k, lower.size(k - 1), scratch.block):
            ngrams = [part.ngrams(k, contexts, len(words)) for part in parts]
            block_keys = np.unique(np.concatenate([part_keys for _, part_keys in ngrams]))
            block_suffixes = find_suffixes(lower, k, block_keys, suffixes)
            scores = []
            for part, (start, part_keys), part_writers in zip(parts, ngrams, of_parts):
                places = np.searchsorted(block_keys, part_keys)
                nodes = np.full(len(block_keys), -1)
                nodes[places] = start + np.arange(len(places))
                scores.append(_score(part, lower, k, block_keys, nodes, block_suffixes))
                _append(part_writers, (size + places, nodes, scores[-1]))
            _append(writers, (block_keys, block_suffixes, _mix(scores, weights)))
            size += len(block_keys)
        release(suffixes, *(array for part in parts for array in (part.union, part.nodes, part.log_p)))
        new_keys, suffixes, new_log_p = (writer.finish() for writer in writers)
        keys.append(new_keys)
        log_p.append(new_log_p)
        finished = ([writer.finish() for writer in part_writers] for part_writers in of_parts)
        parts = [_Part(part.model, *arrays) for part, arrays in zip(parts, finished)]
    return normalize(NgramTable(len(words), tuple(keys)), log_p, scratch)


def _blocks(parts: Sequence[_Part], order: int, num_contexts: int, size: int) -> Iterator[slice]:
    """Yields contexts of the mixture that about `size` n-grams of the largest model follow."""
    largest = max(parts, key=lambda part: part.model.table.size(order) if order <= part.model.n else 0)
    first = 0
    for block in largest.model.table.blocks(order, size):
        is_last = block.contexts.stop == len(largest.union)
        last = num_contexts if is_last else int(largest.union[block.contexts.stop])
        yield slice(first, last)
        first = last


def _score(
    part: _Part, lower: NgramTable, order: int, keys: np.ndarray, nodes: np.ndarray, suffixes: np.ndarray
) -> np.ndarray:
    """Returns log P of n-grams of the mixture by a model, nats.

    Args:
        part: The model.
        lower: The mixture's n-grams of the orders below.
        order: The order.
        keys: The n-grams.
        nodes: The node of each in the model, or -1.
        suffixes: The node of each without its first word in `lower`, or -1.
    """
    model, (contexts, words) = part.model, np.divmod(keys, lower.vocabulary_size)
    log_p, missing = part.log_p[suffixes], np.flatnonzero(suffixes < 0)
    if len(missing):
        words_BxK = np.column_stack([ngram_words(lower, order - 1, contexts[missing]), words[missing]])
        log_p[missing] = log_p_of_words(model, words_BxK[:, 1:])
    if order > model.n:
        return log_p
    old_contexts = part.nodes[contexts]
    backed_off = log_p + np.where(old_contexts >= 0, model.log_b[order - 2][old_contexts], 0)
    return np.where(nodes >= 0, model.log_p[order - 1][nodes], backed_off)


def _mix(log_p: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Returns the log of the weighted sum of probabilities, nats."""
    with np.errstate(divide='ignore'):
        return np.log(sum(weight * np.exp(part) for weight, part in zip(weights, log_p)))


def _append(writers: Sequence[Writer], pieces: Sequence[np.ndarray]) -> None:
    """Appends a piece to each writer."""
    for writer, piece in zip(writers, pieces):
        writer.append(piece)
