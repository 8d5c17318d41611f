"""A plain PyTorch training step, eager and compiled, in float32 and bfloat16 (autocast). Uses CUDA if available.

Dims: V vocabulary, B batch, S streams (of one word for a window), T words per stream, L words read per stream, D inputs
of a layer, K units, G = 4K size of the gates i, f, g, o, H heads, R words of the Transformer's state.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from experiments.cost.speed.problem import Problem, Turn
from nplm_jax.models.lstm import join_gates
from nplm_jax.outputs.output_layer import Params
from nplm_jax.training.optimizers import ScheduledRule

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
# oneDNN has no LSTM in bfloat16 for processors without AVX-512.
HAS_BFLOAT16_LSTM = DEVICE.type != 'cpu' or torch.backends.cpu.get_cpu_capability() == 'AVX512'
State = Any  # of the streams: a tuple of tensors; None at the start of a turn


class Network(torch.nn.Module):
    """The scores y = b + output matrices times features. [U W] is a single matrix, which is faster than two."""

    def __init__(self, params: Params, model: Any) -> None:
        """Copies the parameters.

        Args:
            params: The parameters by name.
            model: The settings of the body.
        """
        super().__init__()
        self.model = model
        self.embedding = torch.nn.Embedding.from_pretrained(_tensor(params['C_VxM']), freeze=False)
        self.output = _linear(np.concatenate([params[name] for name in model.widths], axis=1), params['b_V'])
        if 'C_VxM' in model.widths:
            self.output.weight = self.embedding.weight

    def forward(self, ids_SxL: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Returns the scores of all words, B x V, and the state after these words."""
        features_BxD, state = self.features(self.embedding(ids_SxL), state)
        return self.output(features_BxD), state

    def features(self, e_SxLxM: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Returns the features that the output matrix multiplies, B x D, and the state."""
        raise NotImplementedError

    def drop(self, values: torch.Tensor, rate: float) -> torch.Tensor:
        """Applies dropout, with one mask for all words of a stream if `model.variational`."""
        if not rate or not getattr(self.model, 'variational', False):
            return F.dropout(values, rate)
        return values * F.dropout(torch.ones_like(values[:, :1]), rate)


class Window(Network):
    """The network of 2003: U tanh(d + Hx), Wx, or both."""

    def __init__(self, params: Params, model: Any) -> None:
        """See `Network`."""
        super().__init__(params, model)
        self.hidden = _linear(params['H_KxP'], params['d_K']) if 'H_KxP' in params else None

    def features(self, e_SxLxM: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """See `Network.features`. x begins with the most recent word."""
        x = self.drop(e_SxLxM.flip(1).flatten(1), self.model.dropout)
        if self.hidden is None:
            return x, state
        a = self.drop(torch.tanh(self.hidden(x)), self.model.dropout)
        return torch.cat((a, x), dim=1) if 'W_VxP' in self.model.widths else a, state


class Lstm(Network):
    """torch.nn.LSTM, in float32 unless `HAS_BFLOAT16_LSTM`. Its second bias stays zero, as nplm_jax has only one."""

    def __init__(self, params: Params, model: Any) -> None:
        """See `Network`."""
        super().__init__(params, model)
        self.rnn = torch.nn.LSTM(model.m, model.h, batch_first=True)
        W_DxG, W_KxG, b_G = join_gates(params['cell'])
        values = W_DxG.T, W_KxG.T, b_G, np.zeros_like(b_G)
        with torch.no_grad():
            for parameter, value in zip(self.rnn.parameters(), values):
                parameter.copy_(_tensor(value))
        self.rnn.bias_hh_l0.requires_grad_(False)

    def features(self, e_SxLxM: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """See `Network.features`."""
        with contextlib.nullcontext() if HAS_BFLOAT16_LSTM else torch.autocast(DEVICE.type, enabled=False):
            h_SxTxK, state = self.rnn(self.drop(e_SxLxM, self.model.dropout), state)
        return self.drop(h_SxTxK, self.model.output_rate).flatten(0, 1), state


class Mogrifier(Network):
    """An explicit loop over words, in which input and state gate each other before each LSTM step."""

    def __init__(self, params: Params, model: Any) -> None:
        """See `Network`."""
        super().__init__(params, model)
        W_DxG, W_KxG, b_G = join_gates(params['cell'])
        self.W_GxD, self.W_GxK, self.b_G = map(_parameter, (W_DxG.T, W_KxG.T, b_G))
        self.rounds = torch.nn.ParameterList(_parameter(params['cell'][name].T) for name in model.round_names)

    def features(self, e_SxLxM: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """See `Network.features`."""
        model = self.model
        x_SxTxD = e_SxLxM * F.dropout(torch.ones_like(e_SxLxM[:, :, :1]), model.word_dropout)
        x_SxTxD = self.drop(x_SxTxD, model.dropout)
        c, h = state or (x_SxTxD.new_zeros(len(x_SxTxD), model.h),) * 2
        W = torch.cat((self.W_GxD, F.dropout(self.W_GxK, model.weight_dropout)), dim=1)
        outputs = []
        for x in x_SxTxD.unbind(1):
            for i, weight in enumerate(self.rounds):
                if i % 2 == 0:
                    x = 2 * torch.sigmoid(F.linear(h, weight)) * x
                else:
                    h = 2 * torch.sigmoid(F.linear(x, weight)) * h
            i, f, g, o = F.linear(torch.cat((x, h), dim=1), W, self.b_G).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return self.drop(torch.stack(outputs, dim=1), model.output_rate).flatten(0, 1), (c, h)


class Transformer(Network):
    """Layers of F.scaled_dot_product_attention. The state consists of the keys and values of the R previous words."""

    def __init__(self, params: Params, model: Any) -> None:
        """See `Network`."""
        super().__init__(params, model)
        self.inputs = _linear(params['E_PxK'].T)
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    'norm_attention': _norm(layer['g_attention_K']),
                    'qkv': _linear(layer['QKV_Kx3K'].T),
                    'mix': _linear(layer['O_KxK'].T),
                    'norm': _norm(layer['g_K']),
                    'expand': _linear(layer['A_KxF'].T, layer['a_F']),
                    'contract': _linear(layer['B_FxK'].T),
                }
            )
            for layer in params['layers'].values()
        )
        self.norm = _norm(params['g_K'])
        self.project = _linear(params['P_KxM'].T)
        places_L = torch.arange(-model.memory, model.bptt_length)
        pairs = model.shape[1] // 2
        angles_LxP = places_L[:, None] * 10_000.0 ** (-torch.arange(pairs) / pairs)
        self.register_buffer('places_L', places_L)
        self.register_buffer('cos_LxP', angles_LxP.cos())
        self.register_buffer('sin_LxP', angles_LxP.sin())

    def features(self, e_SxLxM: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """See `Network.features`."""
        model, (S, T, _) = self.model, e_SxLxM.shape
        z = self.inputs(self.drop(e_SxLxM, model.dropout))
        if state is None:
            cache = e_SxLxM.new_zeros(len(self.layers), 2, S, model.heads, model.memory, model.shape[1])
            state = cache, self.places_L.new_zeros(())
        caches, kept = state
        before_Tx1 = self.places_L[-T:, None]
        seen_TxL = (self.places_L >= torch.maximum(before_Tx1 - model.memory, -kept)) & (self.places_L <= before_Tx1)
        new = []
        for layer, cache in zip(self.layers, caches):
            qkv = layer['qkv'](layer['norm_attention'](z)).view(S, T, 3, *model.shape).permute(2, 0, 3, 1, 4)
            both = torch.cat((cache.to(qkv.dtype), qkv[1:]), dim=3)  # keys and values, 2 x S x H x L x D
            new.append(both[:, :, :, T:])
            y = F.scaled_dot_product_attention(self.rotate(qkv[0]), self.rotate(both[0]), both[1], attn_mask=seen_TxL)
            z = z + self.drop(layer['mix'](y.transpose(1, 2).flatten(2)), model.dropout)
            inside = F.gelu(layer['expand'](layer['norm'](z)), approximate='tanh')
            z = z + self.drop(layer['contract'](inside), model.dropout)
        features = self.drop(self.project(self.norm(z)), model.output_rate).flatten(0, 1)
        return features, (torch.stack(new), torch.clamp(kept + T, max=model.memory))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Applies rotary position embeddings; the last word of `x`, S x H x L x D, is the last of the update."""
        words, dtype = x.shape[2], x.dtype
        cos, sin = self.cos_LxP[-words:], self.sin_LxP[-words:]
        left, right = x.chunk(2, dim=3)
        return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=3).to(dtype)


