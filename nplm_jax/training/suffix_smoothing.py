"""Suffix smoothing, which interpolates the row of a rare word with the mean row of the words that share its suffix.

Let c_w be the row of word w in a table with one row per word, n_w its training count and a_w = n_w / (n_w + k). The
smoothed row is a_w c_w + (1 - a_w) mu(s), where s consists of the last four letters of w. The mean mu(s) over words
with suffix s is itself smoothed with the mean of the next shorter suffix, starting at s = '':
mu(s) = (sum over w with suffix s of a_w c_w + k mu(s[1:])) / (sum of a_w + k).

Dims: V vocabulary, D columns, E suffixes.

References:
    Brants, TnT: a statistical part-of-speech tagger, 2000 (the same back-off over suffixes for unknown words).
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from nplm_jax.data import mapped_arrays
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import RARE_ID
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import EMBEDDING, Params

MAX_LETTERS = 4  # maximum length of a suffix


def smooth(network: Network, params: Params, data: Dataset, k: float) -> Params:
    """Smooths the matrices with one row per word: C and the output matrices.

    If lines are read independently of each other, every line begins with the rare-word symbol; see
    `data.batches.mark_lines`. The counts with which C is smoothed include these symbols.

    Args:
        network: The network, with a softmax over all words as its output layer.
        params: The parameters of the network.
        data: The corpus, which provides the vocabulary and the training counts.
        k: The count at which a word's own row and the mean of its suffix have equal weights.

    Returns:
        The parameters with smoothed matrices.
    """
    words = data.vocabulary.words
    counts_V = mapped_arrays.bincount(data.train_words, len(words))
    num_lines = 0 if network.line_end is None else counts_V[network.line_end]
    read_V = counts_V + num_lines * (np.arange(len(words)) == RARE_ID)
    tables = {name: np.asarray(params[name]) for name in network.tables.of_words if np.ndim(params[name]) > 1}
    counts = dict.fromkeys(tables, counts_V) | {EMBEDDING: read_V}
    return params | {name: jnp.asarray(smooth_rows(table, words, counts[name], k)) for name, table in tables.items()}


def smooth_rows(table_VxD: np.ndarray, words: Sequence[str], counts_V: np.ndarray, k: float) -> np.ndarray:
    """Smooths the rows of a table. The dtype of the table is preserved.

    Args:
        table_VxD: A table with one row per word.
        words: The words in order of their ids.
        counts_V: The training count of each word. At least one must be positive.
        k: The count at which a word's own row and the mean of its suffix have equal weights, above 0.
    """
    weights_Vx1 = (counts_V / (counts_V + k))[:, None]
    weighted_VxD = weights_Vx1 * table_VxD.astype(np.float64)
    means_VxD = np.tile(weighted_VxD.sum(axis=0) / weights_Vx1.sum(), (len(words), 1))  # the mean of each word's suffix
    for length in range(1, MAX_LETTERS + 1):
        ids = np.flatnonzero([len(word) >= length for word in words])
        letters = [word[-length:] for word in words if len(word) >= length]
        _, first, endings = np.unique(np.array(letters, str), return_index=True, return_inverse=True)
        sums_ExD, totals_Ex1 = np.zeros((len(first), table_VxD.shape[1])), np.zeros((len(first), 1))
        np.add.at(sums_ExD, endings, weighted_VxD[ids])
        np.add.at(totals_Ex1, endings, weights_Vx1[ids])
        means_ExD = (sums_ExD + k * means_VxD[ids[first]]) / (totals_Ex1 + k)
        means_VxD[ids] = means_ExD[endings]
    return (weighted_VxD + (1 - weights_Vx1) * means_VxD).astype(table_VxD.dtype)
