"""A model's arrays in files of other tools: npz, safetensors, ONNX. ARPA and word2vec have their own modules.

Dims: V words, N context words, M features a word, P = N * M, K hidden units, B batch.
"""

import io
import json
import pathlib
from typing import Any

import numpy as np

from nplm_jax.config import Settings, to_dict
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.models.nplm import Window
from nplm_jax.outputs.softmax import Softmax
from nplm_jax.parts import PARTS, part_class
from nplm_jax.runs.loading import arrays_of
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically

WORDS, CONFIG = 'words', 'config'  # what files hold beside the arrays
_ONNX_OPSET, _ONNX_IR = 17, 8


def write_npz(model: LanguageModel, vocabulary: Vocabulary, settings: Settings, path: pathlib.Path) -> None:
    """Writes all arrays, the words in the order of their ids as `words`, and the config as JSON text."""
    texts = {WORDS: np.array(vocabulary.words), CONFIG: np.array(json.dumps(to_dict(settings)))}
    np.savez(file := io.BytesIO(), allow_pickle=False, **arrays_of(model), **texts)
    write_atomically(path, file.getvalue())


def write_safetensors(model: LanguageModel, vocabulary: Vocabulary, settings: Settings, path: pathlib.Path) -> None:
    """Writes all arrays as tensors, and words and config as JSON in the metadata. Needs the package safetensors."""
    safetensors = import_safetensors()
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays_of(model).items()}
    write_atomically(path, safetensors.save(tensors, _metadata(vocabulary, settings)))


def import_safetensors() -> Any:
    """Returns the module safetensors.numpy. Raises BadInput if the package is missing."""
    try:
        import safetensors.numpy
    except ImportError:
        raise BadInput(
            'safetensors: not installed: pip install "nplm-jax[export]", or pip install safetensors'
        ) from None
    return safetensors.numpy


def write_onnx(model: LanguageModel, vocabulary: Vocabulary, settings: Settings, path: pathlib.Path) -> None:
    """Writes equation 1 and its log-softmax as an ONNX graph. Needs the package onnx.

    The graph takes `contexts`, int64, B x N word ids in reading order, and gives `log_probabilities`, float32, B x V,
    nats; any B. Its metadata hold words and config as JSON.

    Raises:
        BadInput: The model is not the paper's window network with a softmax over all words, or onnx is missing.
    """
    network = model.network if isinstance(model, NeuralLanguageModel) else None
    if network is None or type(network.body) is not Window or not isinstance(network.output, Softmax):
        raise BadInput(f'--to=onnx: writes model.family=nplm with {describe_softmax()}')
    try:
        import onnx
    except ImportError:
        raise BadInput('onnx: not installed: pip install "nplm-jax[export]", or pip install onnx') from None
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(kind, inputs, [output], **options) for kind, inputs, output, options in _nodes(network)],
        'nplm',
        [onnx.helper.make_tensor_value_info('contexts', onnx.TensorProto.INT64, ['B', network.body.reach])],
        [onnx.helper.make_tensor_value_info('log_probabilities', onnx.TensorProto.FLOAT, ['B', len(vocabulary)])],
        [onnx.numpy_helper.from_array(array, name) for name, array in _constants(model, network).items()],
    )
    opsets = [onnx.helper.make_opsetid('', _ONNX_OPSET)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_ONNX_IR, producer_name='nplm-jax')
    onnx.helper.set_model_props(proto, _metadata(vocabulary, settings))
    onnx.checker.check_model(proto, full_check=True)
    write_atomically(path, proto.SerializeToString())


def describe_softmax() -> str:
    """Returns words for the output layers whose scores are those of a softmax over all words."""
    kinds = (kind for kind in PARTS['output.kind'].paths if issubclass(part_class('output.kind', kind), Softmax))
    return f'a softmax over all words (output.kind={", ".join(kinds)})'


def _metadata(vocabulary: Vocabulary, settings: Settings) -> dict[str, str]:
    """Returns the words in the order of their ids, and the config, as JSON."""
    return {WORDS: json.dumps(vocabulary.words), CONFIG: json.dumps(to_dict(settings))}


def _nodes(network: Any) -> list[tuple[str, list[str], str, dict[str, Any]]]:
    """Returns the operators of y = b + W x + U tanh(d + H x) and its log-softmax: type, inputs, output, options."""
    by_columns = {'transB': 1}  # Gemm then computes x A^T + c, for the rows x of a batch
    nodes: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ('Gather', ['contexts', 'most_recent_first'], 'recent_BxN', {'axis': 1}),
        ('Gather', ['C_VxM', 'recent_BxN'], 'e_BxNxM', {'axis': 0}),
        ('Reshape', ['e_BxNxM', 'shape_of_x'], 'x_BxP', {}),
    ]
    y = 'b_V'
    if network.body.direct:
        nodes.append(('Gemm', ['x_BxP', 'W_VxP', y], 'direct_BxV', by_columns))
        y = 'direct_BxV'
    if network.body.h:
        nodes += [
            ('Gemm', ['x_BxP', 'H_KxP', 'd_K'], 'o_BxK', by_columns),
            ('Tanh', ['o_BxK'], 'a_BxK', {}),
            ('Gemm', ['a_BxK', 'U_VxK', y], 'y_BxV', by_columns),
        ]
        y = 'y_BxV'
    return [*nodes, ('LogSoftmax', [y], 'log_probabilities', {'axis': 1})]


def _constants(model: LanguageModel, network: Any) -> dict[str, np.ndarray]:
    """Returns the arrays that the graph holds."""
    return {
        **arrays_of(model),
        'most_recent_first': np.arange(network.body.reach)[::-1].astype(np.int64),
        'shape_of_x': np.array([-1, network.body.reach * network.body.m], np.int64),
    }
