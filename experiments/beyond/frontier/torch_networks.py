"""The networks of torch_recipes.py and their training. Requires PyTorch.

Dims: T words of a stream, S streams, K features, V vocabulary.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from configs import brown, wikitext2
from nplm_jax.data.stream import Span
from nplm_jax.reporting import provenance
from nplm_jax.runs import experiment, loading

BURN_IN = SCORED = 512  # words read to fill a state before scoring, and words scored at once
STRETCHES = 32  # segments of a span, read in parallel
Batch = tuple[Tensor, Tensor]  # words, T x S, and the words that follow them


class Recipe(nn.Module):
    """A network and its training recipe, over streams of words whose state carries over between updates.

    Attributes:
        rate: The learning rate.
        anneals: Whether the rate is divided by 4 after an epoch without a better validation perplexity.
    """

    anneals = False

    num_streams, bptt, clip, decay, rate = 20, 35, 0.25, 0.0, 20.0
    layers: tuple[int, ...] = 200, 200  # units

    def start(self, num_streams: int) -> Any:
        """Returns the state before the first word."""
        return [(torch.zeros(1, num_streams, units), torch.zeros(1, num_streams, units)) for units in self.layers]

    def batch(self, words_TxS: Tensor, t: int, rng: np.random.Generator) -> Batch:
        """Returns the words of an update, starting at row t."""
        T = min(self.bptt, len(words_TxS) - 1 - t)
        return words_TxS[t : t + T], words_TxS[t + 1 : t + 1 + T]

    def update(self, share: float, T: int) -> None:
        """Applies the gradients to the parameters; `share` is the elapsed fraction of the training time."""
        nn.utils.clip_grad_norm_(self.parameters(), self.clip)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(parameter.grad + self.decay * parameter, alpha=-self.rate * T / self.bptt)

    def scores_of_span(self, tokens_L: Tensor) -> Tensor:
        """Returns log P of each word except the first. Segments are read in parallel after BURN_IN words each."""
        stretch = -(-(len(tokens_L) - 1) // STRETCHES)
        padded_L = functional.pad(tokens_L, (BURN_IN, STRETCHES * stretch + 1 - len(tokens_L)))
        words_TxS = padded_L.unfold(0, BURN_IN + stretch + 1, stretch).t()
        state, found = self.start(STRETCHES), []
        for t in range(0, len(words_TxS) - 1, SCORED // STRETCHES):
            part_TxS = words_TxS[t : t + SCORED // STRETCHES + 1]
            scores, state, _ = self(part_TxS[:-1], state)
            log_p = functional.log_softmax(scores, dim=2)
            found.append(log_p.gather(2, part_TxS[1:, :, None])[..., 0])
        return torch.cat(found)[BURN_IN:].t().flatten()[: len(tokens_L) - 1]


class WordLanguageModel(Recipe):
    """Two LSTM layers of 200 units and a full softmax."""

    anneals = True

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(num_words, 200), nn.Linear(200, num_words)
        self.lstms = nn.ModuleList(nn.LSTM(200, units) for units in self.layers)
        self.dropout = nn.Dropout(0.2)
        for weight in (self.embedding.weight, self.output.weight):
            nn.init.uniform_(weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, words_TxS: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
        """Returns the scores of the next words, the next state, and a penalty added to the loss."""
        x_TxSxK, new = self.embedding(words_TxS), []
        for lstm, before in zip(self.lstms, state):
            x_TxSxK, after = lstm(self.dropout(x_TxSxK), before)
            new.append(after)
        return self.output(self.dropout(x_TxSxK)), new, torch.zeros(())


class AwdLstm(Recipe):
    """AWD-LSTM: three layers with dropped recurrent weights, weight tying, locked dropout and activation penalties.

    It omits weight averaging, which would start only after several epochs.
    """

    bptt, rate, decay = 70, 30.0, 1.2e-6
    layers = 1150, 1150, 400

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embedding, self.bias = nn.Embedding(num_words, 400), nn.Parameter(torch.zeros(num_words))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        sizes = zip((400, *self.layers), self.layers)
        self.lstms = nn.ModuleList(nn.LSTM(before, units) for before, units in sizes)

    def batch(self, words_TxS: Tensor, t: int, rng: np.random.Generator) -> Batch:
        """See `Recipe`. The length varies around 70, and around half of that in one of 20 updates."""
        mean = self.bptt if rng.random() < 0.95 else self.bptt / 2
        T = min(max(5, int(rng.normal(mean, 5))), len(words_TxS) - 1 - t)
        return words_TxS[t : t + T], words_TxS[t + 1 : t + 1 + T]

    def locked(self, x_TxSxK: Tensor, rate: float) -> Tensor:
        """Applies one dropout mask to all words of a stream."""
        return x_TxSxK * functional.dropout(torch.ones_like(x_TxSxK[:1]), rate, self.training)

    def forward(self, words_TxS: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
        """See `WordLanguageModel.forward`."""
        table_VxK = self.embedding.weight
        kept_Vx1 = functional.dropout(torch.ones_like(table_VxK[:, :1]), 0.1, self.training)
        x_TxSxK, new = self.locked(functional.embedding(words_TxS, table_VxK * kept_Vx1), 0.4), []
        for i, (lstm, before) in enumerate(zip(self.lstms, state)):
            weights = dict(lstm.named_parameters())
            weights['weight_hh_l0'] = functional.dropout(lstm.weight_hh_l0, 0.5, self.training)
            raw_TxSxK, after = torch.func.functional_call(lstm, weights, (x_TxSxK, before))
            new.append(after)
            x_TxSxK = self.locked(raw_TxSxK, 0.25 if i < len(self.lstms) - 1 else 0.4)
        penalty = 2 * x_TxSxK.square().mean()
        if len(raw_TxSxK) > 1:
            penalty = penalty + raw_TxSxK.diff(dim=0).square().mean()
        return x_TxSxK @ table_VxK.T + self.bias, new, penalty


class NanoGpt(Recipe):
    """A four-layer Transformer over blocks of 64 words, with weight tying and AdamW."""

    num_streams, bptt, clip, rate = 12, 64, 1.0, 1e-3
    width, depth, heads, warmup = 200, 4, 4, 100

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(num_words, self.width), nn.Embedding(self.bptt, self.width)
        layer = nn.TransformerEncoderLayer
        options = {'dropout': 0.0, 'activation': 'gelu', 'norm_first': True, 'bias': False}
        made = (layer(self.width, self.heads, 4 * self.width, **options) for _ in range(self.depth))
        self.blocks, self.norm = nn.ModuleList(made), nn.LayerNorm(self.width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                last = name.endswith(('out_proj.weight', 'linear2.weight'))
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * self.depth) if last else 0.02)
        matrices = [p for p in self.parameters() if p.dim() > 1]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [{'params': matrices, 'weight_decay': 0.1}, {'params': others, 'weight_decay': 0.0}]
        self.optimizer, self.updates = torch.optim.AdamW(groups, self.rate, (0.9, 0.99)), 0

    def start(self, num_streams: int) -> None:
        """See `Recipe`. There is no state."""

    def batch(self, words_TxS: Tensor, t: int, rng: np.random.Generator) -> Batch:
        """See `Recipe`. Blocks begin at random positions."""
        words_L = words_TxS.t().flatten()
        begins = rng.integers(0, len(words_L) - self.bptt - 1, self.num_streams)
        blocks = torch.stack([words_L[begin : begin + self.bptt + 1] for begin in begins], dim=1)
        return blocks[:-1], blocks[1:]

    def forward(self, words_TxS: Tensor, state: None) -> tuple[Tensor, None, Tensor]:
        """See `WordLanguageModel.forward`."""
        T = len(words_TxS)
        x_TxSxK = self.embedding(words_TxS) + self.positions.weight[:T, None]
        mask = nn.Transformer.generate_square_subsequent_mask(T)
        for layer in self.blocks:
            x_TxSxK = layer(x_TxSxK, mask, is_causal=True)
        return self.norm(x_TxSxK) @ self.embedding.weight.T, None, torch.zeros(())

    def update(self, share: float, T: int) -> None:
        """See `Recipe`. The rate decays to a tenth along a cosine."""
        self.updates += 1
        rate = self.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(share, 1.0))))
        for group in self.optimizer.param_groups:
            group['lr'] = min(rate, self.rate * self.updates / self.warmup)
        nn.utils.clip_grad_norm_(self.parameters(), self.clip)
        self.optimizer.step()

    def scores_of_span(self, tokens_L: Tensor) -> Tensor:
        """See `Recipe`. Predicts each word from at least 32 tokens of its block; padding precedes the text."""
        half = self.bptt // 2
        padded_L = functional.pad(tokens_L, (half, -len(tokens_L) % half + 1))
        blocks_TxN, found = padded_L.unfold(0, self.bptt + 1, half).t(), []
        for part_TxS in blocks_TxN.split(16, dim=1):
            scores, _, _ = self(part_TxS[:-1], None)
            log_p = functional.log_softmax(scores[half:], dim=2)
            found.append(log_p.gather(2, part_TxS[half + 1 :, :, None])[..., 0])
        return torch.cat(found, dim=1).t().flatten()[: len(tokens_L) - 1]


RECIPES: dict[str, type[Recipe]] = {'word_language_model': WordLanguageModel, 'awd_lstm': AwdLstm, 'nanogpt': NanoGpt}


@torch.no_grad()
def perplexity(model: Recipe, tokens_T: Tensor, span: Span) -> float:
    """Returns the exact perplexity of the words of `span`, after reading the 512 words before it."""
    model.eval()
    log_p = model.scores_of_span(tokens_T[max(0, span.start - BURN_IN - 1) : span.stop])
    model.train()
    return math.exp(-float(log_p[-len(span) :].double().mean()))


def train(recipe: str, corpus: str, minutes: float) -> dict[str, Any]:
    """Trains for `minutes` of processor time per thread. Returns the perplexities and their cost."""
    config = {'brown': brown, 'wikitext2': wikitext2}[corpus].get_config('one_minute')
    data = loading.load_dataset(experiment.load_settings(config))
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    tokens_T = torch.from_numpy(np.asarray(data.tokens_T).astype(np.int64))
    model = RECIPES[recipe](len(data.vocabulary))
    words_L = tokens_T[data.train.start : data.train.stop]
    words_TxS = words_L[: len(words_L) // model.num_streams * model.num_streams].view(model.num_streams, -1).t()
    budget, used, best, trained = 60 * minutes, 0.0, math.inf, 0
    state, t = model.start(model.num_streams), 0
    while used < budget:
        started = time.process_time()
        words, targets = model.batch(words_TxS, t, rng)
        if state is not None:
            state = [tuple(part.detach() for part in layer) for layer in state]
        scores, state, penalty = model(words, state)
        loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        model.zero_grad()
        (loss + penalty).backward()
        model.update(used / budget, len(words))
        t, trained = t + len(words), trained + words.numel()
        used += (time.process_time() - started) / torch.get_num_threads()
        if t >= len(words_TxS) - 1:  # the end of an epoch
            state, t = model.start(model.num_streams), 0
            if model.anneals:
                valid = perplexity(model, tokens_T, data.valid)
                model.rate /= 1 if valid < best else 4
                best = min(best, valid)
    found = {name: perplexity(model, tokens_T, data.splits[name]) for name in ('valid', 'test')}
    print(
        f'{corpus}, {recipe}, {minutes:g} minutes: {trained:,} words, valid perplexity {found["valid"]:.1f}', flush=True
    )
    return {
        'name': recipe,
        'corpus': corpus,
        'minutes': minutes,
        'perplexity': found,
        'parameters': sum(parameter.numel() for parameter in model.parameters()),
        'epochs': trained / len(data.train),
        'torch': torch.__version__,
        **provenance.provenance(),
    }
