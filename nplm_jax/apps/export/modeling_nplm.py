"""Networks of nplm-jax in PyTorch, for Hugging Face transformers. `nplm export RUN --to=hf` copies this file as it is.

It needs PyTorch and transformers alone, and no JAX. There is no dropout: further training is without it.

A body reads texts word by word, and hands a state on: a tuple of tensors with one row for each text. It has three
members: `width`, the number D of its features; `start`, the state before the first word; and `forward`, which maps the
features of T words to those of the predictions of the words after each of them. The first call reads N rare-word
symbols before each text. Later calls, with the state of an earlier one, read new words alone.

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
from torch.nn.utils import rnn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

RARE_ID = 0  # the word <rare>, which stands for all words outside the vocabulary
ROTARY_BASE = 10_000.0

State = tuple[Tensor, ...]


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
        positions: Of these: rotary or learned.
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
        positions: str = 'rotary',
        n: int = 2,
        **kwargs: Any,
    ) -> None:
        self.family, self.vocab_size, self.num_context = family, vocab_size, num_context
        self.m, self.h, self.direct, self.tied, self.projected = m, h, direct, tied, projected
        self.layers, self.window, self.averages = layers, window, averages
        self.expansion, self.rounds = expansion, rounds
        self.heads, self.memory, self.positions, self.n = heads, memory, positions, n
        self.hidden_size, self.num_hidden_layers = h, layers  # by the names of transformers
        super().__init__(**{'tie_word_embeddings': False, **kwargs})


def read_on(old: Tensor, new: Tensor, num_words: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Puts the values of new words after those of older ones.

    Args:
        old: The values of older words, B x S x ...
        new: Those of T new words, B x T x ...
        num_words: How many of the new words of each text are words, and not the padding after them, B.
        size: How many values the next state has, if there are as many.

    Returns:
        All values, B x (S + T) x ..., and the last ones before the padding, B x min(size, S + T) x ... A text that is
        shorter than others has in the first places some that are not its last ones.
    """
    values = torch.cat([old, new], dim=1)
    places = torch.arange(-min(size, values.shape[1]), 0, device=new.device) + old.shape[1] + num_words[:, None]
    texts = torch.arange(len(new), device=new.device)[:, None]
    return values, values[texts, places.clamp(min=0)]


def concatenate(e: Tensor, num_words: int) -> Tensor:
    """Returns the features of the last words of each place, the most recent word first, B x T x P.

    Args:
        e: Features of words, B x (T + num_words - 1) x M.
        num_words: P / M.
    """
    return e.unfold(1, num_words, 1).flip(3).transpose(2, 3).flatten(2)


