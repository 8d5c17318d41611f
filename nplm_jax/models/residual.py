"""Implements a residual network over a window of words and scaled sums of earlier words, with optional weight tying.

The input is x = (e_t, ..., e_{t-n+2}, s_0, s_1, ...), where e_t = C(w_{t-1}). s_0 is the sum of the features of the n-1
words before the window, divided by sqrt(n-1). s_1 is the sum over the 2(n-1) words before those, divided by
sqrt(2(n-1)), and so on.

The layers compute z_0 = H x + d and z_l = z_{l-1} + B_l relu(A_l norm_l(z_{l-1}) + a_l). The scores are
y = b + C (P norm(z_L)) with weight tying, and y = b + U norm(z_L) without it. Layer normalization over the K units is
norm_l(z) = g_l * (z - mean(z)) / sqrt(var(z) + 1e-5), and the final norm has a separate g.

The network reads parallel streams, so that it gathers the features of each word only once, and not once per window.

Dims: V vocabulary, M features per word (m), K hidden units (h), F units inside a layer, P inputs, S streams, T words
per stream, B = S * T examples, R words in the state.

References:
    Sun and Iyyer, Revisiting simple neural probabilistic language models, 2021.
"""

import dataclasses
import itertools
from typing import Annotated

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, at_least, between, key
from nplm_jax.models.body import BodyOutput, State
from nplm_jax.models.stream_body import StreamBody
from nplm_jax.nn import Keys, dropout, fold_in, matmul, uniform
from nplm_jax.outputs.output_layer import EMBEDDING, Params
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Residual(StreamBody):
    """A network of residual layers over a window of words and sums of earlier words."""

    n: Annotated[int, at_least(2)] = key(6, 'order of the model, whose window consists of the n-1 previous words')
    averages: Annotated[int, between(0, 16)] = key(
        3,
        'number of sums over the words before the window; the first sum covers n-1 words, and each further sum covers '
        'twice as many; each sum is divided by the square root of its number of words',
    )
    expansion: Count = key(2, 'inner width of each residual layer, as a multiple of model.h')
    least_units = 2

    def check(self) -> None:
        """See `Component.check`. Also rejects a network with a window of one word and no sums."""
        has_context = self.n > 2 or self.averages > 0
        require(has_context, 'model.averages', self.averages, 'must be 1 or more if model.n=2')
        super().check()

    @property
    def window(self) -> int:
        """The number of words in the window."""
        return self.n - 1

    @property
    def reach(self) -> int:
        """See `Body.reach`. It equals R + 1."""
        return self.window * 2**self.averages

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Initializes C uniformly in ±0.1, H in ±10/sqrt(P), B_l to zero, and other matrices in ±1/sqrt(inputs)."""
        key_C, key_H, key_P, key_layers = jax.random.split(key, 4)
        K, F, P = self.h, self.h * self.expansion, (self.window + self.averages) * self.m
        layers = {}
        for i, layer_key in enumerate(jax.random.split(key_layers, self.layers)):
            A_KxF = uniform(layer_key, (K, F), K**-0.5)
            layers[f'layer_{i}'] = {'A_KxF': A_KxF, 'a_F': jnp.zeros(F), 'B_FxK': jnp.zeros((F, K)), 'g_K': jnp.ones(K)}
        params = {
            EMBEDDING: uniform(key_C, (vocabulary_size, self.m), 0.1),
            'H_PxK': uniform(key_H, (P, K), P**-0.5 * 10),
            'd_K': jnp.zeros(K),
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
        """See `Body.features`. No gradient flows into the state."""
        T = e_SxLxM.shape[1]
        precision, activations = self.types(keys)
        numbers = itertools.count(1)  # folded into the random keys, so that all dropout masks are independent

        def drop(values_SxTxD: jax.Array, rate: float) -> jax.Array:
            return dropout(fold_in(keys, next(numbers)), values_SxTxD, rate, self.mask_dims)

        e_SxTxM = drop(self.drop_words(fold_in(keys, 0), e_SxLxM), self.dropout)
        e_SxLxM = jnp.concatenate([jax.lax.stop_gradient(state), e_SxTxM], axis=1)  # L = R + T
        ages_SxL = None if starts_SxL is None else self.ages(starts_SxL)
        z_SxTxK = matmul(self.inputs(e_SxLxM, ages_SxL), params['H_PxK'], precision) + params['d_K'][None, None]
        for i in range(self.layers):
            layer = params['layers'][f'layer_{i}']
            norm_SxTxK = jax.nn.standardize(z_SxTxK, axis=2) * layer['g_K'][None, None]
            inside_SxTxF = matmul(norm_SxTxK, layer['A_KxF'], precision) + layer['a_F'][None, None]
            inside_SxTxF = jax.nn.relu(inside_SxTxF.astype(activations))
            z_SxTxK = z_SxTxK + matmul(drop(inside_SxTxF, self.dropout), layer['B_FxK'], precision)
        features = jax.nn.standardize(z_SxTxK, axis=2) * params['g_K'][None, None]
        if self.tied:
            features = matmul(drop(features, self.dropout), params['P_KxM'], precision)
        last_SxRxM = e_SxLxM[:, T:]
        if ages_SxL is not None:  # zero the words before the current line
            distances_R = jnp.arange(self.reach - 2, -1, -1)
            last_SxRxM = jnp.where((ages_SxL[:, -1:] >= distances_R[None, :])[:, :, None], last_SxRxM, 0)
        return BodyOutput(dict.fromkeys(self.widths, drop(features, self.output_rate)), last_SxRxM)

    def ages(self, starts_SxL: jax.Array) -> jax.Array:
        """Returns, for each of the R + T words, the int32 number of words that precede the word in its line.

        The words in the state are counted as part of the first line.

        Args:
            starts_SxL: Whether each of the T words begins a line.
        """
        S, R = len(starts_SxL), self.reach - 1
        indices_L = jnp.arange(R + starts_SxL.shape[1])[None, :]
        starts_SxL = jnp.pad(starts_SxL, ((0, 0), (R, 0)))
        first_SxL = jnp.where(starts_SxL, indices_L, -self.reach)  # beyond the oldest word
        return jnp.broadcast_to(indices_L, (S, indices_L.size)) - jax.lax.cummax(first_SxL, axis=1)

    def inputs(self, e_SxLxM: jax.Array, ages_SxL: jax.Array | None = None) -> jax.Array:
        """Returns the inputs x after each of the last T words of each stream, S x T x P.

        Args:
            e_SxLxM: The word features of the R words in the state and of the T words.
            ages_SxL: The result of `ages`, or None if all words belong to a single line.
        """

        def of_line(values_SxIxM: jax.Array, last: int, distance: int) -> jax.Array:
            """Zeroes `values[:, k]` unless word `last` + k and the word `distance` before it are in the same line."""
            if ages_SxL is None:
                return values_SxIxM
            return jnp.where((ages_SxL[:, last:] >= distance)[:, :, None], values_SxIxM, 0)

        first, L = self.reach - 1, e_SxLxM.shape[1]
        slots = [of_line(e_SxLxM[:, first - i : L - i], first, i) for i in range(self.window)]
        T, size = L - first, self.window
        # sums[:, i] is the sum of the `size` words from word i on. Adding two sums of half the size avoids the rounding
        # errors of running sums.
        num_sums = L - size + 1
        sums = of_line(e_SxLxM[:, :num_sums], size - 1, size - 1)
        for i in range(1, size):
            sums = sums + of_line(e_SxLxM[:, i : num_sums + i], size - 1, size - 1 - i)
        for _ in range(self.averages):
            start = first + 1 - 2 * size
            slots.append(of_line(sums[:, start : start + T], first, size) / size**0.5)
            sums = of_line(sums[:, :-size], 2 * size - 1, size) + sums[:, size:]
            size *= 2
        return jnp.concatenate(slots, axis=2)

    def start(self, num_streams: int) -> State:
        """Returns zeros in place of the features of the last R words, S x R x M."""
        return jnp.zeros((num_streams, self.reach - 1, self.m))
