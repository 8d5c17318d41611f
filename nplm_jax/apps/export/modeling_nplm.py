"""PyTorch versions of nplm-jax networks, for Hugging Face transformers.

`nplm export RUN --to=hf` copies this file and the files that it imports. They require only PyTorch and transformers.
The networks have no dropout, even if they are trained further.

Dims: B texts, T words in a text, V vocabulary, N context words (filled with <rare> before a text), M features per word
(m), K hidden units (h), P inputs of the first layer, D output features, F inner units of a layer, L layers, H attention
heads, R previous words to which a word attends, S of these words in the state, at most R.

References:
    Bengio et al., A neural probabilistic language model, JMLR 3, 2003, equation 1: y = b + W x + U tanh(d + H x).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .bodies_nplm import AttentiveMogrifier, Mogrifier, Qrnn, Recurrent, State, Window, WindowLstm
from .configuration_nplm import NplmConfig
from .deep_bodies_nplm import Residual, Transformer

RARE_ID = 0  # the id of <rare>, the symbol for out-of-vocabulary words
BODIES: dict[str, Callable[[NplmConfig], Any]] = {
    'nplm': Window,
    'residual': Residual,
    'rnn': Recurrent,
    'gru': Recurrent,
    'lstm': Recurrent,
    'window_lstm': WindowLstm,
    'mogrifier': Mogrifier,
    'attentive_mogrifier': AttentiveMogrifier,
    'qrnn': Qrnn,
    'transformer': Transformer,
    'transformer_n': Transformer,
}


class NplmForCausalLM(PreTrainedModel, GenerationMixin):
    """A causal language model with logits y = b + U f or, with weight tying, y = b + C P f for output features f.

    With direct connections, U consists of the columns of the paper's U and W. `generate` reads each word only once.
    """

    config_class = NplmConfig
    accepts_loss_kwargs = False  # the loss is always the mean over the words of one batch
    _is_stateful = True  # states cannot be rolled back, which assisted generation would require

    def __init__(self, config: NplmConfig) -> None:
        super().__init__(config)
        self.C = nn.Embedding(config.vocab_size, config.m)
        self.body = BODIES[config.family](config)
        self.P = nn.Linear(config.h, config.m, bias=False) if config.projected else nn.Identity()
        self.U = None if config.tied else nn.Linear(self.body.width, config.vocab_size, bias=False)
        self.b = nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Returns the word features C."""
        return self.C

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        use_cache: bool | None = None,
        cache: State | None = None,
        past_key_values: State | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Computes the logits of the next word at each position.

        Args:
            input_ids: Word ids, B x T.
            attention_mask: 0 for padding on the left or on the right, B x T. By default, the id V is padding. Left
                padding does not affect the words, and its logits predict the first word. With a state, the mask may
                include columns for previous words, which are ignored. The logits at left padding are then undefined.
            labels: The ids of the same words, or -100 for words to exclude from the loss, B x T. The first word of each
                text is always excluded.
            return_dict: Whether to return an object or a tuple.
            use_cache: Whether to return the state after the last word of each text.
            cache: The state returned by a previous call, whose texts `input_ids` continue.
            past_key_values: An alias for `cache`, for older versions of transformers.
            kwargs: Arguments that other models accept. They are ignored.

        Returns:
            `logits`, B x T x V, whose softmax is P(next word). With labels, also `loss`, in nats per word. With
            `use_cache`, also the state, as `cache` or `past_key_values`, depending on the version of transformers.
        """
        V, T = self.config.vocab_size, input_ids.shape[1]
        state = past_key_values if cache is None else cache
        num_before = self.config.num_context if state is None else 0  # rare-word symbols
        is_word = input_ids < V
        if attention_mask is not None:
            is_word = is_word & attention_mask[:, -T:].bool()
        positions = torch.arange(T, device=input_ids.device)[None, :]
        first = is_word.int().argmax(dim=1, keepdim=True)  # the position of the first word in each text
        num_words = num_before + ((positions + 1) * is_word).amax(dim=1) - first[:, 0]
        ids = input_ids.masked_fill(~is_word, RARE_ID).gather(1, (positions + first) % T)
        e = self.C(functional.pad(ids, (num_before, 0), value=RARE_ID))
        features, state = self.body(e, self.body.start(e) if state is None else state, num_words)
        features = self.P(features)
        last_read = (num_before + (positions - first).clamp(min=-1)).clamp(min=0)
        features = features.gather(1, last_read[:, :, None].expand(-1, -1, features.shape[2]))
        logits = functional.linear(features, self.C.weight if self.U is None else self.U.weight) + self.b
        loss = None
        if labels is not None:
            does_not_count = (labels >= V) | (positions == first)
            targets = labels.masked_fill(does_not_count, -100)[:, 1:]
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten())
        # Pass the state by position, because its name depends on the version of transformers.
        output = CausalLMOutputWithPast(loss, logits, state if use_cache else None)
        return output.to_tuple() if return_dict is False else output

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        cache: State | None = None,
        past_key_values: State | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Returns the arguments of `forward`: the last word and its state, or the whole text if there is no state."""
        state = past_key_values if cache is None else cache
        ids = input_ids if state is None else input_ids[:, -1:]
        return {'input_ids': ids, 'attention_mask': attention_mask, 'use_cache': use_cache, 'cache': state}

    def _reorder_cache(self, state: State, beam_idx: Tensor) -> State:
        """Returns the states of the texts that beam search continues."""
        return tuple(value.index_select(0, beam_idx) for value in state)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Returns False, because `forward`, not `generate`, creates the initial state."""
        return False
