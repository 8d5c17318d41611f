"""PyTorch versions of the window and recurrent bodies of nplm-jax. modeling_nplm.py defines the dims.

A body processes texts incrementally. Its state is a tuple of tensors with one row per text. Each body has three
members: `width` is the number D of output features, `start` returns the initial state, and `forward` maps the features
of T words to the output features that predict the next word at each position. The first call must include the N
rare-word symbols before each text. Later calls continue from a state and receive only new words.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from .configuration_nplm import NplmConfig

State = tuple[Tensor, ...]
CELLS: dict[str, Callable[..., nn.Module]] = {'rnn': nn.RNN, 'gru': nn.GRU, 'lstm': nn.LSTM}


def read_on(old: Tensor, new: Tensor, num_words: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Appends the values of new words to the values of older words.

    Args:
        old: The values of S older words, B x S x ...
        new: The values of T new words, B x T x ...
        num_words: The number of new words in each text, excluding padding on the right, B.
        size: The maximum number of values in the next state.

    Returns:
        All values, B x (S + T) x ..., and the last values before the padding, B x min(size, S + T) x ... In a text with
        fewer words, the first of these last values may be invalid.
    """
    values = torch.cat([old, new], dim=1)
    positions = torch.arange(-min(size, values.shape[1]), 0, device=new.device) + old.shape[1] + num_words[:, None]
    texts = torch.arange(len(new), device=new.device)[:, None]
    return values, values[texts, positions.clamp(min=0)]


def concatenate(e: Tensor, num_words: int) -> Tensor:
    """Concatenates the features of the most recent words at each position, the most recent first.

    Args:
        e: Word features, B x (T + num_words - 1) x M.
        num_words: The number of words to concatenate.

    Returns:
        The concatenated features, B x T x P, where P = num_words * M.
    """
    return e.unfold(1, num_words, 1).flip(3).transpose(2, 3).flatten(2)


def visible(memory: int, num_kept: Tensor, S: int, T: int) -> Tensor:
    """Returns the attention mask of new words, B x T x (S + T).

    Args:
        memory: The number R of previous words to which a word attends.
        num_kept: The number of valid words at the end of each text's state, B.
        S: The number of words in the state.
        T: The number of new words.
    """
    positions = torch.arange(-S, T, device=num_kept.device)
    new = positions[S:, None]
    oldest = torch.maximum(-num_kept[:, None, None], new - memory)
    return (positions >= oldest) & (positions <= new)


class Window(nn.Module):
    """The hidden layer of the paper's network: x = (C(w_{t-1}), ..., C(w_{t-N})), a = tanh(d + H x).

    The output features are a, followed by x if there are direct connections. The state contains the features of the
    last N - 1 words, B x (N - 1) x M.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        P = config.num_context * config.m
        self.num_context, self.direct = config.num_context, config.direct
        self.H = nn.Linear(P, config.h) if config.h else None  # its bias is d
        self.width = config.h + (P if config.direct else 0)

    def start(self, e: Tensor) -> State:
        """Returns the initial state of texts with word features e, B x T x M."""
        return (e.new_zeros(len(e), self.num_context - 1, e.shape[2]),)

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """Reads T words of each text.

        Args:
            e: The features of the words, B x T x M.
            state: The state before these words.
            num_words: The number of words in each text, excluding padding on the right, B.

        Returns:
            The output features after each word, B x T x D, and the state after the last word before the padding.
        """
        e, before = read_on(state[0], e, num_words, self.num_context - 1)
        x = concatenate(e, self.num_context)
        a = [torch.tanh(self.H(x))] if self.H is not None else []
        return torch.cat([*a, x] if self.direct else a, dim=2), (before,)


class Recurrent(nn.Module):
    """A recurrent network from PyTorch: rnn, gru or lstm.

    The state consists of h and, for an LSTM, of c, each B x L x K.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        self.cell = CELLS[config.family](config.m, config.h, num_layers=config.layers, batch_first=True)
        self.num_states = 2 if config.family == 'lstm' else 1
        self.layers, self.width = config.layers, config.h

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        return (e.new_zeros(len(e), self.layers, self.width),) * self.num_states

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        is_padded = bool((num_words < e.shape[1]).any())
        lengths = num_words.clamp(min=1).cpu()  # PyTorch rejects lengths of zero
        x = rnn.pack_padded_sequence(e, lengths, batch_first=True, enforce_sorted=False) if is_padded else e
        before = tuple(value.transpose(0, 1).contiguous() for value in state)
        h, after = self.cell(x, before if self.num_states > 1 else before[0])
        if is_padded:
            h = rnn.pad_packed_sequence(h, batch_first=True, total_length=e.shape[1])[0]
        new = [value.transpose(0, 1) for value in (after if self.num_states > 1 else (after,))]
        has_words = num_words[:, None, None] > 0
        return h, tuple(torch.where(has_words, value, old) for value, old in zip(new, state))


