"""Creates adaptive models of every kind on a small text, for the tests of nplm_jax.apps.adaptive."""

import functools

import jax
import numpy as np
from helpers import make_network

from nplm_jax.apps.adaptive import dynamic_evaluation
from nplm_jax.apps.adaptive.dynamic_evaluation import DynamicEvaluation
from nplm_jax.apps.adaptive.neural_cache import NeuralCache
from nplm_jax.apps.adaptive.ngram_cache import NgramCache
from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel

V = 13


WORDS = np.random.default_rng(0).integers(0, V, 400).astype(np.int32)


FAMILIES = {
    'window': {},
    'lstm': {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4},
    'residual': {
        'model.family': 'residual', 'model.direct': False, 'model.n': 3, 'train.batch_size': 8, 'model.bptt_length': 4
    },
}  # fmt: skip


@functools.cache
def network_model(family):
    network = make_network(V, FAMILIES[family])
    return NeuralLanguageModel(network, jax.tree.map(lambda x: 2 * x, network.init(jax.random.key(0))))


@functools.cache
def dynamic(family, rate=0.02, decay=0.01, anchor_rate=0.005, segment=5):
    model = network_model(family)
    rms = dynamic_evaluation.root_mean_square_gradients(model, WORDS, Span(0, 200), segment, 20)
    return DynamicEvaluation(model, rms, rate, decay, segment, anchor_rate)


def streams(network, contexts_BxN):
    """Returns the input of `Network.features` for the contexts of consecutive words: one stream, or the windows."""
    return contexts_BxN.reshape(1, -1) if network.layout.over_streams else contexts_BxN


MODELS = {
    'unigram cache': lambda: NgramCache(V, 1, 20, 2.0),
    'trigram cache': lambda: NgramCache(V, 3, 50, 2.0),
    'neural cache of a window': lambda: NeuralCache(network_model('window'), 30, 5.0),
    'neural cache of an lstm': lambda: NeuralCache(network_model('lstm'), 300, 5.0),
    'dynamic window': lambda: dynamic('window'),
    'dynamic lstm': lambda: dynamic('lstm'),
    'dynamic residual': lambda: dynamic('residual'),
}
