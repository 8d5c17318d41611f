"""Creates small recurrent networks with batches, carries and losses, for the tests of recurrent bodies."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import (
    loss_of,
    make_batch,
    make_network,
)

from nplm_jax.models.neural import NeuralLanguageModel

FAMILIES = ('rnn', 'gru', 'lstm')


V, M, K = 13, 3, 5


TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, V, 1500), jnp.int32)


def make(family, dropout=0.0, **changes):
    model = {'model.family': family, 'model.m': M, 'model.h': K, 'model.direct': False, 'model.dropout': dropout}
    model |= changes
    network = make_network(V, {**model, 'train.batch_size': 8, 'model.bptt_length': 4, 'output.block_size': 4})
    return network, jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0)))  # nonlinear, without zeros


def make_language_model(family, **changes):
    return NeuralLanguageModel(*make(family, **changes))


def batch(streams=2, words=6):
    random = np.random.default_rng(1)
    return random.integers(0, V, (streams, words)), random.integers(0, V, (streams, words))


def random_carry(network, streams=2):
    return jax.tree.map(lambda x: jax.random.normal(jax.random.key(5), x.shape), network.body.start(streams))


def loss(network, params, before_SxT, targets_SxT, carry, key=None):
    """Returns the loss of all words of the streams, and the carry after them."""
    return loss_of(network, params, make_batch(before_SxT, targets_SxT), carry, key)
