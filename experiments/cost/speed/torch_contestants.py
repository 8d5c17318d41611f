"""A plain PyTorch training step, eager and compiled, in float32 and bfloat16 (autocast); on CUDA if available."""

from __future__ import annotations

import math
import os
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from experiments.cost.speed.problem import Problem, Turn
from nplm_jax.data import batches
from nplm_jax.outputs.output_layer import Params

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


class Network(torch.nn.Module):
    """y = b + Wx + U tanh(d + Hx). [U W] is one matrix, because one product is faster than two products and a sum."""

    def __init__(self, params: Params, dropout: float) -> None:
        """Copies the parameters."""
        super().__init__()
        self.dropout = dropout
        self.embedding = torch.nn.Embedding.from_pretrained(_tensor(params['C_VxM']), freeze=False)
        self.hidden = _linear(params['H_KxP'], params['d_K']) if 'H_KxP' in params else None
        self.direct = 'W_VxP' in params
        weights = [params[name] for name in ('U_VxK', 'W_VxP') if name in params]
        self.output = _linear(np.concatenate(weights, axis=1), params['b_V'])

    def forward(self, contexts_BxN: torch.Tensor) -> torch.Tensor:
        """Returns the scores of all words, B x V, for contexts with the most recent word first."""
        x = F.dropout(self.embedding(contexts_BxN).flatten(1), self.dropout, self.training)
        if self.hidden is None:
            return self.output(x)
        a = F.dropout(torch.tanh(self.hidden(x)), self.dropout, self.training)
        return self.output(torch.cat((a, x), dim=1) if self.direct else a)


def torch_eager(problem: Problem, precision: str) -> Turn:
    """Trains with PyTorch in eager mode."""
    return _turn_of(problem, precision, compiled=False)


def torch_compile(problem: Problem, precision: str) -> Turn:
    """Compiles the forward pass, loss and backward pass with torch.compile; the optimizer is PyTorch's fused kernel."""
    return _turn_of(problem, precision, compiled=True)


def _turn_of(problem: Problem, precision: str, compiled: bool) -> Turn:
    if 'OMP_NUM_THREADS' not in os.environ:
        torch.set_num_threads(os.cpu_count() or 1)
    settings = problem.settings
    network = Network(problem.params, settings.model.dropout).to(DEVICE)
    optimizer, schedule = _optimizer(network, settings.optimizer, problem.total_steps)
    tokens_T, places_T = jnp.asarray(problem.tokens_T), jnp.arange(len(problem.tokens_T))
    contexts, targets = batches.examples(tokens_T, places_T, settings.model.n - 1)
    arrays = (
        np.asarray(contexts)[:, ::-1],
        np.asarray(targets),
        problem.positions_SxB,
    )  # x begins with the most recent word
    contexts, targets, positions_SxB = (_tensor(a).long().to(DEVICE) for a in arrays)

    def nll(contexts: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == 'bfloat16'):
            return F.cross_entropy(network(contexts), targets)

    if compiled:
        nll = torch.compile(nll, dynamic=False)

    def turn() -> np.ndarray:
        losses = []
        for positions_B in positions_SxB:
            loss = nll(contexts[positions_B], targets[positions_B])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        return torch.stack(losses).float().cpu().numpy()

    return turn


def _optimizer(
    network: Network, settings: Any, total_steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Returns SGD with weight decay on all but the biases, and the schedule of nplm_jax's optimizers."""
    param_groups = [
        {'params': [p for p in network.parameters() if p.ndim > 1], 'weight_decay': settings.decay},
        {'params': [p for p in network.parameters() if p.ndim == 1], 'weight_decay': 0.0},
    ]
    optimizer = torch.optim.SGD(param_groups, lr=settings.learning_rate, fused=True)
    schedules = {
        'constant': lambda step: 1.0,
        'linear': lambda step: 1 - step / total_steps,
        'cosine': lambda step: 0.5 * (1 + math.cos(math.pi * step / total_steps)),
    }
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, schedules[settings.schedule.name])


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _linear(weights: np.ndarray, bias: np.ndarray) -> torch.nn.Linear:
    layer = torch.nn.Linear(*weights.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(_tensor(weights))
        layer.bias.copy_(_tensor(bias))
    return layer
