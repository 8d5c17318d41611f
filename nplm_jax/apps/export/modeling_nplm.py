"""Networks of nplm-jax in PyTorch, for Hugging Face transformers. `nplm export RUN --to=hf` copies this file as it is.

It needs PyTorch and transformers alone, and no JAX. There is no dropout: further training is without it.

Dims: B texts, T words of a text, V vocabulary, N words before a text that a network reads (<rare>), M features per word
(m), K hidden units (h), P = N * M, D features of the output matrix. A body maps the features e of the N + T words to
those of the T + 1 predictions: of the word after nothing, after the first word, ..., after the last.

References:
    Bengio et al., A neural probabilistic language model, JMLR 3, 2003, equation 1: y = b + W x + U tanh(d + H x).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

RARE_ID = 0  # the word <rare>, which stands for all words outside the vocabulary


class NplmConfig(PretrainedConfig):
    """The shape of a network.

    Attributes:
        family: nplm, residual, rnn, gru, lstm, window_lstm or mogrifier.
        vocab_size: V. The padding symbol of the tokenizer has id V and no row in any matrix.
        num_context: N; 1 for a network that reads the text as a stream.
        m: Features per word.
        h: Hidden units; 0 for none.
        direct: Of nplm: direct connections from x to the output.
        tied: The word features are the output matrix too.
        layers: Of the others: layers.
        window: Of residual: the last words whose features are inputs.
        averages: Of residual: scaled sums of older words that are inputs.
        expansion: Of residual: units inside a layer, as a multiple of h.
        rounds: Of mogrifier: rounds before a word.
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
        layers: int = 1,
        window: int = 1,
        averages: int = 0,
        expansion: int = 1,
        rounds: int = 1,
        **kwargs: Any,
    ) -> None:
        self.family, self.vocab_size, self.num_context = family, vocab_size, num_context
        self.m, self.h, self.direct, self.tied, self.layers = m, h, direct, tied, layers
        self.window, self.averages, self.expansion, self.rounds = window, averages, expansion, rounds
        self.hidden_size, self.num_hidden_layers = h, layers  # by the names of transformers
        super().__init__(**{'tie_word_embeddings': False, **kwargs})


class Window(nn.Module):
    """The paper's network: x = (C(w_{t-1}), ..., C(w_{t-N})), a = tanh(d + H x). Returns (a, x), or one of them."""

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        P = config.num_context * config.m
        self.num_context, self.direct = config.num_context, config.direct
        self.H = nn.Linear(P, config.h) if config.h else None  # its bias is d
        self.width = config.h + (P if config.direct else 0)

    def forward(self, e: Tensor) -> Tensor:
        """Returns the features, B x (T + 1) x D."""
        x = e.unfold(1, self.num_context, 1).flip(3).transpose(2, 3).flatten(2)
        a = [torch.tanh(self.H(x))] if self.H is not None else []
        return torch.cat([*a, x] if self.direct else a, dim=2)


class Recurrent(nn.Module):
    """rnn, gru and lstm, which read the words as a stream; window_lstm reads each window of N words from zeros."""

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        cell = {'rnn': nn.RNN, 'gru': nn.GRU}.get(config.family, nn.LSTM)
        self.num_context = config.num_context
        self.cell = cell(config.m, config.h, num_layers=config.layers, batch_first=True)
        self.width = config.h

    def forward(self, e: Tensor) -> Tensor:
        """Returns the features, B x (T + 1) x D."""
        if self.num_context == 1:
            h = self.cell(e)[0]
        else:
            windows = e.unfold(1, self.num_context, 1).transpose(2, 3)
            h = self.cell(windows.flatten(0, 1))[0][:, -1].unflatten(0, windows.shape[:2])
        return h


class Mogrifier(nn.Module):
    """LSTM layers; before each word the input x and the state h of a layer scale each other, in rounds."""

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        widths = [config.m] + [config.h] * (config.layers - 1)
        self.cells = nn.ModuleList(nn.LSTMCell(width, config.h) for width in widths)
        self.rounds = nn.ModuleList(
            nn.ModuleList(
                nn.Linear(width, config.h, bias=False) if i % 2 else nn.Linear(config.h, width, bias=False)
                for i in range(config.rounds)
            )
            for width in widths
        )
        self.width = config.h

    def forward(self, e: Tensor) -> Tensor:
        """Returns the features, B x (T + 1) x D."""
        for cell, rounds in zip(self.cells, self.rounds):
            h = c = e.new_zeros(e.shape[0], cell.hidden_size)
            outputs = []
            for x in e.unbind(1):
                for i, weight in enumerate(rounds):
                    if i % 2:
                        h = 2 * torch.sigmoid(weight(x)) * h
                    else:
                        x = 2 * torch.sigmoid(weight(h)) * x
                h, c = cell(x, (h, c))
                outputs.append(h)
            e = torch.stack(outputs, dim=1)
        return e