NETWORKS: dict[str, type[Network]] = {  # by model.family
    'nplm': Window,
    'lstm': Lstm,
    'mogrifier': Mogrifier,
    'transformer': Transformer,
}


def torch_eager(problem: Problem, precision: str) -> Turn:
    """Trains with PyTorch in eager mode."""
    return _turn_of(problem, precision, compiled=False)


def torch_compile(problem: Problem, precision: str) -> Turn:
    """Compiles the forward pass, loss and backward pass with torch.compile. The optimizer is a fused PyTorch kernel."""
    return _turn_of(problem, precision, compiled=True)


def _turn_of(problem: Problem, precision: str, compiled: bool) -> Turn:
    if 'OMP_NUM_THREADS' not in os.environ:
        torch.set_num_threads(os.cpu_count() or 1)
    settings = problem.settings
    network = NETWORKS[settings.model.name](problem.params, settings.model).to(DEVICE)
    step = _optimizer_step(network, settings.optimizer, problem.total_steps)
    batch, S = problem.batch(problem.positions_SxB), problem.num_steps
    ids, targets = (
        _tensor(array).long().reshape(S, *shape).to(DEVICE)
        for array, shape in ((batch.ids_SxL, (problem.num_streams, -1)), (batch.targets_B, (-1,)))
    )

    def nll(ids_SxL: torch.Tensor, targets_B: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == 'bfloat16'):
            y_BxV, state = network(ids_SxL, state)
            return F.cross_entropy(y_BxV, targets_B), state

    if compiled:
        nll = torch.compile(nll, dynamic=False)

    def turn() -> np.ndarray:
        losses, state = [], None
        for ids_SxL, targets_B in zip(ids, targets):
            loss, state = nll(ids_SxL, targets_B, state)
            state = state and tuple(values.detach() for values in state)
            loss.backward()
            step()
            losses.append(loss.detach())
        return torch.stack(losses).float().cpu().numpy()

    return turn


