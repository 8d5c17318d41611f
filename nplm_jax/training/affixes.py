"""Affix rows, through which words with the same prefix or suffix share a part of their word features in training.

While a network is trained, the features of word w are C_w + (sum of A_f over the affixes f of w) / 2, where A contains
one row per affix. Rare words therefore learn from other words. The rows of A start at zero. For evaluation and after
training, each row of C is replaced with this sum, so that a trained network contains no affixes.

The affixes of a word are its prefixes of two to four letters and its suffixes of one to three letters, followed by a
mark of the end of the word. A prefix may be the whole word. Affixes of a single word are omitted.

Dims: V vocabulary, M word features, F affixes, K affixes per word, N gathered words.

References:
    Bojanowski et al., Enriching word vectors with subword information, TACL 2017 (sums over all substrings).
"""

import collections
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.stream import SPECIAL_TOKENS
from nplm_jax.outputs.output_layer import EMBEDDING, Params

AFFIX_ROWS = 'A_FxM'
_WEIGHT = 0.5  # the weight of the sum over the affixes


def find_affixes(words: Sequence[str]) -> np.ndarray:
    """Returns the indices of the affixes of each word, int32, V x K.

    Rows are padded with F, the number of affixes, which is an invalid index.
    """
    affixes = [[] if word in SPECIAL_TOKENS else _affixes(word) for word in words]
    counts = collections.Counter(affix for of_word in affixes for affix in of_word)
    ids = {affix: i for i, affix in enumerate(affix for affix, count in counts.items() if count > 1)}
    shared = [[ids[affix] for affix in of_word if affix in ids] for of_word in affixes]
    affixes_VxK = np.full((len(words), max(map(len, shared), default=0)), len(ids), np.int32)
    for row_K, of_word in zip(affixes_VxK, shared):
        row_K[: len(of_word)] = of_word
    return affixes_VxK


def _affixes(word: str) -> list[str]:
    marked = f'^{word}$'
    suffixes = [marked[-length:] for length in (2, 3, 4) if length <= len(marked)]
    return suffixes + [marked[:length] for length in (3, 4, 5) if length < len(marked)]


def init(params: Params, num_affixes: int) -> Params:
    """Adds the affix rows to the parameters if there are any affixes."""
    return params | {AFFIX_ROWS: jnp.zeros((num_affixes, params[EMBEDDING].shape[1]))} if num_affixes else params


def shared_features(params: Params, ids: jax.Array, affixes_VxK: jax.Array | None) -> jax.Array | float:
    """Returns the part of the features of words that comes from their affixes, with shape (*ids.shape, M), or 0."""
    if AFFIX_ROWS not in params:
        return 0.0
    assert affixes_VxK is not None
    return _WEIGHT * jnp.sum(params[AFFIX_ROWS].at[affixes_VxK[ids]].get(mode='fill', fill_value=0), axis=-2)


def gradient(params: Params, ids: Sequence[jax.Array], values: Sequence[jax.Array], affixes_VxK: Any) -> jax.Array:
    """Returns the gradient with respect to the affix rows.

    Args:
        params: The parameters.
        ids: The word ids of each part of a batch, int32, N.
        values: For each part, the gradients with respect to the features of its words, N x M.
        affixes_VxK: The affixes of each word.
    """
    grads_FxM = jnp.zeros_like(params[AFFIX_ROWS])
    for ids_N, values_NxM in zip(ids, values):
        grads_FxM = grads_FxM.at[affixes_VxK[ids_N]].add(_WEIGHT * values_NxM[:, None, :], mode='drop')
    return grads_FxM


def fold(params: Params, affixes_VxK: jax.Array | None) -> Params:
    """Returns the parameters without affix rows, in which C contains the features of all words."""
    if AFFIX_ROWS not in params:
        return params
    C_VxM = params[EMBEDDING]
    folded = params | {EMBEDDING: C_VxM + shared_features(params, jnp.arange(len(C_VxM)), affixes_VxK)}
    return {name: value for name, value in folded.items() if name != AFFIX_ROWS}
