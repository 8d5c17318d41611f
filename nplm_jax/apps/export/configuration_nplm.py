"""The configuration of nplm-jax networks in PyTorch. See modeling_nplm.py."""

from __future__ import annotations

from typing import Any

from transformers import PretrainedConfig


class NplmConfig(PretrainedConfig):
    """The hyperparameters of a network.

    Attributes:
        family: The name of the body, which is a key of BODIES.
        vocab_size: The vocabulary size V. The padding token of the tokenizer has id V and no row in any matrix.
        num_context: The number N of context words. 1 for a network that reads the text as a stream.
        m: The number of features per word.
        h: The number of hidden units. 0 for a network without a hidden layer.
        direct: For nplm, whether x is directly connected to the output.
        tied: Whether the word features also serve as the output matrix (weight tying).
        projected: With weight tying, whether the output features are projected to the width of the word features.
        layers: The number of layers. The family nplm ignores this value.
        window: For residual, the number of most recent words whose features are inputs.
        averages: For residual, the number of scaled averages of older words that are also inputs.
        expansion: For residual, transformer and transformer_n, the inner width of a layer, as a multiple of h.
        rounds: For mogrifier and attentive_mogrifier, the number of gating rounds before each word.
        heads: For transformer and transformer_n, the number H of attention heads.
        memory: For transformer, transformer_n and attentive_mogrifier, the number R of previous words to which a word
            attends.
        n: For transformer_n, the order: the first layer receives the last n - 1 words.
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
        self.hidden_size, self.num_hidden_layers = h, layers  # transformers requires these names
        super().__init__(**{'tie_word_embeddings': False, **kwargs})