class Layer(nn.Module):
    """z + B relu(A norm(z) + a)."""

    def __init__(self, K: int, F: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(K, bias=False)
        self.A, self.B = nn.Linear(K, F), nn.Linear(F, K, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        """Returns the next z."""
        return z + self.B(functional.relu(self.A(self.norm(z))))


class Residual(nn.Module):
    """Residual layers over x = (the last words, the mean of as many before these, of twice as many before those, ...).

    A mean of n words is multiplied by the root of n.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.window, self.averages = config.window, config.averages
        self.H = nn.Linear((config.window + config.averages) * config.m, config.h)  # its bias is d
        self.layers = nn.ModuleList(Layer(config.h, config.h * config.expansion) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.h, bias=False)
        self.width = config.h

    def forward(self, e: Tensor) -> Tensor:
        """Returns the features, B x (T + 1) x D. The features of the words before the N + T ones are zero."""
        first, num_outputs, size = self.window * 2**self.averages - 1, e.shape[1], self.window
        e = functional.pad(e, (0, 0, first, 0))
        x = [e[:, first - i : first - i + num_outputs] for i in range(self.window)]
        for _ in range(self.averages):
            means = functional.avg_pool1d(e.transpose(1, 2), size, stride=1).transpose(1, 2)
            start = first + 1 - 2 * size
            x.append(means[:, start : start + num_outputs] * size**0.5)
            size *= 2
        z = self.H(torch.cat(x, dim=2))
        for layer in self.layers:
            z = layer(z)
        return self.norm(z)


class NplmForCausalLM(PreTrainedModel, GenerationMixin):
    """Predicts the next word: y = b + U times the features of the body, or b + C times P times them if it is tied.

    With direct connections U has the columns of the paper's U, then those of its W.
    """

    config_class = NplmConfig
    accepts_loss_kwargs = False  # the loss is a mean over the words of this batch alone

    def __init__(self, config: NplmConfig) -> None:
        super().__init__(config)
        self.C = nn.Embedding(config.vocab_size, config.m)
        bodies: dict[str, Any] = {'nplm': Window, 'residual': Residual, 'mogrifier': Mogrifier}
        self.body = bodies.get(config.family, Recurrent)(config)
        projected = config.tied and (config.h != config.m or config.family == 'residual')
        self.P = nn.Linear(config.h, config.m, bias=False) if projected else nn.Identity()
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
        **kwargs: Any,
    ) -> CausalLMOutput | tuple[Tensor, ...]:
        """Computes the scores of the word after each word.

        Args:
            input_ids: Word ids, B x T.
            attention_mask: 0 for padding on the left or on the right, B x T; by default the id V is padding. Padding on
                the left changes nothing: there the scores are those of the first word.
            labels: The ids of the same words, or -100 for words that do not count in the loss.
            return_dict: Whether an object or a tuple is returned.
            kwargs: Not used; others of transformers' models.

        Returns:
            `logits`, B x T x V, whose softmax is P(next word), and with labels `loss`, nats a word.
        """
        V, N, T = self.config.vocab_size, self.config.num_context, input_ids.shape[1]
        is_word = input_ids < V
        if attention_mask is not None:
            is_word = is_word & attention_mask.bool()
        first = is_word.int().argmax(dim=1, keepdim=True)  # of each text, from which its words are read
        positions = torch.arange(T, device=input_ids.device)[None, :]
        ids = input_ids.masked_fill(~is_word, RARE_ID).gather(1, (positions + first) % T)
        features = self.P(self.body(self.C(functional.pad(ids, (N, 0), value=RARE_ID))))
        num_read = (positions - first + 1).clamp(min=0)[:, :, None].expand(-1, -1, features.shape[2])
        logits = functional.linear(features.gather(1, num_read), self.C.weight if self.U is None else self.U.weight)
        logits = logits + self.b
        loss = None
        if labels is not None:
            targets = labels.masked_fill(labels >= V, -100)[:, 1:]
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten())
        if return_dict is False:
            return (logits,) if loss is None else (loss, logits)
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Tensor | None]:
        """Returns the arguments of `forward`: the whole text at every step, since there is no cache."""
        return {'input_ids': input_ids, 'attention_mask': attention_mask}
