"""Implements a causal pre-norm Transformer with a sliding attention window and optional weight tying.

The input of the first layer is z_0 = E x_t, where x_t = C(w_{t-1}). A layer first computes
z := z + O attention(norm(z)), and then z := z + B gelu(A norm(z) + a), where
norm(z) = g * (z - mean(z)) / sqrt(var(z) + 1e-5). Each word attends to itself and to the R previous words
(`model.memory`). The keys and values of those R words form the state, so that decoding computes the keys and values of
each word only once. As in Transformer-XL, training carries the state from update to update without a gradient.

Dims: V vocabulary, M features per word (m), K units (h), H heads, D = K / H head size, F inner units of the
feed-forward layer, P inputs of E, S streams, T words per stream, R words in the state.

References:
    Vaswani et al., Attention is all you need, 2017. Xiong et al., On layer normalization in the Transformer
    architecture, 2020 (pre-norm). Dai et al., Transformer-XL, 2019 (the state). Su et al., RoFormer, 2021 (rotary
    positions).
"""

import contextlib
import dataclasses
from typing import Annotated

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, between, key
from nplm_jax.models.attention import visible
from nplm_jax.models.body import BodyOutput, State
from nplm_jax.models.stream_body import StreamBody
from nplm_jax.nn import Keys, Precision, dropout, fold_in, matmul, uniform
from nplm_jax.outputs.output_layer import EMBEDDING, Params
from nplm_jax.utils.errors import require

_BASE = 10_000.0  # base of the rotary frequencies


