"""The graph that is written as ONNX, computed by NumPy."""

import jax
import numpy as np
import pytest
import scipy.special
from helpers import make_network

from nplm_jax.apps.export import arrays
from nplm_jax.models.neural import NeuralLanguageModel

V, N = 13, 3
OPERATORS = {
    'Gather': lambda data, ids, axis: np.take(data, ids, axis),
    'Reshape': np.reshape,
    'Gemm': lambda x, matrix, added, transB: x @ matrix.T + added,
    'Tanh': np.tanh,
    'LogSoftmax': lambda y, axis: scipy.special.log_softmax(y, axis),
}


@pytest.mark.parametrize('direct, h', [(False, 5), (True, 5), (True, 0)])
def test_the_graph_computes_the_models_log_probabilities(direct, h):
    network = make_network(V, {'model.n': N + 1, 'model.direct': direct, 'model.h': h})
    model = NeuralLanguageModel(network, jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0))))
    contexts_BxN = np.random.default_rng(0).integers(0, V, (7, N))
    values = arrays._constants(model, network) | {'contexts': contexts_BxN}
    for kind, inputs, output, options in arrays._nodes(network):
        values[output] = OPERATORS[kind](*(values[name] for name in inputs), **options)
    np.testing.assert_allclose(values['log_probabilities'], model.next_word(contexts_BxN), rtol=1e-5, atol=1e-5)


def test_the_format_is_the_oldest_that_has_the_operators():
    onnx = pytest.importorskip('onnx', reason='pip install onnx')
    opset = onnx.helper.make_opsetid('', arrays._ONNX_OPSET)
    assert onnx.helper.find_min_ir_version_for([opset]) == arrays._ONNX_IR