class Window(nn.Module):
    """The paper's network: x = (C(w_{t-1}), ..., C(w_{t-N})), a = tanh(d + H x). Returns (a, x), or one of them.

    The state is the features of the last N - 1 words, B x (N - 1) x M.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        P = config.num_context * config.m
        self.num_context, self.direct = config.num_context, config.direct
        self.H = nn.Linear(P, config.h) if config.h else None  # its bias is d
        self.width = config.h + (P if config.direct else 0)

    def start(self, e: Tensor) -> State:
        """Returns the state before the first word of texts; e are features of words, B x T x M."""
        return (e.new_zeros(len(e), self.num_context - 1, e.shape[2]),)

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """Reads T words of each text.

        Args:
            e: The features of the words, B x T x M.
            state: The state before these words.
            num_words: How many of each text are words, and not the padding after them, B.

        Returns:
            The features after each word, B x T x D, and the state after the last one before the padding.
        """
        e, before = read_on(state[0], e, num_words, self.num_context - 1)
        x = concatenate(e, self.num_context)
        a = [torch.tanh(self.H(x))] if self.H is not None else []
        return torch.cat([*a, x] if self.direct else a, dim=2), (before,)


class Recurrent(nn.Module):
    """Layers of a cell of PyTorch. The state is B x L x K, of an LSTM two of these: h and c."""

    cell_class: Callable[..., nn.Module]
    num_states = 1

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.cell = self.cell_class(config.m, config.h, num_layers=config.layers, batch_first=True)
        self.layers, self.width = config.layers, config.h

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        return (e.new_zeros(len(e), self.layers, self.width),) * self.num_states

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        is_padded = bool((num_words < e.shape[1]).any())
        lengths = num_words.clamp(min=1).cpu()  # PyTorch refuses a text without words
        x = rnn.pack_padded_sequence(e, lengths, batch_first=True, enforce_sorted=False) if is_padded else e
        before = tuple(value.transpose(0, 1).contiguous() for value in state)
        h, after = self.cell(x, before if self.num_states > 1 else before[0])
        if is_padded:
            h = rnn.pad_packed_sequence(h, batch_first=True, total_length=e.shape[1])[0]
        new = [value.transpose(0, 1) for value in (after if self.num_states > 1 else (after,))]
        has_words = num_words[:, None, None] > 0
        return h, tuple(torch.where(has_words, value, old) for value, old in zip(new, state))


class Rnn(Recurrent):
    """h_t = tanh(W_e e_t + W_h h_{t-1} + b)."""

    cell_class = nn.RNN


class Gru(Recurrent):
    """Gated recurrent units."""

    cell_class = nn.GRU


class Lstm(Recurrent):
    """Long short-term memory."""

    cell_class = nn.LSTM
    num_states = 2


class WindowLstm(nn.Module):
    """An LSTM that reads each window of N words from zeros. The state is that of Window."""

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.num_context, self.width = config.num_context, config.h
        self.cell = nn.LSTM(config.m, config.h, num_layers=config.layers, batch_first=True)

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        return (e.new_zeros(len(e), self.num_context - 1, e.shape[2]),)

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        e, before = read_on(state[0], e, num_words, self.num_context - 1)
        windows = e.unfold(1, self.num_context, 1).transpose(2, 3)
        h = self.cell(windows.flatten(0, 1))[0][:, -1]
        return h.unflatten(0, windows.shape[:2]), (before,)


class Mogrifier(nn.Module):
    """LSTM layers; before each word the input x and the state h of a layer scale each other, in rounds.

    The state is h and c of each layer, B x L x K.
    """

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

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        return (e.new_zeros(len(e), len(self.cells), self.width),) * 2

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        after: list[list[Tensor]] = [[], []]  # h and c of each layer
        for layer, (cell, rounds) in enumerate(zip(self.cells, self.rounds)):
            before = [value[:, layer] for value in state]
            h, c = before
            hs, cs = [], []
            for x in e.unbind(1):
                for i, weight in enumerate(rounds):
                    if i % 2:
                        h = 2 * torch.sigmoid(weight(x)) * h
                    else:
                        x = 2 * torch.sigmoid(weight(h)) * x
                h, c = cell(x, (h, c))
                hs.append(h)
                cs.append(c)
            e = torch.stack(hs, dim=1)
            for kept, old, new in zip(after, before, (e, torch.stack(cs, dim=1))):
                kept.append(read_on(old[:, None], new, num_words, 1)[1])
        return e, tuple(torch.cat(kept, dim=1) for kept in after)


class Qrnn(nn.Module):
    """Quasi-recurrent layers: (z, f, o) = (tanh, sigmoid, sigmoid)(W x_t + b), c := f c + (1 - f) z, h = o c.

    The first layer also has W' x_{t-1} in its sums. The state is c of each layer, B x L x K, and the features of the
    last word, B x 1 x M.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        widths = [config.m] + [config.h] * (config.layers - 1)
        self.W = nn.ModuleList(nn.Linear(width, 3 * config.h) for width in widths)  # their biases are b
        self.W_before = nn.Linear(config.m, 3 * config.h, bias=False)
        self.width = config.h

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        return e.new_zeros(len(e), len(self.W), self.width), e.new_zeros(len(e), 1, e.shape[2])

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        words, before = read_on(state[1], e, num_words, 1)
        shift, kept = self.W_before(words[:, :-1]), []
        for layer, W in enumerate(self.W):
            z, f, o = (W(e) + shift if layer == 0 else W(e)).chunk(3, dim=2)
            f, c, sums = torch.sigmoid(f), state[0][:, layer], []
            for forget, new in zip(f.unbind(1), ((1 - f) * torch.tanh(z)).unbind(1)):
                c = forget * c + new
                sums.append(c)
            values, last = read_on(state[0][:, layer, None], torch.stack(sums, dim=1), num_words, 1)
            kept.append(last)
            e = torch.sigmoid(o) * values[:, 1:]
        return e, (torch.cat(kept, dim=1), before)


