"""Calibration of the output bias b on validation words: words seen equally often in training get their share there.

Training hardly tells a network how likely words are that it saw once or never. With g(w) the group of the words with
about the training count of w, the calibrated model is P'(w) = exp(d_g(w)) P(w) / Z, b_w := b_w + d_g(w). The d_g, one
number a group, minimise the NLL of validation words, a convex function. Dims: V vocabulary, G groups, T words.

References:
    Guo et al., On calibration of modern neural networks, 2017: scaling of logits, fitted on validation examples.
"""

import numpy as np
import scipy.optimize

from nplm_jax.config import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.distributed import multihost
from nplm_jax.inference.perplexity import sample_spans
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import BIAS, Params
from nplm_jax.outputs.registry import output_layer_class
from nplm_jax.utils import mapped_arrays
from nplm_jax.utils.errors import require

NUM_WORDS = 50_000  # validation words at most that d is fitted to, spread evenly


def check_settings(settings: Settings) -> None:
    """Raises BadInput where the output layer has no b with one number a word."""
    has_bias_a_word = output_layer_class(settings.output).takes_new_words
    allowed = 'must be full, sampled, nce or importance for train.calibrate=True'
    require(has_bias_a_word or not settings.train.calibrate, 'output.kind', settings.output.kind, allowed)


def calibrate(model: NeuralLanguageModel, data: Dataset) -> Params:
    """Returns the parameters of a network with the b that suits the validation words.

    Args:
        model: The network.
        data: Its corpus: the training words, which are counted, and the validation words.
    """
    groups_V = group_by_count(mapped_arrays.bincount(data.train_words, len(data.vocabulary)))
    spans = sample_spans(data.valid, NUM_WORDS)
    probabilities_TxG = np.concatenate([model.group_probabilities(data.tokens_T, span, groups_V) for span in spans])
    words_T = np.concatenate([np.asarray(data.tokens_T[span.start : span.stop]) for span in spans])
    d_G = multihost.broadcast_from_primary(fit_offsets(probabilities_TxG, groups_V[words_T]))
    return model.params | {BIAS: model.params[BIAS] + d_G.astype(np.float32)[groups_V]}


def group_by_count(counts_V: np.ndarray) -> np.ndarray:
    """Returns the group of each word by its count, int64: 0 for none, and two groups for each doubling of the count.

    Examples:
        >>> group_by_count(np.array([0, 1, 2, 3, 4, 5, 6, 7, 8]))
        array([0, 1, 3, 4, 5, 5, 6, 6, 7])
    """
    doublings_V = np.log2(np.maximum(counts_V, 1))
    return np.where(np.asarray(counts_V) == 0, 0, 1 + np.floor(2 * doublings_V)).astype(np.int64)


def fit_offsets(probabilities_TxG: np.ndarray, groups_T: np.ndarray) -> np.ndarray:
    """Returns the d that minimise the mean over words w of log(sum over g of P_g exp d_g) - d_g(w), and |d|^2 / 2T.

    The second term is that of a normal prior of variance 1, which decides where no word is of a group.

    Args:
        probabilities_TxG: The model's probability of each group before each word.
        groups_T: The group of each word.

    Returns:
        d_G, float64, nats.
    """
    T, G = probabilities_TxG.shape
    probabilities_TxG = probabilities_TxG.astype(np.float64)
    shares_G = np.bincount(groups_T, minlength=G) / T

    def loss_and_gradient(d_G: np.ndarray) -> tuple[float, np.ndarray]:
        scaled_TxG = probabilities_TxG * np.exp(d_G)
        sums_Tx1 = scaled_TxG.sum(axis=1, keepdims=True)
        loss = np.log(sums_Tx1).mean() - shares_G @ d_G + d_G @ d_G / (2 * T)
        return loss, (scaled_TxG / sums_Tx1).mean(axis=0) - shares_G + d_G / T

    return scipy.optimize.minimize(loss_and_gradient, np.zeros(G), jac=True, method='L-BFGS-B', tol=1e-9).x
