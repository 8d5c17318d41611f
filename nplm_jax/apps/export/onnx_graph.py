"""Exports networks as ONNX graphs, which read one word of each stream per call.

The state of a network is an input and an output of its graph.

jax2onnx converts the functions that all commands use: `network_reading.read` and the output layer's
`log_probabilities`.

Dims: V words, S streams, I inputs of a matrix, O outputs of a matrix.
"""

import contextlib
import importlib.metadata
import json
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.apps.export.arrays import metadata
from nplm_jax.config.settings import Settings
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.body import by_example
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.network import Network
from nplm_jax.models.network_reading import ReadState, read, start_state
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params
from nplm_jax.utils.errors import BadInput, first_line
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.packages import OptionalPackage, require_package

onnx, onnxruntime = OptionalPackage('onnx', 'export'), OptionalPackage('onnxruntime', 'export')
quantization = OptionalPackage('onnxruntime.quantization', 'export')
IDS, LOG_PROBABILITIES = 'ids', 'log_probabilities'
STATE, NEXT = 'state', 'next'  # prefixes of state names; STATE is also the metadata key of the initial states
OPSET = 18


def write_onnx(
    model: LanguageModel, vocabulary: Vocabulary, settings: Settings, path: pathlib.Path, int8: bool = False
) -> None:
    """Writes a network as an ONNX graph. Requires the package jax2onnx.

    The inputs are `ids` (int64, S), the next word of each stream, and the arrays `state.*`. The outputs are
    `log_probabilities` (float32, S x V, nats) and the arrays `next.*`, to be passed as `state.*` to the next call. S
    may vary between calls. A text starts with the rare-word symbol, whose id is 0. The metadata contains `words`,
    `config` and `state` as JSON. `state` gives the shape, type and fill value of each initial state.

    Args:
        model: The network.
        vocabulary: The vocabulary of the network.
        settings: The settings of the run.
        path: The file to write.
        int8: Whether to quantize the matrices to 8 bits, which requires the package onnxruntime.

    Raises:
        BadInput: The model is not a network, jax2onnx cannot convert it, or a package is not installed.
    """
    if not isinstance(model, NeuralLanguageModel):
        problem = f'requires a network, not model.family={settings.model.name}; for back-off models, use --to=arpa'
        raise BadInput('--to', problem, value='onnx')
    try:
        proto, starts = convert(model.network, model.params)
    except BadInput:
        raise
    except Exception as error:
        parts = f'model.family={settings.model.name} with output.kind={settings.output.name}'
        version = importlib.metadata.version('jax2onnx')
        problem = f'jax2onnx {version} cannot convert {parts}: {first_line(error)}'
        raise BadInput('--to', problem, value='onnx') from error
    if int8:
        proto = quantize(proto)
    onnx.helper.set_model_props(proto, metadata(vocabulary, settings) | {STATE: json.dumps(starts)})
    onnx.checker.check_model(proto, full_check=True)
    write_atomically(path, proto.SerializeToString())


