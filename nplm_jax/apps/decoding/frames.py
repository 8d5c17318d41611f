"""Natural log-probabilities of the frames of an acoustic model, from its logits or probabilities.

Dims: F frames, N labels.
"""

import math

import numpy as np

from nplm_jax.utils.errors import BadInput, require

_MIN_P = 1e-15  # of a label
_ROUNDING = 2**-7  # of the sum of probabilities in bfloat16: of the sum of a softmax, and of its results
_MAX_MISSING = 0.1  # of the sum of probabilities


def log_probabilities(logits: np.ndarray, num_labels: int, name: str = 'logits') -> np.ndarray:
    """Returns natural log-probabilities, float64, F x N.

    Args:
        logits: Probabilities, log-probabilities or logits of the labels, F x N; see `decode_beams`.
        num_labels: N.
        name: Their name in the errors.

    Raises:
        BadInput: The logits have another shape, are no numbers, or are probabilities of which a frame does not sum to
            one.
    """
    try:
        values_FxN = np.asarray(logits, np.float64)
    except (TypeError, ValueError):
        raise BadInput(name, 'must be numbers, frames x labels') from None
    shape = values_FxN.shape
    require(len(shape) == 2, name, shape, f'must have two dimensions, frames x {num_labels} labels')
    require(shape[1] == num_labels, name, shape, f'must have {num_labels} columns, one a label and one the blank')
    finite = bool((values_FxN < np.inf).all() and (values_FxN > -np.inf).any(axis=1).all())
    require(finite, name, shape, 'must be numbers: no NaN, no infinity, in each frame one above -infinity')
    if ((values_FxN >= 0) & (values_FxN <= 1 + _ROUNDING)).all():
        return _log_of_probabilities(values_FxN, name)
    log_p_FxN = values_FxN - np.logaddexp.reduce(values_FxN, axis=1, keepdims=True)
    return np.clip(log_p_FxN, math.log(_MIN_P), 0)


def _log_of_probabilities(p_FxN: np.ndarray, name: str) -> np.ndarray:
    """Returns the logarithms of rounded probabilities. Raises BadInput for the first frame that is no distribution.

    Rounding a distribution of N labels changes its sum by 2^-8 at most in bfloat16, by less in float16, and by N / 510
    in multiples of 1 / 255 (uint8); with many labels that much is no rounding error but lost labels.
    """
    sums_Fx1 = p_FxN.sum(axis=1, keepdims=True)
    tolerance = max(_ROUNDING, min(p_FxN.shape[1] / 510, _MAX_MISSING))
    if (wrong_F := np.abs(sums_Fx1[:, 0] - 1) > tolerance).any():
        frame = int(wrong_F.argmax())
        problem = f'frame {frame} sums to {sums_Fx1[frame, 0]:.4g}; values within [0, 1] are read as probabilities, '
        problem += 'and those of each frame must sum to 1: remove padding, or give log-probabilities'
        raise BadInput(name, problem, value=p_FxN.shape)
    return np.log(np.clip(p_FxN / sums_Fx1, _MIN_P, 1))
