"""Defines components whose parameter names only look like word rows, and components of the opposite kind."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from bag_of_features import BagOfFeatures

from nplm_jax.nn import uniform
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.outputs.output_layer import Tables
from nplm_jax.outputs.softmax import Scorer


@dataclasses.dataclass(frozen=True)
class ValueProjection(BagOfFeatures):
    """The mean of the values W_V e + b_V, like an attention layer with equal weights."""

    def init(self, key, vocabulary_size):
        """Returns C, W_V and b_V; the rows of the last two do not represent words."""
        key_C, key_W = jax.random.split(key)
        own = {'W_V': uniform(key_W, (self.m, self.m), 1.0), 'attention': {'b_V': jnp.ones(self.m)}}
        return super().init(key_C, vocabulary_size) | own

    def features(self, params, e_SxLxM, state, keys=None, starts_SxL=None):
        """Returns the mean value of each context, S x T x M."""
        values_SxLxM = e_SxLxM @ params['W_V'].T + params['attention']['b_V'][None, None]
        return super().features(params, values_SxLxM, state, keys, starts_SxL)


class ScaledScores(Scorer):
    """A scorer that computes y = b + scale * (U x), with a scale for each word."""

    def scores(self, params, features, precision='float32'):
        """See `Scorer.scores`."""
        return params['b_V'][:, None] + params['scale'][:, None] * (params['U_VxM'] @ features['U_VxM'].T)

    def gathered_scores(self, shared, per_example, features):
        """See `Scorer.gathered_scores`."""
        dots_BxL = jnp.einsum('blm,bm->bl', per_example['U_VxM'], features['U_VxM'])
        return per_example['b_V'] + per_example['scale'] * dots_BxL


SCALED_SCORES = ScaledScores()


@dataclasses.dataclass(frozen=True)
class ScaledWords(ValueProjection):
    """A body with an additional number for each output word."""

    tables = Tables(('scale',))
    scorer = SCALED_SCORES

    def init(self, key, vocabulary_size):
        """Also returns the scales."""
        return super().init(key, vocabulary_size) | {'scale': jnp.linspace(0.5, 1.5, vocabulary_size)}


@dataclasses.dataclass(frozen=True)
class OffsetSoftmax(FullSoftmax):
    """The softmax with an additional offset for each word, which is added to b."""

    tables = Tables(('offsets',))

    def init(self, key, keys, widths, bias_V):
        """Also returns the offsets."""
        return super().init(key, keys, widths, bias_V) | {'offsets': jnp.linspace(-1, 1, len(bias_V))}

    def loss(self, view, features, batch, axis=None):
        """See `OutputLayer.loss`."""
        return super().loss(view._replace(shared=_with_offsets(view.shared)), features, batch, axis)

    def log_probabilities(self, params, features):
        """See `OutputLayer.log_probabilities`."""
        return super().log_probabilities(_with_offsets(params), features)

    def nll(self, params, features, targets_B):
        """See `OutputLayer.nll`."""
        return super().nll(_with_offsets(params), features, targets_B)


def _with_offsets(params):
    return params | {'b_V': params['b_V'] + params['offsets']}
