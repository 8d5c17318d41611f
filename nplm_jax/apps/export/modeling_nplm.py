"""Networks of nplm-jax in PyTorch, for Hugging Face transformers.

`nplm export RUN --to=hf` copies this file and those that it imports, which need only PyTorch and transformers. There is
no dropout: further training is without it.

Dims: B texts, T words of a text, V vocabulary, N words before a text that a network reads (<rare>), M features per word
(m), K hidden units (h), P inputs of the first layer, D features of the output matrix, F units inside a layer, L layers,
H heads, R words before a word that a Transformer attends to, S words whose keys and values are in its state, at most R.

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

from .bodies_nplm import Gru, Lstm, Mogrifier, Qrnn, Rnn, State, Window, WindowLstm
from .configuration_nplm import NplmConfig
from .deep_bodies_nplm import Residual, Transformer

RARE_ID = 0  # the word <rare>, which stands for all words outside the vocabulary
BODIES: dict[str, Callable[[NplmConfig], Any]] = {
    'nplm': Window,
    'residual': Residual,
    'rnn': Rnn,
    'gru': Gru,
    'lstm': Lstm,
    'window_lstm': WindowLstm,
    'mogrifier': Mogrifier,
    'qrnn': Qrnn,
    'transformer': Transformer,
    'transformer_n': Transformer,
}


class NplmForCausalLM(PreTrainedModel, GenerationMixin):
    """Predicts the next word: y = b + U times the features of the body, or b + C times P times them if it is tied.

    With direct connections U has the columns of the paper's U, then those of its W. `generate` reads each word once.
    """

    config_class = NplmConfig
    accepts_loss_kwargs = False  # the loss is a mean over the words of this batch alone
    _is_stateful = True  # a state cannot be taken back by some words, as assisted generation would

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
        """Computes the scores of the word after each word.

        Args:
            input_ids: Word ids, B x T.
            attention_mask: 0 for padding on the left or on the right, B x T; by default the id V is padding. Padding on
                the left changes nothing: there the scores are those of the first word. With a state there may be
                columns for the words before, which are not read; scores after padding on the left mean nothing then.
            labels: The ids of the same words, or -100 for words that do not count in the loss. The first word of a text
                never counts.
            return_dict: Whether an object or a tuple is returned.
            use_cache: Whether the state after the last word of each text is returned.
            cache: The state that an earlier call returned; `input_ids` are the words that follow.
            past_key_values: The same, by its name in versions of transformers before `cache`.
            kwargs: Not used; others of transformers' models.

        Returns:
            `logits`, B x T x V, whose softmax is P(next word); with labels `loss`, nats a word; with `use_cache` the
            state, by the name that this version of transformers has for it: `cache` or `past_key_values`.
        """
        V, T = self.config.vocab_size, input_ids.shape[1]
        state = past_key_values if cache is None else cache
        num_before = self.config.num_context if state is None else 0  # rare-word symbols
        is_word = input_ids < V
        if attention_mask is not None:
            is_word = is_word & attention_mask[:, -T:].bool()
        positions = torch.arange(T, device=input_ids.device)[None, :]
        first = is_word.int().argmax(dim=1, keepdim=True)  # of each text, from which its words are read
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
        output = CausalLMOutputWithPast(loss, logits, state if use_cache else None)  # by place: see `cache`
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
        """Returns the arguments of `forward`: the last word with the state before it, or the whole text without."""
        state = past_key_values if cache is None else cache
        ids = input_ids if state is None else input_ids[:, -1:]
        return {'input_ids': ids, 'attention_mask': attention_mask, 'use_cache': use_cache, 'cache': state}

    def _reorder_cache(self, state: State, beam_idx: Tensor) -> State:
        """Returns the states of the texts that beam search goes on with."""
        return tuple(value.index_select(0, beam_idx) for value in state)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Returns that `generate` does not make a cache: `forward` makes the state."""
        return False
