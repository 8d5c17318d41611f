"""Estimates mixture weights by maximum likelihood, with EM and Newton's method.

Dims: M models, T words, Q bins of contexts.
"""

import functools

import numpy as np

from nplm_jax.utils.errors import NonFiniteError

_GAP = 1e-9  # tolerance for the mean log-likelihood, nats
_EQUAL = 1e-13  # mean log-likelihoods that differ by at most this are equal up to rounding, nats
_MAX_STEPS, _PARTS = 1000, (1.0, 0.5, 0.1, 0.01)  # maximum number of iterations; fractions of a Newton step to try


def fit_weights(log_p_MxT: np.ndarray, bins_T: np.ndarray, num_bins: int, iterations: int | None = None) -> np.ndarray:
    """Estimates the weights of each bin that maximize the likelihood of its words.

    An empty bin gets the weights that are fitted to all words. Words to which every model assigns probability zero are
    ignored.

    Args:
        log_p_MxT: log P for each word under each model, nats.
        bins_T: The bin of the context of each word, from 0 to `num_bins` - 1.
        num_bins: The number of bins.
        iterations: The number of EM iterations, starting from equal weights. If None, the weights are optimal.

    Returns:
        The weights, float64, Q x M. Each row sums to one.

    Raises:
        NonFiniteError: A log-probability is NaN.
    """
    if (num_nan := np.isnan(log_p_MxT).any(0).sum()) > 0:
        raise NonFiniteError(f'the log-probabilities of {num_nan:,} words are NaN')
    possible_T = np.isfinite(log_p_MxT.max(0))
    log_p_MxT, bins_T = log_p_MxT[:, possible_T].astype(np.float64), bins_T[possible_T]
    p_MxT = np.exp(log_p_MxT - log_p_MxT.max(0, initial=-np.inf))  # the likelihood ratios do not depend on this scale
    words_Q = np.bincount(bins_T, minlength=num_bins)
    parts = np.split(p_MxT[:, np.argsort(bins_T, kind='stable')], np.cumsum(words_Q)[:-1], axis=1)
    of_all_words = functools.cache(lambda: _fit_bin(p_MxT, iterations))
    return np.stack([_fit_bin(part, iterations) if part.shape[1] else of_all_words() for part in parts])


def _fit_bin(p_MxT: np.ndarray, iterations: int | None) -> np.ndarray:
    """Returns the float64 weights of one bin. Returns equal weights if the bin is empty.

    An EM step multiplies the weight of each model by a ratio: the mean posterior probability of the model, divided by
    its weight. Because the log-likelihood is concave, the mean log-likelihood is below the optimum by at most the
    largest ratio minus one. EM converges slowly. Each iteration therefore also tries several fractions of a Newton step
    that is constrained to non-negative weights (Kim et al., 2020, mix-SQP), and takes the best of all steps.

    Args:
        p_MxT: The probability of each word under each model, up to a factor that depends only on the word.
        iterations: The number of EM iterations. If None, the weights are optimal.
    """
    num_models, num_words = p_MxT.shape
    weights_M = np.full(num_models, 1 / num_models)
    if not num_words:
        return weights_M
    for _ in range(_MAX_STEPS if iterations is None else iterations):
        ratio_MxT = p_MxT / (weights_M @ p_MxT)
        step_M = ratio_MxT.mean(1)
        candidates = [weights_M * step_M]
        if iterations is None:
            if step_M.max() - 1 <= _GAP:
                break
            newton_M = _newton(ratio_MxT, step_M)
            candidates = [*(weights_M + part * (newton_M - weights_M) for part in _PARTS), *candidates]
        with np.errstate(divide='ignore'):
            values = np.nan_to_num([np.log(w_M @ p_MxT).mean() for w_M in candidates], nan=-np.inf)
        # Near the optimum, the likelihoods of all candidates are equal up to rounding. In this case, argmax selects the
        # first candidate, the full Newton step.
        weights_M = candidates[int(np.argmax(values >= values.max() - _EQUAL))]
    return weights_M


def _newton(ratio_MxT: np.ndarray, step_M: np.ndarray) -> np.ndarray:
    """Returns the non-negative float64 weights that maximize the quadratic approximation of the likelihood."""
    from scipy.optimize import nnls  # noqa: PLC0415 (the import takes a third of a second)

    curvature_MxM = ratio_MxT @ ratio_MxT.T / ratio_MxT.shape[1]
    curvature_MxM += 1e-10 * np.trace(curvature_MxM) * np.eye(len(step_M))  # for identical models
    lower_MxM = np.linalg.cholesky(curvature_MxM)
    weights_M = nnls(lower_MxM.T, np.linalg.solve(lower_MxM, 2 * step_M - 1))[0]
    return weights_M / weights_M.sum()
