"""The energy network (the paper's section 5), in which the hidden layer also reads the candidate word's features.

E(w; context) = -y_w and y_w = b_w + v . tanh(d + Hx + D C(w)), P(w | context) = exp(-E(w)) / sum over all words of
exp(-E). C is the only matrix with one row per word. Dims: V vocabulary, M features per word, N context
words, P = N * M, K hidden units, B batch, R scored words, L words scored for only one example.

References:
    Bengio and Senecal, Quick training of probabilistic neural nets by importance sampling, AISTATS 2003.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from nplm_jax.models import nplm
from nplm_jax.models.body import BodyOutput, State, windows
from nplm_jax.nn import Keys, Precision, dropout, matmul, uniform
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, Features, Params, Tables
from nplm_jax.outputs.softmax import Scorer
from nplm_jax.utils.errors import require

BLOCK = 2**20  # number of scores summed at once: 4 MB, which fit into the cache
UNITS = 4  # number of hidden units whose gradients are computed at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Energy(nplm.Window):
    """The part of the hidden layer's input that does not depend on the candidate: d + Hx. Dropout applies only to x."""

    direct: ClassVar[bool] = False  # type: ignore[misc]  # it has no direct connections
    tables = Tables(units=(*nplm.Window.tables.units, 'D_KxM'))

    def check(self) -> None:
        """See `Component.check`. Also rejects a network without a hidden layer."""
        require(self.h > 0, 'model.h', self.h, 'must be 1 or more for an energy network')

    @property
    def widths(self) -> dict[str, int]:
        """See `Body.widths`. C is the only matrix with one row per word."""
        return {EMBEDDING: self.m}

    @property
    def scorer(self) -> Scorer:
        """See `EnergyScorer`."""
        return ENERGY

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns C, H and d as in the paper's network, and v and D.

        v is uniform in +-1/sqrt(K), and D in +-10/sqrt(M) because C is small.
        """
        key_D, key_v = jax.random.split(jax.random.fold_in(key, 1))
        K, M = self.h, self.m
        D_KxM, v_K = uniform(key_D, (K, M), 10 * M**-0.5), uniform(key_v, (K,), K**-0.5)
        return super().init(key, vocabulary_size) | {'D_KxM': D_KxM, 'v_K': v_K}

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """See `Body.output_keys`. The key is unused, because C is a parameter of the body."""
        return {EMBEDDING: key}

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`."""
        x_SxTxP = dropout(keys, nplm.concatenate(windows(e_SxLxM, self.reach, starts_SxL)), self.dropout)
        return BodyOutput({EMBEDDING: params['d_K'][None, None] + matmul(x_SxTxP, params['H_KxP'].T)})


class EnergyScorer(Scorer):
    """The scores y = b + v . tanh(a + D C(w)) for features a = d + Hx."""

    def scores(self, params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
        """See `Scorer.scores`. All computations are in float32."""
        c_RxK, a_BxK = params[EMBEDDING] @ params['D_KxM'].T, features[EMBEDDING]
        R, B = len(c_RxK), len(a_BxK)
        num_blocks = min(B, -(-R * B // BLOCK))
        a_BxK = jnp.pad(a_BxK, ((0, -B % num_blocks), (0, 0)))
        blocks = a_BxK.reshape(num_blocks, -1, a_BxK.shape[1])
        y_NxRxS = jax.lax.map(lambda a_SxK: sum_of_tanh(params['v_K'], c_RxK, a_SxK), blocks)
        return params[BIAS][:, None] + y_NxRxS.swapaxes(0, 1).reshape(R, -1)[:, :B]

    def gathered_scores(self, shared: Params, per_example: Params, features: Features) -> jax.Array:
        """See `Scorer.gathered_scores`."""
        c_BxLxK = per_example[EMBEDDING] @ shared['D_KxM'].T
        return per_example[BIAS] + jnp.tanh(c_BxLxK + features[EMBEDDING][:, None, :]) @ shared['v_K']


ENERGY = EnergyScorer()


@jax.custom_vjp
def sum_of_tanh(v_K: jax.Array, c_RxK: jax.Array, a_BxK: jax.Array) -> jax.Array:
    """Returns the sum over k of v_k tanh(c_rk + a_bk), R x B, without creating an array of R x B x K."""

    def term(unit: Any) -> jax.Array:
        v, c_R, a_B = unit
        return v * jnp.tanh(c_R[:, None] + a_B[None, :])

    units = v_K, c_RxK.T, a_BxK.T
    first, rest = (x[0] for x in units), tuple(x[1:] for x in units)
    return jax.lax.scan(lambda y_RxB, unit: (y_RxB + term(unit), None), term(first), rest)[0]


def _forward(
    v_K: jax.Array, c_RxK: jax.Array, a_BxK: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    return sum_of_tanh(v_K, c_RxK, a_BxK), (v_K, c_RxK, a_BxK)


def _backward(
    residuals: tuple[jax.Array, jax.Array, jax.Array], dy_RxB: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def differentiate(unit: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        v, c_R, a_B = unit
        t_RxB = jnp.tanh(c_R[:, None] + a_B[None, :])
        d_RxB = dy_RxB * (1 - t_RxB * t_RxB)
        return jnp.vdot(dy_RxB, t_RxB), v * d_RxB.sum(axis=1), v * d_RxB.sum(axis=0)

    v_K, c_RxK, a_BxK = residuals
    dv_K, dc_KxR, da_KxB = jax.lax.map(differentiate, (v_K, c_RxK.T, a_BxK.T), batch_size=UNITS)
    return dv_K, dc_KxR.T, da_KxB.T


sum_of_tanh.defvjp(_forward, _backward)
