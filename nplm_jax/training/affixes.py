"""Affix rows, through which words with the same prefix or suffix share a part of their parameters in training.

While a network is trained, the row of word w in C, and in output matrices with one row per word, is
c_w + (sum of a_f over the affixes f of w) / 2. The matrix c has one row per word, and the matrix a has one row per
affix. Rare words therefore learn from other words. The rows of affixes start at zero. For evaluation and after
training, the rows of words are replaced with these sums, so that a trained network contains no affixes.

The affixes of a word are its prefixes of two to four letters and its suffixes of one to three letters, followed by a
mark of the end of the word. A prefix may be the whole word. Affixes of a single word are omitted.

Dims: V vocabulary, D columns of a matrix, F affixes, K affixes per word, N gathered words.

References:
    Bojanowski et al., Enriching word vectors with subword information, TACL 2017 (sums over all substrings).
"""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.stream import SPECIAL_TOKENS
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import EMBEDDING, Params

_WEIGHT = 0.5  # the weight of the sum over the affixes


def find_affixes(words: Sequence[str]) -> tuple[np.ndarray, int]:
    """Finds the affixes that several words share.

    Returns:
        A tuple (indices, F) of the indices of the affixes of each word, int32, V x K, and the number of affixes. Rows
        are padded with F, which is an invalid index.
    """
    affixes = [[] if word in SPECIAL_TOKENS else _affixes(word) for word in words]
    counts = collections.Counter(affix for of_word in affixes for affix in of_word)
    ids = {affix: i for i, affix in enumerate(affix for affix, count in counts.items() if count > 1)}
    shared = [[ids[affix] for affix in of_word if affix in ids] for of_word in affixes]
    affixes_VxK = np.full((len(words), max(map(len, shared), default=0)), len(ids), np.int32)
    for row_K, of_word in zip(affixes_VxK, shared):
        row_K[: len(of_word)] = of_word
    return affixes_VxK, len(ids)


def _affixes(word: str) -> list[str]:
    marked = f'^{word}$'
    suffixes = [marked[-length:] for length in (2, 3, 4) if length <= len(marked)]
    return suffixes + [marked[:length] for length in (3, 4, 5) if length < len(marked)]


def name_of(table: str) -> str:
    """Returns the name of the affix rows of a matrix with one row per word."""
    return f'affixes_{table}'


def init(params: Params, network: Network, num_affixes: int) -> Params:
    """Adds affix rows to the initial parameters, unless there are no affixes."""
    tables = network.tables.of_words if network.output.takes_new_words else (EMBEDDING,)
    widths = {name: params[name].shape[1] for name in tables if num_affixes and jnp.ndim(params[name]) == 2}
    return params | {name_of(name): jnp.zeros((num_affixes, width)) for name, width in widths.items()}


def add_shared(rows: jax.Array, params: Params, table: str, ids: jax.Array, affixes_VxK: Any) -> jax.Array:
    """Adds the part that comes from the affixes to rows that were gathered from a table.

    Args:
        rows: The rows of the words, with shape `(*ids.shape, D)`.
        params: The parameters.
        table: The name of the table. If it has no affix rows, the rows are returned unchanged.
        ids: The word ids.
        affixes_VxK: The affixes of each word.
    """
    if name_of(table) not in params:
        return rows
    shared_FxD = params[name_of(table)]
    of_words = affixes_VxK.at[ids].get(mode='fill', fill_value=len(shared_FxD))  # a mesh pads the tables
    return rows + _WEIGHT * jnp.sum(shared_FxD.at[of_words].get(mode='fill', fill_value=0), axis=-2)


def gradient(rows_FxD: jax.Array, ids: Iterable[jax.Array], values: Iterable[jax.Array], affixes_VxK: Any) -> jax.Array:
    """Returns the gradient with respect to affix rows.

    Args:
        rows_FxD: The affix rows of a table.
        ids: The word ids of each part of a batch, int32, N.
        values: For each part, the gradients with respect to the rows of its words, N x D.
        affixes_VxK: The affixes of each word.
    """
    grads_FxD = jnp.zeros_like(rows_FxD)
    for ids_N, values_NxD in zip(ids, values):
        grads_FxD = grads_FxD.at[affixes_VxK[ids_N]].add(_WEIGHT * values_NxD[:, None, :], mode='drop')
    return grads_FxD


def fold(params: Params, affixes_VxK: Any) -> Params:
    """Returns the parameters without affix rows, which are added to the rows of the words."""
    tables = {name: params[name] for name in params if name_of(name) in params}
    others = {name: params[name] for name in params if name not in (*tables, *map(name_of, tables))}
    return others | {n: add_shared(x, params, n, jnp.arange(len(x)), affixes_VxK) for n, x in tables.items()}
