"""Configuration of the networks of nplm-jax in PyTorch; see modeling_nplm.py."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig


class NplmConfig(PretrainedConfig):
    """The shape of a network.

    Attributes:
        family: The name of the body: a key of BODIES.
        vocab_size: V. The padding symbol of the tokenizer has id V and no row in any matrix.
        num_context: N; 1 for a network that reads the text as a stream.
        m: Features per word.
        h: Hidden units; 0 for none.
        direct: Of nplm: direct connections from x to the output.
        tied: The word features are the output matrix too.
        projected: Of a tied network: the features of the body are projected to the width of the word features.
        layers: Of all but nplm: layers.
        window: Of residual: the last words whose features are inputs.
        averages: Of residual: scaled sums of older words that are inputs.
        expansion: Of residual, transformer and transformer_n: units inside a layer, as a multiple of h.
        rounds: Of mogrifier: rounds before a word.
        heads: Of transformer and transformer_n: H.
        memory: Of these: R.
        n: Of transformer_n: the last n - 1 words are inputs of the first layer.
    """

    model_type = 'nplm-jax'

    def __init__(
        self,
        family: str = 'nplm',
        vocab_size: int = 2,
        num_context: int = 1,
        m: int = 1,
        h: int = 1,
        direct: bool = False,
        tied: bool = False,
        projected: bool = False,
        layers: int = 1,
        window: int = 1,
        averages: int = 0,
        expansion: int = 1,
        rounds: int = 1,
        heads: int = 1,
        memory: int = 1,
        n: int = 2,
        **kwargs: Any,
    ) -> None:
        self.family, self.vocab_size, self.num_context = family, vocab_size, num_context
        self.m, self.h, self.direct, self.tied, self.projected = m, h, direct, tied, projected
        self.layers, self.window, self.averages = layers, window, averages
        self.expansion, self.rounds = expansion, rounds
        self.heads, self.memory, self.n = heads, memory, n
        self.hidden_size, self.num_hidden_layers = h, layers  # by the names of transformers
        super().__init__(**{'tie_word_embeddings': False, **kwargs})
