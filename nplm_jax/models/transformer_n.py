"""The paper's concatenation below a Transformer: the first layer sees the last n-1 words at once, attention the rest.

z_0 = E x_t with x_t = (C(w_{t-1}), ..., C(w_{t-n+1})), the paper's x; the layers above are those of `transformer`.

Dims: M features per word (m), N words of x (n-1), P = N * M, S streams, T words of a stream.

References:
    Sun and Iyyer, Revisiting simple neural probabilistic language models, 2021 (Transformer-N, section 5).
"""

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from nplm_jax.config.component import at_least, key
from nplm_jax.models import nplm
from nplm_jax.models.body import State, windows
from nplm_jax.models.transformer import Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerN(Transformer):
    """A Transformer whose first layer is the paper's concatenation of the last n-1 words."""

    n: Annotated[int, at_least(2)] = key(6, 'order: the n-1 previous words are concatenated')

    @property
    def reach(self) -> int:
        """See `Body.reach`. The words of x, and those that attention looks back from the first layer."""
        return super().reach + self.n - 2

    @property
    def num_inputs(self) -> int:
        """See `Transformer.num_inputs`."""
        return (self.n - 1) * self.m

    def start_before(self, num_streams: int) -> State:
        """Returns zeros for the features of the n-2 words before the first one, S x (n-2) x M; None for no words."""
        return jnp.zeros((num_streams, self.n - 2, self.m)) if self.n > 2 else None

    def inputs(self, e_SxTxM: jax.Array, before: State, starts_SxL: jax.Array | None) -> tuple[jax.Array, State]:
        """See `Transformer.inputs`. Words before the line of a word are zeros in its x."""
        T, N = e_SxTxM.shape[1], self.n - 1
        if N == 1:
            return e_SxTxM, None
        e_SxLxM = jnp.concatenate([before, e_SxTxM], axis=1)
        if starts_SxL is None:
            return nplm.concatenate(windows(e_SxLxM, N)), e_SxLxM[:, T:]
        starts_SxL = jnp.pad(starts_SxL, ((0, 0), (N - 1, 0)))[:, :, None].astype(jnp.int32)
        x_SxTxNxM = jnp.where(_is_before(windows(starts_SxL, N)), 0, windows(e_SxLxM, N))
        before = jnp.where(_is_before(starts_SxL[:, None, T:])[:, 0], 0, e_SxLxM[:, T:])
        return nplm.concatenate(x_SxTxNxM), before


def _is_before(starts_xNx1: jax.Array) -> jax.Array:
    """Returns whether a line begins after each of N words, among the others."""
    later_xNx1 = jnp.concatenate([starts_xNx1[:, :, 1:], jnp.zeros_like(starts_xNx1[:, :, :1])], axis=2)
    return jax.lax.cummax(later_xNx1, axis=2, reverse=True) > 0
