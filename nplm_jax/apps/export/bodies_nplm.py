"""Window and recurrent bodies of nplm-jax in PyTorch; see modeling_nplm.py for the dims.

A body reads texts word by word, and hands a state on: a tuple of tensors with one row for each text. It has three
members: `width`, the number D of its features; `start`, the state before the first word; and `forward`, which maps the
features of T words to those of the predictions of the words after each of them. The first call reads N rare-word
symbols before each text. Later calls, with the state of an earlier one, read new words alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from .configuration_nplm import NplmConfig

State = tuple[Tensor, ...]


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