class WindowLstm(nn.Module):
    """An LSTM that reads each window of N words, starting from a zero state. Its `State` is the same as in `Window`."""

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
    """A Mogrifier LSTM: before each step of a layer, the input x and the state h gate each other for several rounds.

    The state consists of h and c of each layer, each B x L x K.

    References:
        Melis et al., Mogrifier LSTM, ICLR 2020.
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
        after: list[list[Tensor]] = [[], []]  # the new h and c of each layer
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


class AttentiveMogrifier(Mogrifier):
    """A Mogrifier LSTM that recalls words: h_t + A sum_i a_i C(w_i).

    The weights a_i depend on the similarity of h_t to the output before w_i. The state consists of the number of valid
    words in each text's memory, B; the last output, B x 1 x K; the outputs before the last S words, B x S x K; the
    features of these words, B x S x M; and the state of `Mogrifier`. Outputs in the state are normalized.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__(config)
        self.memory = config.memory
        self.A = nn.Linear(config.m, config.h, bias=False)
        self.q, self.s = nn.Parameter(torch.full((config.h,), 2.0)), nn.Parameter(torch.full((1,), 8.0))

    def start(self, e: Tensor) -> State:
        """See `Window.start`."""
        num_kept = torch.zeros(len(e), dtype=torch.long, device=e.device)
        empty = (e.new_zeros(len(e), num, width) for num, width in ((1, self.width), (0, self.width), (0, e.shape[2])))
        return num_kept, *empty, *super().start(e)

    def forward(self, e: Tensor, state: State, num_words: Tensor) -> tuple[Tensor, State]:
        """See `Window.forward`."""
        num_kept, last, before, words, *layers = state
        h, after = super().forward(e, tuple(layers), num_words)
        n = h * (h.square().mean(dim=2, keepdim=True) + 1e-5).rsqrt()
        seen = visible(self.memory, num_kept, before.shape[1], e.shape[1])
        outputs, last = read_on(last, n, num_words, 1)
        keys, before = read_on(before, outputs[:, :-1], num_words, self.memory)
        values, words = read_on(words, e, num_words, self.memory)
        scores = 12 / self.width * (n * self.q) @ keys.transpose(1, 2)
        nothing = self.s.expand(*scores.shape[:2], 1)
        a = torch.cat([scores.masked_fill(~seen, -torch.inf), nothing], dim=2).softmax(dim=2)[:, :, :-1]
        num_kept = (num_kept + num_words).clamp(max=self.memory)
        return h + self.A(a @ values), (num_kept, last, before, words, *after)


class Qrnn(nn.Module):
    """A quasi-recurrent network: (z, f, o) = (tanh, sigmoid, sigmoid)(W x_t + b), c := f c + (1 - f) z, h = o c.

    The first layer adds W' x_{t-1} to its pre-activations. The state consists of c of each layer, B x L x K, and the
    features of the last word, B x 1 x M.

    References:
        Bradbury et al., Quasi-recurrent neural networks, ICLR 2017.
    """

    def __init__(self, config: NplmConfig) -> None:
        super().__init__()
        widths = [config.m] + [config.h] * (config.layers - 1)
        self.W = nn.ModuleList(nn.Linear(width, 3 * config.h) for width in widths)  # with biases b
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
