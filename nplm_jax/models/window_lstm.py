"""Implements an LSTM over a fixed window, which predicts each word from the n-1 previous words and a zero state.

Evaluation reads each window separately, so that P(w | context) depends on exactly n-1 words. Training reads each
segment of `model.bptt_length` words only once, starting from a zero state, and predicts each word from the preceding
words in its segment.

Dims: S streams, L words per stream, T targets per stream, M features per word (m), N context words (n-1), B = S * T.

References:
    Bai, Kolter and Koltun, Trellis networks for sequence modeling, 2019: LSTM truncated to a window, section 4.1.
"""

import dataclasses
from typing import Annotated

import jax

from nplm_jax.config.component import at_least, key
from nplm_jax.models.body import Body, BodyOutput, State, windows
from nplm_jax.models.recurrent import Lstm
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import Params
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowLstm(Lstm):
    """An LSTM over the n-1 previous words, starting from a zero state."""

    n: Annotated[int, at_least(2)] = key(6, 'order of the model, which predicts each word from the n-1 previous words')
    lookback = Body.lookback  # type: ignore[assignment]  # as for a window

    def check(self) -> None:
        """See `Component.check`. Also rejects a window longer than a training segment."""
        longest = self.bptt_length + 1
        allowed = f'must be between 3 and model.bptt_length + 1 = {longest} for model.family=window_lstm'
        require(2 < self.n <= longest, 'model.n', self.n, allowed)
        super().check()

    @property
    def reach(self) -> int:
        """See `Body.reach`."""
        return self.n - 1

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`. The state must be that of `start`, and is returned unchanged."""
        if keys is not None:
            return super().features(params, e_SxLxM, state, keys, starts_SxL)._replace(state=state)
        windows_SxTxNxM = windows(e_SxLxM, self.reach, starts_SxL)
        S, T = windows_SxTxNxM.shape[:2]
        e_BxNxM = windows_SxTxNxM.reshape(S * T, *windows_SxTxNxM.shape[2:])
        output = super().features(params, e_BxNxM, self.start(S * T))
        return BodyOutput({name: x[:, -1].reshape(S, T, -1) for name, x in output.features.items()}, state)