def _optimizer_step(network: Network, rule: ScheduledRule, total_steps: int) -> Callable[[], None]:
    """Returns a function that clips the gradients, makes an update, advances the schedule and clears the gradients.

    Weight decay excludes the biases. The tables have their own rate. PyTorch's SGD adds weight decay after clipping,
    and nplm-jax before; the presets' decay of 3e-6 is too small for this to change a loss.
    """
    tables = [*dict.fromkeys((network.embedding.weight, network.output.weight, network.output.bias))]
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    others = [parameter for parameter in trained if not any(parameter is table for table in tables)]
    groups = [
        [
            {'params': [p for p in group if p.ndim > 1], 'lr': rate, 'weight_decay': rule.decay},
            {'params': [p for p in group if p.ndim == 1], 'lr': rate, 'weight_decay': 0.0},
        ]
        for group, rate in ((tables, rule.learning_rate * rule.table_rate), (others, rule.learning_rate))
    ]
    optimizers = OPTIMIZERS[rule.name](*groups)
    schedules = {
        'constant': lambda step: 1.0,
        'linear': lambda step: 1 - step / total_steps,
        'cosine': lambda step: 0.5 * (1 + math.cos(math.pi * step / total_steps)),
    }
    rates = [torch.optim.lr_scheduler.LambdaLR(each, schedules[rule.schedule.name]) for each in optimizers]

    def step() -> None:
        if rule.clip_norm:
            torch.nn.utils.clip_grad_norm_(trained, rule.clip_norm)
        for optimizer, rate in zip(optimizers, rates):
            optimizer.step()
            rate.step()
            optimizer.zero_grad()

    return step


class RowMoments(torch.optim.Optimizer):
    """Divides each row of a table by the root of the row's second moment. See `scale_by_row_moment`."""

    def __init__(self, groups: Sequence[dict[str, Any]]) -> None:
        """Creates the optimizer for groups with `lr` and the decoupled `weight_decay`."""
        super().__init__(groups, {'b2': 0.999, 'eps': 1e-8})
        self.count = 0

    @torch.no_grad()
    def step(self) -> None:
        """Makes an update."""
        self.count += 1
        for group in self.param_groups:
            for table in group['params']:
                grad = table.grad.reshape(len(table), -1)
                state, b2 = self.state[table], group['b2']
                moments = state.setdefault('moments', table.new_zeros(len(table), 1))
                squares = torch.linalg.vector_norm(grad, dim=1, keepdim=True).square_()
                moments.mul_(b2).add_(squares, alpha=(1 - b2) / grad.shape[1])
                roots = (moments / (1 - b2**self.count)).sqrt_().add_(group['eps'])
                table.mul_(1 - group['lr'] * group['weight_decay'])
                table.view(len(table), -1).addcdiv_(grad, roots, value=-group['lr'])


Groups = list[dict[str, Any]]
OPTIMIZERS: dict[str, Callable[[Groups, Groups], list[torch.optim.Optimizer]]] = {  # by optimizer.name
    'sgd': lambda tables, others: [torch.optim.SGD(_nonempty(tables + others), fused=True)],
    'rowwise_adam': lambda tables, others: [RowMoments(tables), torch.optim.AdamW(_nonempty(others), fused=True)],
}


def _nonempty(groups: Groups) -> Groups:
    return [group for group in groups if group['params']]


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _parameter(array: Any) -> torch.nn.Parameter:
    return torch.nn.Parameter(_tensor(array).contiguous())


def _norm(scale_K: np.ndarray) -> torch.nn.LayerNorm:
    norm = torch.nn.LayerNorm(len(scale_K), bias=False)
    norm.weight = _parameter(scale_K)
    return norm


def _linear(weights: np.ndarray, bias: np.ndarray | None = None) -> torch.nn.Linear:
    layer = torch.nn.Linear(*weights.shape[::-1], bias=bias is not None)
    layer.weight = _parameter(weights)
    if bias is not None:
        layer.bias = _parameter(bias)
    return layer