@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer(StreamBody):
    """A Transformer with causal self-attention over a sliding window. The state is a cache of keys and values."""

    heads: Count = key(4, 'number of attention heads, which must divide model.h')
    memory: Annotated[int, between(1, 4096)] = key(
        64, 'number of previous words that each word attends to in each layer'
    )
    expansion: Count = key(4, 'inner width of the feed-forward layers, as a multiple of model.h')
    least_units = 2

    def check(self) -> None:
        """See `Component.check`. Also rejects a number of heads that does not divide the number of units."""
        super().check()
        is_possible = self.h % self.heads == 0 and self.heads < self.h  # a head with a single unit has no rotation
        require(is_possible, 'model.heads', self.heads, f'must be a divisor of model.h={self.h} and less than model.h')

    @property
    def reach(self) -> int:
        """See `Body.reach`. Each layer extends the reach by R words."""
        return self.layers * self.memory + 1

    @property
    def shape(self) -> tuple[int, int]:
        """The number of heads H and the head size D."""
        return self.heads, self.h // self.heads

    def start(self, num_streams: int) -> State:
        """Returns an empty cache for each layer, S x R x H x D, and the number of cached words of each stream, S."""
        cache = {name: jnp.zeros((num_streams, self.memory, *self.shape)) for name in ('keys', 'values')}
        return {
            'before': self.start_before(num_streams),
            'layers': (cache,) * self.layers,
            'kept_S': jnp.zeros(num_streams, jnp.int32),
        }

    def start_before(self, num_streams: int) -> State:
        """Returns the initial value of the state that `inputs` carries from call to call. In this class, it is None."""
        return None

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Initializes C uniformly in ±0.1, E in ±10/sqrt(P), other matrices in ±1/sqrt(inputs), and O and B to zero.

        Because O and B are zero, each layer initially computes the identity function.
        """
        key_C, key_E, key_P, key_layers = jax.random.split(key, 4)
        K, F = self.h, self.h * self.expansion
        layers = {}
        for i, layer_key in enumerate(jax.random.split(key_layers, self.layers)):
            key_Q, key_A = jax.random.split(layer_key)
            layers[f'layer_{i}'] = {
                'QKV_Kx3K': uniform(key_Q, (K, 3 * K), K**-0.5),
                'O_KxK': jnp.zeros((K, K)),
                'g_attention_K': jnp.ones(K),
                'A_KxF': uniform(key_A, (K, F), K**-0.5),
                'a_F': jnp.zeros(F),
                'B_FxK': jnp.zeros((F, K)),
                'g_K': jnp.ones(K),
            }
        params = {
            EMBEDDING: uniform(key_C, (vocabulary_size, self.m), 0.1),
            'E_PxK': uniform(
                key_E, (self.num_inputs, K), self.num_inputs**-0.5 * 10
            ),  # so that z_0 initially has the scale of norm(z)
            'g_K': jnp.ones(K),
            'layers': layers,
        }
        return params | ({'P_KxM': uniform(key_P, (K, self.m), K**-0.5)} if self.tied else {})

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`. No gradient flows into the cached keys and values."""
        precision, activations = self.types(keys)
        state, T = jax.lax.stop_gradient(state), e_SxLxM.shape[1]

        def drop(number: int, values_SxTxK: jax.Array, rate: float) -> jax.Array:
            return dropout(fold_in(keys, number), values_SxTxK, rate, self.mask_dims)

        e_SxTxM = drop(1, self.drop_words(keys, e_SxLxM), self.dropout)
        x_SxTxP, before = self.inputs(e_SxTxM, state['before'], starts_SxL)
        z_SxTxK = matmul(x_SxTxP, params['E_PxK'], precision)
        seen_SxTxL, kept_S = visible(self.memory, state['kept_S'], starts_SxL, T)
        caches = []
        for i, cache in enumerate(state['layers']):
            layer = params['layers'][f'layer_{i}']
            norm_SxTxK = jax.nn.standardize(z_SxTxK, axis=2) * layer['g_attention_K'][None, None]
            y_SxTxK, cache = self.attend(layer, norm_SxTxK, cache, seen_SxTxL, precision)
            caches.append(cache)
            z_SxTxK = z_SxTxK + drop(2 * i + 2, y_SxTxK, self.dropout)
            norm_SxTxK = jax.nn.standardize(z_SxTxK, axis=2) * layer['g_K'][None, None]
            inside_SxTxF = matmul(norm_SxTxK, layer['A_KxF'], precision) + layer['a_F'][None, None]
            inside_SxTxF = jax.nn.gelu(inside_SxTxF.astype(activations))
            z_SxTxK = z_SxTxK + drop(2 * i + 3, matmul(inside_SxTxF, layer['B_FxK'], precision), self.dropout)
        features = jax.nn.standardize(z_SxTxK, axis=2) * params['g_K'][None, None]
        if self.tied:
            features = matmul(features, params['P_KxM'], precision)
        features = dict.fromkeys(self.widths, drop(0, features, self.output_rate))
        return BodyOutput(features, {'before': before, 'layers': tuple(caches), 'kept_S': kept_S})

    @property
    def num_inputs(self) -> int:
        """P, the number of inputs of E per word."""
        return self.m

    def inputs(self, e_SxTxM: jax.Array, before: State, starts_SxL: jax.Array | None) -> tuple[jax.Array, State]:
        """Returns the inputs x, S x T x P, and the state that the next call of this method requires.

        In this class, x consists of the word features, and the state is None.
        """
        return e_SxTxM, None

    def attend(
        self,
        layer: Params,
        x_SxTxK: jax.Array,
        cache: dict[str, jax.Array],
        seen_SxTxL: jax.Array,
        precision: Precision,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Applies the attention of one layer.

        Args:
            layer: The parameters of the layer.
            x_SxTxK: The inputs of the attention.
            cache: The keys and values of the R previous words. Keys are cached before rotation, because the rotation
                angles depend on the position relative to the new words. The angles therefore remain small.
            seen_SxTxL: The attention mask; see `visible`.
            precision: The precision of the factors in matrix products.

        Returns:
            The output of the attention, S x T x K, and the updated cache.
        """
        S, T, _ = x_SxTxK.shape
        qkv_SxTx3xHxD = matmul(x_SxTxK, layer['QKV_Kx3K'], precision).reshape(S, T, 3, *self.shape)
        queries, keys, values = (qkv_SxTx3xHxD[:, :, i] for i in range(3))
        keys, values = (jnp.concatenate([cache[n], x], axis=1) for n, x in (('keys', keys), ('values', values)))
        cache = {'keys': keys[:, T:], 'values': values[:, T:]}
        places_L = jnp.arange(-self.memory, T)
        queries, keys = rotate(queries, places_L[self.memory :]), rotate(keys, places_L)
        queries, keys, values = (x.astype(precision) for x in (queries, keys, values))
        # This context has the same effect as `nn.product_precision` for the products inside dot_product_attention.
        of_products = jax.default_matmul_precision('default') if precision == 'bfloat16' else contextlib.nullcontext()
        with of_products:
            y_SxTxHxD = jax.nn.dot_product_attention(queries, keys, values, mask=seen_SxTxL[:, None])
        y_SxTxK = matmul(y_SxTxHxD.astype(jnp.float32).reshape(S, T, -1), layer['O_KxK'], precision)
        return y_SxTxK, cache


def rotate(x_SxTxHxD: jax.Array, places_T: jax.Array) -> jax.Array:
    """Applies rotary position embeddings.

    After rotation, the product of a query and a key depends on their positions only through the difference of the
    positions. If D is odd, the last element is not rotated.
    """
    pairs = x_SxTxHxD.shape[3] // 2
    rates_P = _BASE ** (-jnp.arange(pairs) / max(pairs, 1))
    angles_1xTx1xP = places_T[None, :, None, None] * rates_P[None, None, None]
    cos, sin = jnp.cos(angles_1xTx1xP), jnp.sin(angles_1xTx1xP)
    left, right, rest = jnp.split(x_SxTxHxD, [pairs, 2 * pairs], axis=3)
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos, rest], axis=3)
