"""Defines a batch with sampled losses and the full loss, for the tests of sampled output layers."""

import jax.numpy as jnp
import numpy as np
from helpers import make_batch
from softmax_reference import named

from nplm_jax.outputs import sampled
from nplm_jax.outputs.blockwise import blockwise_cross_entropy
from nplm_jax.outputs.output_layer import Rows, view_rows

V, B = 211, 9


LAYERS = {'sampled': sampled.SampledSoftmax, 'nce': sampled.NoiseContrastive}


def problem(widths=(7, 12), seed=0):
    random = np.random.default_rng(seed)
    terms = tuple((jnp.asarray(random.normal(size=(V, d)) * d**-0.5, jnp.float32),) for d in widths)
    terms = tuple((w, jnp.asarray(random.normal(size=(B, w.shape[1])), jnp.float32)) for (w,) in terms)
    log_q_V = sampled.log_uniform(V)
    return terms, jnp.asarray(log_q_V, jnp.float32), jnp.asarray(random.integers(0, V, B), jnp.int32), log_q_V


def loss(kind, samples_S, log_inclusion_prob_V, terms, b_V, targets_B):
    """Returns the loss and the estimated mean NLL, computed by the layer from gathered rows."""
    layer = LAYERS[kind](samples=len(samples_S), proposal='unigram', precision='float32')
    params, features = named(terms, b_V)
    view = view_rows(params, params, Rows(targets_B[:, None], samples_S))
    proposal = sampled.ProposalDistribution(None, log_inclusion_prob_V)
    return layer.loss(view, features, make_batch(targets_B, targets_B, proposal))


def full_loss(terms, b_V, targets_B):
    return blockwise_cross_entropy(terms, b_V, targets_B, 'float32', 4)
