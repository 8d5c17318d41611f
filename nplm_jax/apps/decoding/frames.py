"""Converts the outputs of an acoustic model to natural log-probabilities.

Dims: F frames, N labels.
"""

import math

import numpy as np

from nplm_jax.utils.errors import BadInput, require

_MIN_P = 1e-15  # minimum probability of a label
_ROUNDING = 2**-7  # maximum error of a sum of bfloat16 probabilities, from computing and from rounding the softmax
_MAX_MISSING = 0.1  # maximum deviation of a sum of probabilities from 1


def log_probabilities(logits: np.ndarray, num_labels: int, name: str = 'logits') -> np.ndarray:
    """Converts logits, probabilities or log-probabilities to natural log-probabilities.

    Args:
        logits: Probabilities, log-probabilities or logits of the labels, F x N. If all values are in [0, 1], they are
            interpreted as probabilities.
        num_labels: The number of labels, N.
        name: The name of the array in error messages.

    Returns:
        Normalized log-probabilities, float64, F x N.

    Raises:
        BadInput: The array has the wrong shape or type, or the probabilities of a frame do not sum to one.
    """
    try:
        values_FxN = np.asarray(logits, np.float64)
    except (TypeError, ValueError):
        raise BadInput(name, 'must be an array of numbers, frames x labels') from None
    shape = values_FxN.shape
    require(len(shape) == 2, name, shape, f'must have two dimensions, frames x {num_labels} labels')
    transposed = '; the array may be transposed' if shape[0] == num_labels else ''
    allowed = f'must have {num_labels} columns, one per label, including the blank{transposed}'
    require(shape[1] == num_labels, name, shape, allowed)
    finite = bool((values_FxN < np.inf).all() and (values_FxN > -np.inf).any(axis=1).all())
    require(finite, name, shape, 'must not contain NaN, infinity, or a frame in which all values are -infinity')
    if ((values_FxN >= 0) & (values_FxN <= 1 + _ROUNDING)).all():
        return _log_of_probabilities(values_FxN, name)
    log_p_FxN = values_FxN - np.logaddexp.reduce(values_FxN, axis=1, keepdims=True)
    return np.clip(log_p_FxN, math.log(_MIN_P), 0)


def _log_of_probabilities(p_FxN: np.ndarray, name: str) -> np.ndarray:
    """Returns the logarithms of normalized probabilities. Raises BadInput if a frame is not a distribution.

    Rounding a distribution over N labels changes its sum by at most 2^-8 in bfloat16, by less in float16, and by up to
    N / 510 in uint8 (multiples of 1 / 255). The tolerance is capped for large N, because a larger deviation more likely
    indicates missing labels.
    """
    advice = 'values in [0, 1] are read as probabilities; remove padding or pass log-probabilities'
    check_sums(name, p_FxN, max(_ROUNDING, min(p_FxN.shape[1] / 510, _MAX_MISSING)), advice)
    return np.log(np.clip(p_FxN / p_FxN.sum(axis=1, keepdims=True), _MIN_P, 1))


def check_sums(name: str, p_FxN: np.ndarray, tolerance: float, advice: str) -> None:
    """Raises BadInput with the key `name` if the probabilities of a frame do not sum to one."""
    sums_F = p_FxN.sum(axis=1)
    if (wrong_F := np.abs(sums_F - 1) > tolerance).any():
        frame = int(wrong_F.argmax())
        problem = f'the probabilities of frame {frame} sum to {sums_F[frame]:.4g}, but must sum to 1; {advice}'
        raise BadInput(name, problem, value=p_FxN.shape)
