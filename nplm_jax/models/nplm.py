"""The paper's network (section 2): y = b + Wx + U tanh(d + Hx), x = (C(w_{t-1}), ..., C(w_{t-n+1})).

The free parameters are theta = (b, d, W, U, H, C). Dims: V vocabulary, M features per word (the paper's m), N context
words (n - 1), P = N * M, K hidden units (h), B batch. Contexts are in reading order, the most recent word last; x
begins with the most recent word, as in the paper.
"""

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, CountOrZero, Share, at_least, key
from nplm_jax.models.body import Body, BodyOutput, State, windows
from nplm_jax.nn import Keys, dropout, fold_in, uniform
from nplm_jax.outputs.output_layer import Params, Tables
from nplm_jax.utils.errors import BadInput, require

_WITHOUT_HIDDEN, _HIDDEN = {'C_VxM', 'b_V'}, {'H_KxP', 'd_K', 'U_VxK'}


def logits(params: Params, contexts_BxN: jax.Array) -> jax.Array:
    """Computes equation 1, the unnormalised log-probability of every word after each context.

    Args:
        params: The six arrays by name. Without W there are no direct connections; without U, H and d no hidden layer.
            The rows of C, U, W and b are words; those of `output.kind=tree` are nodes, under the same names.
        contexts_BxN: Word ids in reading order, int32.

    Returns:
        y_BxV, float32. The softmax of a row is P(w | context) of the paper.

    Raises:
        BadInput: The arrays are not those of the paper's network, or the contexts are no matrix.

    References:
        The paper's equation 1, section 2.
    """
    allowed = "must be those of the paper's network: C_VxM, b_V, with or without W_VxP, and H_KxP, d_K, U_VxK together"
    is_papers = params.keys() - {'W_VxP'} in (_WITHOUT_HIDDEN, _WITHOUT_HIDDEN | _HIDDEN)
    require(is_papers, 'params', sorted(params), allowed)
    if contexts_BxN.ndim != 2:
        allowed = 'must be batch x context words, in reading order, the most recent word last'
        raise BadInput(f'contexts of shape {contexts_BxN.shape}', allowed)
    x_BxP = concatenate(params['C_VxM'][contexts_BxN])
    y_BxV = params['b_V'][None, :]
    if 'W_VxP' in params:
        y_BxV = y_BxV + x_BxP @ params['W_VxP'].T
    if 'U_VxK' in params:
        y_BxV = y_BxV + hidden(params, x_BxP) @ params['U_VxK'].T
    return y_BxV


def concatenate(e_xNxM: jax.Array) -> jax.Array:
    """Returns x: the feature vectors of each context, the most recent word's first, N * M = P of them."""
    return e_xNxM[..., ::-1, :].reshape(*e_xNxM.shape[:-2], -1)


def hidden(params: Params, x_xP: jax.Array) -> jax.Array:
    """Returns a = tanh(d + Hx) of each x."""
    Hx_xK = x_xP @ params['H_KxP'].T
    return jnp.tanh(jnp.broadcast_to(params['d_K'], Hx_xK.shape) + Hx_xK)


def num_parameters(n: int, m: int, h: int, direct: bool, vocabulary_size: int) -> int:
    """Returns the paper's count |V|(1 + nm + h) + h(1 + (n-1)m), less |V|(n-1)m without direct connections.

    Examples:
        >>> num_parameters(n=5, m=30, h=100, direct=False, vocabulary_size=16_383)  # MLP9 on Brown
        2158273
    """
    num_inputs = (n - 1) * m
    return vocabulary_size * (1 + m + h + (num_inputs if direct else 0)) + h * (1 + num_inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window(Body):
    """The paper's network (section 2) up to the output layer: x for W, and a = tanh(d + Hx) for U."""

    n: Annotated[int, at_least(2)] = key(6, 'order: the n-1 previous words predict a word; the paper: 3 and 5')
    m: Count = key(100, 'features per word; the paper: 30 and 60')
    h: CountOrZero = key(200, 'hidden units, 0 for no hidden layer; the paper: 0, 50 and 100')
    direct: bool = key(False, 'direct connections W from the features to the output; the paper: both')
    dropout: Share = key(0.25, 'probability with which training zeroes a feature or a hidden unit; the paper: 0')
    tables = Tables(units=('H_KxP',))

    def check(self) -> None:
        """See `Component.check`. Refuses a network whose context would have no influence."""
        message = 'must be 1 or more, or model.direct=True; otherwise the context has no influence'
        require(self.h > 0 or self.direct, 'model.h', self.h, message)

    @property
    def reach(self) -> int:
        """N."""
        return self.n - 1

    @property
    def widths(self) -> dict[str, int]:
        """U with a hidden layer, W with direct connections."""
        hidden_width = {'U_VxK': self.h} if self.h else {}
        direct_width = {'W_VxP': self.reach * self.m} if self.direct else {}
        return hidden_width | direct_width

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns C uniform in +-0.1, H in +-1/sqrt(P), d zero. The paper does not describe its initialisation."""
        key_C, key_H, _, _ = jax.random.split(key, 4)
        P = self.reach * self.m
        params = {'C_VxM': uniform(key_C, (vocabulary_size, self.m), 0.1)}
        if self.h:
            params |= {'H_KxP': uniform(key_H, (self.h, P), P**-0.5), 'd_K': jnp.zeros(self.h)}
        return params

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """See `Body.output_keys`."""
        return dict(zip(('U_VxK', 'W_VxP'), jax.random.split(key, 4)[2:]))

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`."""
        x_SxTxP = concatenate(windows(e_SxLxM, self.reach, starts_SxL))
        x_SxTxP = dropout(fold_in(keys, 0), x_SxTxP, self.dropout)
        features = {}
        if self.h:
            features['U_VxK'] = dropout(fold_in(keys, 1), hidden(params, x_SxTxP), self.dropout)
        if self.direct:
            features['W_VxP'] = x_SxTxP
        return BodyOutput(features)
