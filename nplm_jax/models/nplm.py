"""The paper's network (section 2): y = b + Wx + U tanh(d + Hx), x = (C(w_{t-1}), ..., C(w_{t-n+1})).

The free parameters are theta = (b, d, W, U, H, C). Contexts are in reading order, the most recent word last; x begins
with the most recent word, as in the paper.

Dims: V vocabulary, M features per word (the paper's m), N context words (n - 1), P = N * M, K hidden units (h), B
batch.
"""

import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, CountOrZero, Share, at_least, key
from nplm_jax.models.body import Body, BodyOutput, State, windows
from nplm_jax.models.language_model import check_ids
from nplm_jax.nn import Keys, dropout, fold_in, uniform
from nplm_jax.outputs.output_layer import Params, Tables
from nplm_jax.utils.errors import BadInput, require

_WITHOUT_HIDDEN, _HIDDEN = {'C_VxM', 'b_V'}, {'H_KxP', 'd_K', 'U_VxK'}


def logits(params: Params, contexts_BxN: jax.Array) -> jax.Array:
    """Computes equation 1, the unnormalized log-probability of every word after each context.

    Args:
        params: The six arrays by name. Omit W if the network has no direct connections, and omit U, H and d if it has
            no hidden layer. Each row of C, U, W and b corresponds to a word. With `output.kind=tree`, each row of U, W
            and b corresponds to a tree node instead.
        contexts_BxN: Word ids in reading order, int32.

    Returns:
        The scores y, float32, B x V. The softmax of a row is the paper's P(w | context).

    Raises:
        BadInput: The arrays are not the parameters of the paper's network, or the contexts are not a matrix of word
            ids. Inside `jit`, the values of the ids cannot be checked.

    References:
        The paper's equation 1, section 2.
    """
    allowed = 'must contain C_VxM and b_V, and also W_VxP, or H_KxP, d_K and U_VxK, or all four'
    is_papers = len(params) > 2 and params.keys() - {'W_VxP'} in (_WITHOUT_HIDDEN, _WITHOUT_HIDDEN | _HIDDEN)
    require(is_papers, 'params', sorted(params), allowed)
    if contexts_BxN.ndim != 2:
        allowed = 'must be a matrix with one context per row, in reading order'
        raise BadInput(f'contexts of shape {contexts_BxN.shape}', allowed)
    if not isinstance(contexts_BxN, jax.core.Tracer):  # otherwise, JAX replaces an invalid id with a valid one
        check_ids('contexts', contexts_BxN, len(params['C_VxM']))
    x_BxP = concatenate(params['C_VxM'][contexts_BxN])
    y_BxV = params['b_V'][None, :]
    if 'W_VxP' in params:
        y_BxV = y_BxV + x_BxP @ params['W_VxP'].T
    if 'U_VxK' in params:
        y_BxV = y_BxV + hidden(params, x_BxP) @ params['U_VxK'].T
    return y_BxV


def concatenate(e_xNxM: jax.Array) -> jax.Array:
    """Returns x, the concatenated word features of each context (P = N * M numbers), the most recent word first."""
    return e_xNxM[..., ::-1, :].reshape(*e_xNxM.shape[:-2], -1)


def hidden(params: Params, x_xP: jax.Array) -> jax.Array:
    """Returns the hidden units a = tanh(d + Hx)."""
    Hx_xK = x_xP @ params['H_KxP'].T
    return jnp.tanh(jnp.broadcast_to(params['d_K'], Hx_xK.shape) + Hx_xK)


def num_parameters(n: int, m: int, h: int, direct: bool, vocabulary_size: int) -> int:
    """Returns the paper's parameter count |V|(1 + nm + h) + h(1 + (n-1)m), minus |V|(n-1)m without direct connections.

    Examples:
        >>> num_parameters(n=5, m=30, h=100, direct=False, vocabulary_size=16_383)  # MLP9 on Brown
        2158273
    """
    num_inputs = (n - 1) * m
    return vocabulary_size * (1 + m + h + (num_inputs if direct else 0)) + h * (1 + num_inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window(Body):
    """The paper's network (section 2) without its output layer.

    The features are the concatenated word features x, which the output layer multiplies by W, and the hidden units
    a = tanh(d + Hx), which it multiplies by U.
    """

    n: Annotated[int, at_least(2)] = key(
        6, 'order of the model, which predicts each word from the n-1 previous words; the paper uses 3 and 5'
    )
    m: Count = key(100, 'number of features per word; the paper uses 30 and 60')
    h: CountOrZero = key(200, 'number of hidden units; 0 means no hidden layer; the paper uses 0, 50 and 100')
    direct: bool = key(False, 'add direct connections W from the features to the output; the paper uses both settings')
    dropout: Share = key(0.25, 'dropout rate of features and hidden units during training; the paper uses no dropout')
    tables = Tables(units=('H_KxP',))

    def check(self) -> None:
        """See `Component.check`. Also rejects a network whose output would not depend on the context."""
        message = 'must be 1 or more with model.direct=False, because the output must depend on the context'
        require(self.h > 0 or self.direct, 'model.h', self.h, message)

    @property
    def reach(self) -> int:
        """N, the number of context words."""
        return self.n - 1

    @property
    def widths(self) -> dict[str, int]:
        """The widths of U and W. U is omitted without a hidden layer, and W without direct connections."""
        hidden_width = {'U_VxK': self.h} if self.h else {}
        return hidden_width | ({'W_VxP': self.reach * self.m} if self.direct else {})

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Initializes C uniformly in ±0.1, H uniformly in ±1/sqrt(P), and d to zero.

        The paper specifies no initialization.
        """
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
