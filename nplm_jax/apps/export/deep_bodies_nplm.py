"""PyTorch versions of the residual and Transformer bodies of nplm-jax. modeling_nplm.py defines the dims."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .bodies_nplm import State, concatenate, read_on, visible
from .configuration_nplm import NplmConfig

ROTARY_BASE = 10_000.0


class Layer(nn.Module):
    """A residual feed-forward layer: z + B activation(A norm(z) + a)."""

    def __init__(self, K: int, F: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(K, bias=False)
        self.A, self.B = nn.Linear(K, F), nn.Linear(F, K, bias=False)
        self.activation = activation

    def forward(self, z: Tensor) -> Tensor:
        """Returns the output of the layer, which has the same shape as z."""
        return z + self.B(self.activation(self.A(self.norm(z))))


class Residual(nn.Module):
    """Residual layers over x, which consists of the features of the last words and of means over earlier words.

    The first mean is over as many words as x contains last words, and each further mean is over twice as many. A mean
    over n words is multiplied by sqrt(n). The state contains the features of the previous words in x, with shape
    B x (window * 2**averages - 1) x M.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.window, self.averages = config.window, config.averages
        self.num_before = config.window * 2**config.averages - 1
        self.H = nn.Linear((config.window + config.averages) * config.m, config.h)  # with bias d
        F = config.h * config.expansion
        self.layers = nn.ModuleList(Layer(config.h, F, functional.relu) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.h, bias=False)
        self.width = config.h

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        return (e.new_zeros(len(e), self.num_before, e.shape[2]),)

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        first, num_outputs, size = self.num_before, e.shape[1], self.window
        e, before = read_on(state[0], e, num_words, first)
        x = [e[:, first - i : first - i + num_outputs] for i in range(self.window)]
        for _ in range(self.averages):
            means = functional.avg_pool1d(e.transpose(1, 2), size, stride=1).transpose(1, 2)
            start = first + 1 - 2 * size
            x.append(means[:, start : start + num_outputs] * size**0.5)
            size *= 2
        z = self.H(torch.cat(x, dim=2))
        for layer in self.layers:
            z = layer(z)
        return self.norm(z), (before,)


class Attention(nn.Module):
    """Residual causal self-attention over the last R + 1 words, with H heads: z + O attention(norm(z))."""

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        K, self.heads, self.memory = config.h, config.heads, config.memory
        self.norm = nn.LayerNorm(K, bias=False)
        self.QKV, self.O = nn.Linear(K, 3 * K, bias=False), nn.Linear(K, K, bias=False)

    def forward(
        self, z: Tensor, keys: Tensor, values: Tensor, seen: Tensor, num_words: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reads T words of each text.

        Args:
            z: The inputs, B x T x K.
            keys: The keys of S previous words, B x S x H x (K / H). They are stored without rotary embeddings, so
                that the angles stay small.
            values: The attention values of the S previous words, B x S x H x (K / H).
            seen: The attention mask, B x T x (S + T).
            num_words: The number of words in each text, excluding padding on the right, B.

        Returns:
            The outputs, B x T x K, and the keys and values of the next state.
        """
        q, k, v = self.QKV(self.norm(z)).unflatten(2, (3, self.heads, -1)).unbind(2)
        k, next_keys = read_on(keys, k, num_words, self.memory)
        v, next_values = read_on(values, v, num_words, self.memory)
        positions = torch.arange(-keys.shape[1], z.shape[1], device=z.device)
        q, k = rotate(q, positions[keys.shape[1] :]), rotate(k, positions)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, seen[:, None])
        return z + self.O(y.transpose(1, 2).flatten(2)), next_keys, next_values


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Applies rotary position embeddings. If the head size is odd, the last unit is unchanged.

    Args:
        x: Queries or keys, B x T x H x (K / H).
        positions: The position of each word, T.

    References:
        Su et al., RoFormer: enhanced Transformer with rotary position embedding, 2021.
    """
    pairs = x.shape[3] // 2
    rates = ROTARY_BASE ** (-torch.arange(pairs, device=x.device) / max(pairs, 1))
    angles = positions[:, None, None] * rates  # T x 1 x pairs
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right, rest = x.split([pairs, pairs, x.shape[3] - 2 * pairs], dim=3)
    return torch.cat([left * cos - right * sin, left * sin + right * cos, rest], dim=3)


class Transformer(nn.Module):
    """Attention and feed-forward layers over z_0 = E x, for the families transformer and transformer_n.

    x contains the features of the last n - 1 words. The state consists of the number of valid words in each text, B;
    the features of the last n - 2 words, B x (n - 2) x M; and for each layer the keys and the values of the last S
    words, each B x S x H x (K / H).
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.num_inputs, self.memory, self.shape = config.n - 1, config.memory, (config.heads, config.h // config.heads)
        self.E = nn.Linear(self.num_inputs * config.m, config.h, bias=False)
        self.attentions = nn.ModuleList(Attention(config) for _ in range(config.layers))
        F, gelu = config.h * config.expansion, nn.GELU(approximate='tanh')
        self.layers = nn.ModuleList(Layer(config.h, F, gelu) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.h, bias=False)
        self.width = config.h

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        num_kept = torch.zeros(len(e), dtype=torch.long, device=e.device)
        caches = (e.new_zeros(len(e), 0, *self.shape),) * (2 * len(self.layers))
        return num_kept, e.new_zeros(len(e), self.num_inputs - 1, e.shape[2]), *caches

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        num_kept, before, *caches = state
        seen = visible(self.memory, num_kept, caches[0].shape[1], e.shape[1])
        words, before = read_on(before, e, num_words, self.num_inputs - 1)
        z, kept = self.E(concatenate(words, self.num_inputs)), []
        for attention, layer, keys, values in zip(self.attentions, self.layers, caches[::2], caches[1::2]):
            z, *cache = attention(z, keys, values, seen, num_words)
            kept += cache
            z = layer(z)
        return self.norm(z), ((num_kept + num_words).clamp(max=self.memory), before, *kept)
