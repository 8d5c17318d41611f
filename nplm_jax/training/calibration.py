"""Calibrates the output bias b on validation words, with one offset for each group of words with similar counts.

Trained networks misestimate the probability of words that were rare or absent in training. Let g(w) be the group of
word w. The calibrated model is P'(w) = exp(d_g(w)) P(w) / Z, which is equivalent to adding d_g(w) to b_w. The offsets d
minimize the mean NLL of T validation words plus |d|^2 / 2T. This objective is convex.

Dims: V vocabulary, G groups, T validation words used for the fit.

References:
    Guo et al., On calibration of modern neural networks, 2017 (vector scaling; this module uses only its bias, with
    one value per group).
"""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from nplm_jax.data import mapped_arrays
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.distributed import multihost
from nplm_jax.inference.perplexity import sample_spans
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS, Params
from nplm_jax.utils.errors import NonFiniteError

MAX_WORDS = 50_000  # maximum number of validation words used for the fit; see `sample_spans`
_MIN_PROBABILITY = 1e-30  # lower bound of group probabilities, which may underflow to zero in float32


def calibrate(model: NeuralLanguageModel, data: Dataset) -> Params:
    """Calibrates the output bias b of a model on validation words, and returns all parameters of the model.

    Args:
        model: The model to calibrate.
        data: The corpus. Words are grouped by their counts in the training data, and the offsets are fitted to the
            validation words.

    Raises:
        NonFiniteError: A probability is not finite.
    """
    groups_V = group_by_count(mapped_arrays.bincount(data.train_words, len(data.vocabulary)))
    spans = calibration_spans(data)
    probabilities_TxG = np.concatenate([model.group_probabilities(data.tokens_T, span, groups_V) for span in spans])
    words_T = np.concatenate([np.asarray(data.tokens_T[span.start : span.stop]) for span in spans])
    d_G = fit_offsets(probabilities_TxG, groups_V[words_T])
    d_V = multihost.broadcast_from_primary(d_G.astype(np.float32)[groups_V])
    b_V = jnp.asarray(model.placed_params[BIAS])
    d_V = np.pad(d_V, (0, len(b_V) - len(d_V)))  # b may be padded for a mesh
    return model.placed_params | {BIAS: jax.device_put(b_V + d_V, b_V.sharding)}


def calibration_spans(data: Dataset) -> list[Span]:
    """Returns the spans of validation words used for the fit."""
    return sample_spans(data.valid, MAX_WORDS)


def num_words(data: Dataset) -> int:
    """Returns the number of validation words used for the fit."""
    return sum(map(len, calibration_spans(data)))


def group_by_count(counts_V: np.ndarray) -> np.ndarray:
    """Assigns each word to a group by its count, so that the counts in a group differ by less than a factor of sqrt(2).

    Returns:
        The group of each word, int64: 0 if its count is 0, and 1 + floor(2 log2 count) otherwise.

    Examples:
        >>> group_by_count(np.array([0, 1, 2, 3, 4, 5, 6, 7, 8]))
        array([0, 1, 3, 4, 5, 5, 6, 6, 7])
    """
    doublings_V = np.log2(np.maximum(counts_V, 1))
    return np.where(np.asarray(counts_V) == 0, 0, 1 + np.floor(2 * doublings_V)).astype(np.int64)


def fit_offsets(probabilities_TxG: np.ndarray, groups_T: np.ndarray) -> np.ndarray:
    """Returns the offsets d that minimize the mean of log(sum_g P_g exp d_g) - d_g(w) over words w, plus |d|^2 / 2T.

    The last term corresponds to a Gaussian prior with variance 1. It keeps the offsets of groups without validation
    words finite.

    Args:
        probabilities_TxG: The predicted probability of each group at the position of each word.
        groups_T: The group of each word, from 0 to G - 1.

    Returns:
        The offset of each group, float64, G, nats.

    Raises:
        NonFiniteError: A probability is not finite.
    """
    if not np.isfinite(probabilities_TxG).all():
        raise NonFiniteError('train.calibrate: log-probabilities of validation words are not finite')
    T, G = probabilities_TxG.shape
    probabilities_TxG = np.maximum(probabilities_TxG.astype(np.float64), _MIN_PROBABILITY)
    shares_G = np.bincount(groups_T, minlength=G) / T

    def loss_and_gradient(d_G: np.ndarray) -> tuple[float, np.ndarray]:
        largest = d_G.max()
        scaled_TxG = probabilities_TxG * np.exp(d_G - largest)
        sums_Tx1 = scaled_TxG.sum(axis=1, keepdims=True)
        loss = largest + np.log(sums_Tx1).mean() - shares_G @ d_G + d_G @ d_G / (2 * T)
        return loss, (scaled_TxG / sums_Tx1).mean(axis=0) - shares_G + d_G / T

    return scipy.optimize.minimize(loss_and_gradient, np.zeros(G), jac=True, method='L-BFGS-B', tol=1e-9).x
