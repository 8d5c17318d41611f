"""The LSTM of torch_lstm.py, and its training. Needs PyTorch."""

from __future__ import annotations

import math
import resource
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from configs import brown
from nplm_jax.data.corpora import Span
from nplm_jax.runs import experiment, loading, provenance

UNITS, LAYERS, DROPOUT, STREAMS, BPTT, CLIP = 200, 2, 0.2, 20, 35, 0.25


class Lstm(nn.Module):
    """Word features, two LSTM layers, a full softmax."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, UNITS)
        self.lstm = nn.LSTM(UNITS, UNITS, LAYERS, dropout=DROPOUT)
        self.output = nn.Linear(UNITS, vocabulary_size)
        self.dropout = nn.Dropout(DROPOUT)
        for weight in (self.embedding.weight, self.output.weight):
            nn.init.uniform_(weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, words_TxS: torch.Tensor, state: tuple) -> tuple[torch.Tensor, tuple]:
        """Returns the scores of the next words, T * S x V, and the next state."""
        h_TxSxK, state = self.lstm(self.dropout(self.embedding(words_TxS)), state)
        return self.output(self.dropout(h_TxSxK)).flatten(0, 1), state

    def start(self, num_streams: int) -> tuple:
        """Returns the state before the first word."""
        zeros = torch.zeros(LAYERS, num_streams, UNITS)
        return zeros, zeros


def train_epoch(model: Lstm, words_TxS: torch.Tensor, rate: float) -> None:
    """Makes one pass over the training words."""
    model.train()
    state = model.start(words_TxS.shape[1])
    for t in range(0, len(words_TxS) - 1, BPTT):
        T = min(BPTT, len(words_TxS) - 1 - t)
        state = tuple(part.detach() for part in state)
        scores, state = model(words_TxS[t : t + T], state)
        loss = nn.functional.cross_entropy(scores, words_TxS[t + 1 : t + 1 + T].flatten())
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-rate)


@torch.no_grad()
def perplexity(model: Lstm, tokens_T: torch.Tensor, span: Span) -> float:
    """Returns the exact perplexity of the words of `span`, each after all words from 512 before the span on."""
    model.eval()
    start = max(0, span.start - 512)
    words_T, state, nll = tokens_T[start - 1 : span.stop], model.start(1), 0.0
    for t in range(0, len(words_T) - 1, 512):
        scores, state = model(words_T[t : t + 512][: len(words_T) - 1 - t, None], state)
        losses = nn.functional.cross_entropy(scores, words_T[t + 1 : t + 1 + len(scores)], reduction='none')
        nll += float(losses[max(0, span.start - start - t) :].double().sum())
    return math.exp(nll / len(span))


def seconds_used() -> float:
    """Returns the processor seconds of this process divided by its threads."""
    return time.process_time() / torch.get_num_threads()


def train(minutes: float) -> dict[str, Any]:
    """Trains for the given minutes. Returns the perplexities and what they cost."""
    data = loading.load_dataset(experiment.load_settings(brown.get_config()))
    torch.manual_seed(1)
    tokens_T = torch.from_numpy(np.asarray(data.tokens_T).astype(np.int64))
    train_T = tokens_T[data.train.start : data.train.stop]
    words_TxS = train_T[: len(train_T) // STREAMS * STREAMS].view(STREAMS, -1).t().contiguous()
    model = Lstm(len(data.vocabulary))
    started, rate, best, epochs, perplexities = seconds_used(), 20.0, math.inf, 0, {}
    while seconds_used() - started < 60 * minutes:
        train_epoch(model, words_TxS, rate)
        epochs += 1
        valid = perplexity(model, tokens_T, data.valid)
        print(f'epoch {epochs}: valid perplexity {valid:.1f}, {seconds_used() - started:.0f} s', flush=True)
        if valid < best:
            best = valid
            seconds = seconds_used() - started
            perplexities = {'valid': valid, 'test': perplexity(model, tokens_T, data.test)}
        else:
            rate /= 4
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        'name': 'torch_lstm',
        'family': 'PyTorch LSTM',
        'perplexity': perplexities,
        'parameters': sum(parameter.numel() for parameter in model.parameters()),
        'epochs': epochs,
        'seconds': round(seconds, 1),
        'processor_seconds': round(usage.ru_utime + usage.ru_stime),
        'torch': torch.__version__,
        **provenance.provenance(),
    }
