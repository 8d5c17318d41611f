"""Restricts back-off models to a subset of their words, in the same way as SRILM's `-limit-vocab`."""

import numpy as np

from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramTable


def keep_words(model: BackoffModel, is_kept_V: np.ndarray) -> BackoffModel:
    """Removes words, and all n-grams that contain them, from a model.

    The probabilities and back-off weights of the remaining n-grams do not change, so the probabilities no longer sum to
    one. Orders without n-grams are dropped, unless the n-grams of the order below have back-off weights.

    Args:
        model: The model.
        is_kept_V: Whether to keep each word; kept words are renumbered in the same order.
    """
    table, new_size = model.table, int(is_kept_V.sum())
    new_ids_V = new_nodes = np.cumsum(is_kept_V) - 1
    masks, keys = [is_kept_V], [np.arange(new_size)]
    for k in range(2, model.n + 1):
        prefixes, last = table.prefixes(k), table.keys[k - 1] % table.vocabulary_size
        is_kept = masks[-1][prefixes] & is_kept_V[last]
        is_empty = not is_kept.any()
        if is_empty and not np.asarray(model.log_b[k - 2])[masks[-1]].any():
            break
        keys.append(new_nodes[prefixes[is_kept]] * new_size + new_ids_V[last[is_kept]])
        masks.append(is_kept)
        if is_empty:
            break
        new_nodes = np.cumsum(is_kept) - 1
    log_p = [np.asarray(x)[mask] for x, mask in zip(model.log_p, masks)]
    log_b = [np.asarray(x)[mask] for x, mask in zip(model.log_b, masks[:-1])]
    return BackoffModel(NgramTable(new_size, tuple(keys)), log_p, log_b)