def convert(network: Network, params: Params) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Converts a network to an onnx.ModelProto. Also returns the shape, type and initial value of each state input."""
    jax2onnx = require_package('jax2onnx', 'export', 'pip install --no-deps jax2onnx')
    step, start = _make_step(network, params)
    S = jax.export.symbolic_shape('S')[0]
    shapes = [jax.ShapeDtypeStruct((S, *x.shape[1:]), x.dtype) for x in start.values()]
    names = {kind: [f'{kind}.{name}' for name in start] for kind in (STATE, NEXT)}
    # Hides warnings about untyped constants and missing optional packages.
    with _errors_only():
        proto = jax2onnx.to_onnx(
            step,
            [jax.ShapeDtypeStruct((S,), jnp.int32), *shapes],
            model_name='nplm',
            opset=OPSET,
            input_names=['ids_int32', *names[STATE]],
            output_names=[LOG_PROBABILITIES, *names[NEXT]],
        )
    graph_ids = proto.graph.input[0]
    graph_ids.name, graph_ids.type.tensor_type.elem_type = IDS, onnx.TensorProto.INT64  # as returned by tokenizers
    proto.graph.node.insert(0, onnx.helper.make_node('Cast', [IDS], ['ids_int32'], to=onnx.TensorProto.INT32))
    _move_matrices_right(proto.graph)
    proto.producer_name = 'nplm-jax'
    starts = {
        name: {'shape': ['S', *x.shape[1:]], 'dtype': str(x.dtype), 'fill': x.flat[0].item()}
        for name, x in zip(names[STATE], start.values())
    }
    return proto, starts


def _make_step(network: Network, params: Params) -> tuple[Callable[..., Any], dict[str, np.ndarray]]:
    """Returns the function that reads one word of each stream, and the initial state arrays of one stream.

    The function takes the ids (S) and the state arrays of S streams. It returns log P (S x V) and the next state
    arrays. Arrays that are empty or never change are not part of the state.

    Raises:
        ValueError: The values of an initial state array are not all equal.
    """
    params = jax.tree.map(jnp.asarray, params)
    paths, structure = jax.tree.flatten_with_path(start_state(network, 1))
    names = [jax.tree_util.keystr(path, simple=True, separator='.') for path, _ in paths]
    leaves = [np.asarray(leaf) for _, leaf in paths]

    def step_all(ids_S: jax.Array, *state: jax.Array) -> tuple[jax.Array, ...]:
        with jax.disable_jit(), jax.default_matmul_precision('float32'):  # without jit, one word needs no loop
            before: ReadState = jax.tree.unflatten(structure, state)
            features, after = read(network, params, before, ids_S[:, None])
            return network.output.log_probabilities(params, by_example(features)), *jax.tree.leaves(after)

    traced = jax.make_jaxpr(step_all)(jnp.zeros(1, jnp.int32), *leaves).jaxpr
    pairs = zip(leaves, traced.invars[1:], traced.outvars[1:])
    is_carried = [leaf.size > 0 and before is not after for leaf, before, after in pairs]
    carried = {name: leaf for name, leaf, kept in zip(names, leaves, is_carried) if kept}
    if several := [name for name, leaf in carried.items() if np.any(leaf != leaf.flat[0])]:
        raise ValueError(f'the values of the initial state {several[0]} are not all equal')

    def step(ids_S: jax.Array, *state: jax.Array) -> tuple[jax.Array, ...]:
        given = iter(state)
        S = ids_S.shape[0]
        before = (
            next(given) if kept else jnp.broadcast_to(leaf, (S, *leaf.shape[1:]))
            for leaf, kept in zip(leaves, is_carried)
        )
        log_p_SxV, *after = step_all(ids_S, *before)
        return log_p_SxV, *(x for x, kept in zip(after, is_carried) if kept)

    return step, carried


def quantize(proto: Any) -> Any:
    """Quantizes the matrices of a graph to 8-bit integers with ONNX Runtime's dynamic quantization.

    Weights use only 7 bits, because sums of 8-bit products overflow on CPUs without VNNI instructions, such as CPUs
    that have only AVX2. With weight tying, C is stored twice: once for the input, and once for the output.
    """
    with tempfile.TemporaryDirectory() as folder:
        folded, written = f'{folder}/folded.onnx', f'{folder}/int8.onnx'
        session = onnxruntime.SessionOptions()
        session.optimized_model_filepath = folded  # the graph after folding constant subexpressions into matrices
        session.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        session.log_severity_level = 3  # errors
        disabled = ['MatMulAddFusion']  # it creates Gemm operations, which would not be quantized
        providers = ['CPUExecutionProvider']
        onnxruntime.InferenceSession(proto.SerializeToString(), session, providers, disabled_optimizers=disabled)
        with _errors_only():  # hides advice about constants and unquantized comparisons
            options = {'weight_type': quantization.QuantType.QInt8, 'per_channel': True, 'reduce_range': True}
            quantization.quantize_dynamic(folded, written, **options)
        return onnx.load(written)


def _move_matrices_right(graph: Any) -> None:
    """Rewrites products as MatMul operations with the matrix on the right, I x O.

    jax2onnx emits most products as Gemm, op(a) op(b) + c. It emits the products of output layers as matrix times
    features, O x S. ONNX Runtime quantizes only matrices on the right, and is also faster with them in float32. It
    transposes stored matrices when it loads the graph. With weight tying, C is therefore stored only once.
    """
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    initializers = {array.name: array for array in graph.initializer}
    matrices = {name for name, array in initializers.items() if len(array.dims) == 2}
    nodes: list[Any] = []
    transposed: set[str] = set()

    def transpose(name: str, result: str) -> str:
        nodes.append(helper.make_node('Transpose', [name], [result], perm=[1, 0]))
        return result

    for node in graph.node:
        options = {option.name: helper.get_attribute_value(option) for option in node.attribute}
        if options.get('equation') == b'abc,cd->abd':
            nodes.append(helper.make_node('MatMul', node.input, node.output))
            continue
        if node.op_type in ('Concat', 'Transpose') and matrices.issuperset(node.input):
            matrices.update(node.output)
        is_matrix = [name in matrices for name in node.input[:2]]
        is_scaled = options.get('alpha', 1) != 1 or options.get('beta', 1) not in (0, 1)
        if node.op_type not in ('MatMul', 'Gemm') or sum(is_matrix) != 1 or is_scaled:
            nodes.append(node)
            continue
        (left, right, *added), result = node.input, node.output[0]
        on_left = is_matrix[0]  # uses a b = (b^T a^T)^T
        matrix, inputs = (left, right) if on_left else (right, left)
        of_matrix, of_inputs = ('transA', 'transB') if on_left else ('transB', 'transA')
        matrix_turns, inputs_turn = (bool(options.get(name)) != on_left for name in (of_matrix, of_inputs))
        if matrix_turns:
            turned = f'{matrix}.right'
            if turned not in transposed:
                transposed.add(transpose(matrix, turned))
            matrix = turned
        if inputs_turn:
            inputs = transpose(inputs, f'{result}.inputs')
        addend = initializers.get(added[0]) if added else None
        is_zero = options.get('beta') == 0 or (addend and not numpy_helper.to_array(addend).any())
        is_sum = any(added) and not is_zero
        product = f'{result}.product' if on_left or is_sum else result
        nodes.append(helper.make_node('MatMul', [inputs, matrix], [product]))
        if on_left:
            product = transpose(product, f'{result}.turned' if is_sum else result)
        if is_sum:
            nodes.append(helper.make_node('Add', [product, added[0]], [result]))
    used = {*_inputs(nodes), *(output.name for output in graph.output)}
    for field, kept in (('node', nodes), ('initializer', [a for name, a in initializers.items() if name in used])):
        graph.ClearField(field)
        getattr(graph, field).extend(kept)


def _inputs(nodes: Iterable[Any]) -> Iterator[str]:
    """Yields the names of the inputs of nodes, including nodes inside loops and conditions."""
    for node in nodes:
        yield from node.input
        for option in node.attribute:
            yield from _inputs(option.g.node)


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Silences log messages below level ERROR."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
