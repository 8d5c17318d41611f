"""A plain PyTorch training step, eager and compiled, float32 and bfloat16 by autocast; on CUDA where there is one."""

from __future__ import annotations

import math
import os

import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F

from experiments.speed.contestants import Problem, Turn
from nplm_jax import config as config_lib
from nplm_jax.data import dataset
from nplm_jax.models import nplm

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


class Network(torch.nn.Module):
    """y = b + Wx + U tanh(d + Hx). [U W] is one matrix, as one product is faster than two and a sum."""

    def __init__(self, params: nplm.Params, dropout: float):
        super().__init__()
        self.dropout = dropout
        self.features = torch.nn.Embedding.from_pretrained(_tensor(params.C_VxM), freeze=False)
        self.hidden = None if params.H_KxP is None else _linear(params.H_KxP, params.d_K)
        self.direct = params.W_VxP is not None
        weights = [w for w in (params.U_VxK, params.W_VxP) if w is not None]
        self.output = _linear(np.concatenate(weights, axis=1), params.b_V)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        """Scores of all words, B x V."""
        x = F.dropout(self.features(contexts).flatten(1), self.dropout, self.training)
        if self.hidden is None:
            return self.output(x)
        a = F.dropout(torch.tanh(self.hidden(x)), self.dropout, self.training)
        return self.output(torch.cat((a, x), dim=1) if self.direct else a)


def torch_eager(problem: Problem, precision: str) -> Turn:
    """PyTorch as it is without torch.compile."""
    return _make(problem, precision, compiled=False)


def torch_compile(problem: Problem, precision: str) -> Turn:
    """Forward, loss and backward by torch.compile; the optimizer is PyTorch's fused kernel."""
    return _make(problem, precision, compiled=True)


def _make(problem: Problem, precision: str, compiled: bool) -> Turn:
    if 'OMP_NUM_THREADS' not in os.environ:
        torch.set_num_threads(os.cpu_count() or 1)
    wanted = config_lib.from_config(problem.config)
    network = Network(problem.params, wanted.model.dropout).to(DEVICE)
    optimizer, schedule = _optimizer(network, wanted.optimizer, problem.total_steps)
    contexts, targets = dataset.windows(
        jnp.asarray(problem.tokens_T), jnp.arange(len(problem.tokens_T)), wanted.model.n - 1
    )
    contexts, targets, order = (_tensor(a).long().to(DEVICE) for a in (contexts, targets, problem.order_SxB))

    def loss_of(contexts, targets):
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == 'bfloat16'):
            return F.cross_entropy(network(contexts), targets)

    if compiled:
        loss_of = torch.compile(loss_of, dynamic=False)

    def turn():
        losses = []
        for positions in order:
            loss = loss_of(contexts[positions], targets[positions])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        return torch.stack(losses).float().cpu().numpy()

    return turn


def _optimizer(network, wanted, total_steps):
    """SGD with the decay on all but the biases, and the schedule of nplm_jax.optimizers."""
    groups = [
        {'params': [p for p in network.parameters() if p.ndim > 1], 'weight_decay': wanted.decay},
        {'params': [p for p in network.parameters() if p.ndim == 1], 'weight_decay': 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=wanted.learning_rate, momentum=wanted.momentum, fused=True)
    shapes = {
        'constant': lambda step: 1.0,
        'linear': lambda step: 1 - step / total_steps,
        'cosine': lambda step: 0.5 * (1 + math.cos(math.pi * step / total_steps)),
    }
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, shapes[wanted.schedule])


def _tensor(array) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _linear(weights: np.ndarray, bias: np.ndarray) -> torch.nn.Linear:
    layer = torch.nn.Linear(*weights.shape[::-1])
    with torch.no_grad():
        layer.weight.copy_(_tensor(weights))
        layer.bias.copy_(_tensor(bias))
    return layer