class Layer(nn.Module):
    """z + B activation(A norm(z) + a)."""

    def __init__(self, K: int, F: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(K, bias=False)
        self.A, self.B = nn.Linear(K, F), nn.Linear(F, K, bias=False)
        self.activation = activation

    def forward(self, z: Tensor) -> Tensor:
        """Returns the next z."""
        return z + self.B(self.activation(self.A(self.norm(z))))


class Residual(nn.Module):
    """Residual layers over x = (the last words, the mean of as many before these, of twice as many before those, ...).

    A mean of n words is multiplied by the root of n. The state is the features of the words before the next one that
    x reaches, B x (window * 2**averages - 1) x M.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.window, self.averages = config.window, config.averages
        self.num_before = config.window * 2**config.averages - 1
        self.H = nn.Linear((config.window + config.averages) * config.m, config.h)  # its bias is d
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
    """z + O attention(norm(z)) of H heads, each of K / H numbers, to a word and the R words before it."""

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        K, self.heads, self.memory = config.h, config.heads, config.memory
        self.norm = nn.LayerNorm(K, bias=False)
        self.QKV, self.O = nn.Linear(K, 3 * K, bias=False), nn.Linear(K, K, bias=False)
        is_learned = config.positions == 'learned'
        self.distances = nn.Parameter(torch.zeros(config.memory + 1, config.heads)) if is_learned else None

    def forward(
        self, z: Tensor, keys: Tensor, values: Tensor, seen: Tensor, num_words: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Reads T words of each text.

        Args:
            z: The inputs, B x T x K.
            keys: The keys of the words before, B x S x H x (K / H); before rotation, so that angles stay small.
            values: Their values.
            seen: Which of the S + T words each word attends to, B x T x (S + T).
            num_words: How many of each text are words, B.

        Returns:
            The next z, and the keys and values of the next state.
        """
        q, k, v = self.QKV(self.norm(z)).unflatten(2, (3, self.heads, -1)).unbind(2)
        k, next_keys = read_on(keys, k, num_words, self.memory)
        v, next_values = read_on(values, v, num_words, self.memory)
        places = torch.arange(-keys.shape[1], z.shape[1], device=z.device)
        mask = seen[:, None]
        if self.distances is None:
            q, k = rotate(q, places[keys.shape[1] :]), rotate(k, places)
        else:
            distances = (places[keys.shape[1] :, None] - places).clamp(0, self.memory)
            mask = self.distances[distances].permute(2, 0, 1).masked_fill(~mask, -torch.inf)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, mask)
        return z + self.O(y.transpose(1, 2).flatten(2)), next_keys, next_values


def rotate(x: Tensor, places: Tensor) -> Tensor:
    """Rotates pairs of numbers by angles that grow with the place; of an odd number the last is left as it is.

    Args:
        x: Queries or keys, B x T x H x (K / H).
        places: The place of each word, T.
    """
    pairs = x.shape[3] // 2
    rates = ROTARY_BASE ** (-torch.arange(pairs, device=x.device) / max(pairs, 1))
    angles = places[:, None, None] * rates  # T x 1 x pairs
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right, rest = x.split([pairs, pairs, x.shape[3] - 2 * pairs], dim=3)
    return torch.cat([left * cos - right * sin, left * sin + right * cos, rest], dim=3)


def gelu(x: Tensor) -> Tensor:
    """Returns x times the normal distribution function, as approximated with tanh."""
    return functional.gelu(x, approximate='tanh')


class Transformer(nn.Module):
    """transformer and transformer_n: attention and feed-forward layers over z_0 = E x, x the last n - 1 words.

    The state is the number of words in it that belong to each text, B; the features of the last n - 2 words,
    B x (n - 2) x M; and the keys and values of each layer, B x S x H x (K / H), the first layer's first.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.num_inputs, self.memory, self.shape = config.n - 1, config.memory, (config.heads, config.h // config.heads)
        self.E = nn.Linear(self.num_inputs * config.m, config.h, bias=False)
        self.attentions = nn.ModuleList(Attention(config) for _ in range(config.layers))
        self.layers = nn.ModuleList(Layer(config.h, config.h * config.expansion, gelu) for _ in range(config.layers))
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
        seen = self.visible(num_kept, caches[0].shape[1], e.shape[1])
        words, before = read_on(before, e, num_words, self.num_inputs - 1)
        z, kept = self.E(concatenate(words, self.num_inputs)), []
        for attention, layer, keys, values in zip(self.attentions, self.layers, caches[::2], caches[1::2]):
            z, *cache = attention(z, keys, values, seen, num_words)
            kept += cache
            z = layer(z)
        return self.norm(z), ((num_kept + num_words).clamp(max=self.memory), before, *kept)

    def visible(self, num_kept: Tensor, S: int, T: int) -> Tensor:
        """Returns which of the S + T words each of the T words attends to, B x T x (S + T).

        Args:
            num_kept: How many of the S words, the last ones, belong to each text, B.
            S: Words in the state.
            T: New words.
        """
        places = torch.arange(-S, T, device=num_kept.device)
        new = places[S:, None]
        oldest = torch.maximum(-num_kept[:, None, None], new - self.memory)
        return (places >= oldest) & (places <= new)


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
