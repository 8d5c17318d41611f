"""An LSTM that sees a window: for every prediction it reads the n-1 words before, from a state of zeros.

Evaluation reads each window by itself, so that P(w | context) depends on the n-1 words before and on nothing else.
Training reads each stretch of `train.bptt_length` words once, from zeros, and predicts every word of it from the words
of the stretch before it. Dims: S windows or stretches, L words of each, M features per word (m), N context words (n-1).

References:
    Bai, Kolter and Koltun, Trellis networks for sequence modeling, 2019: an LSTM truncated to a window, section 4.1.
"""

import dataclasses
from typing import Self

import jax

from nplm_jax.config import Settings
from nplm_jax.models.body import State
from nplm_jax.models.recurrent import Lstm
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.utils.errors import require
from nplm_jax.utils.nn import AxisName, Key


@dataclasses.dataclass(frozen=True)
class WindowLstm(Lstm):
    """LSTM over the last n-1 words (`model.family=window_lstm`). Every stream is read from its start."""

    has_state = False
    keys = Lstm.keys | {'model.n'}

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the body. Raises BadInput for a window that is longer than what training reads at once."""
        n, bptt_length = settings.model.n, settings.train.bptt_length
        allowed = f'must be 3 to train.bptt_length + 1 = {bptt_length + 1} for model.family=window_lstm'
        require(2 < n <= bptt_length + 1, 'model.n', n, allowed)
        return dataclasses.replace(super().from_settings(settings), reach=n - 1)

    def features(
        self, params: Params, e_SxLxM: jax.Array, state: State, key: Key = None, axis: AxisName = None
    ) -> tuple[Features, State]:
        """See `Body.features`. T is L. `state` is that of `start`, and is returned as it is."""
        return super().features(params, e_SxLxM, state, key, axis)[0], state
