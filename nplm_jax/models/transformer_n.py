"""Implements Transformer-N, a Transformer whose inputs are the concatenated features of the last n-1 words.

The input of the first layer is z_0 = E x_t, where x_t = (C(w_{t-1}), ..., C(w_{t-n+1})) is the paper's x. The layers
are the same as in `transformer`.

Dims: M features per word (m), N words in x (n-1), P = N * M, S streams, T words per stream.

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
    """A Transformer whose inputs are the concatenated features of the last n-1 words."""

    n: Annotated[int, at_least(2)] = key(
        6, 'order of the input, which concatenates the features of the n-1 previous words'
    )

    @property
    def reach(self) -> int:
        """See `Body.reach`. The concatenation extends the reach of a Transformer by n - 2 words."""
        return super().reach + self.n - 2

    @property
    def num_inputs(self) -> int:
        """See `Transformer.num_inputs`."""
        return (self.n - 1) * self.m

    def start_before(self, num_streams: int) -> State:
        """Returns zeros in place of the features of the n-2 previous words, S x (n-2) x M. Returns None if n is 2."""
        return jnp.zeros((num_streams, self.n - 2, self.m)) if self.n > 2 else None

    def inputs(self, e_SxTxM: jax.Array, before: State, starts_SxL: jax.Array | None) -> tuple[jax.Array, State]:
        """See `Transformer.inputs`. Words before the current line are replaced by zeros."""
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
    """For each of the N words in a window, returns whether a line begins after that word."""
    later_xNx1 = jnp.concatenate([starts_xNx1[:, :, 1:], jnp.zeros_like(starts_xNx1[:, :, :1])], axis=2)
    return jax.lax.cummax(later_xNx1, axis=2, reverse=True) > 0
