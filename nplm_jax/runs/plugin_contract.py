"""Validates plug-in bodies and output layers before training by tracing them on abstract arrays.

Dims: V vocabulary, M features per word, S streams, T predictions per stream, B = S * T.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from nplm_jax.config import plugins
from nplm_jax.config.plugins import is_path
from nplm_jax.data.batches import Batch
from nplm_jax.models.body import Body, BodyOutput, by_example
from nplm_jax.models.network import Network
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import EMBEDDING, OutputLayer, SparseOutputLayer, View, view_rows
from nplm_jax.outputs.softmax import LINEAR
from nplm_jax.utils.errors import require

_S = 2


def validate(network: Network, extras: Any) -> None:
    """Checks what the members of the body and of the output layer return. Components of this package are skipped.

    Args:
        network: The network.
        extras: The result of `OutputLayer.make_extras`.

    Raises:
        BadInput: A member raises an error, or its result has other names, shapes or dtypes than its contract requires.
    """
    if is_path(network.body.name) or is_path(network.output.name):
        check_output(network, check_body(network), extras)


class _Contract(NamedTuple):
    """A plug-in and the config key that names it, used to check its members.

    Attributes:
        key: The config key that names the plug-in.
        plugin: The plug-in.
    """

    key: str
    plugin: Body | OutputLayer

    def trace(self, member: str, function: Callable[..., Any], *args: Any) -> Any:
        """Returns the shapes of the function's result. If the function fails, raises BadInput, naming `member`."""
        with plugins.failure_as_bad_input(self.key, self.plugin.name, f'{type(self.plugin).__name__}.{member} failed'):
            return jax.eval_shape(function, *args)

    def require(self, member: str, found: Any, expected: Any, what: str = '') -> None:
        """Raises BadInput unless the result of a member, described by `found`, equals `expected`."""
        is_same = jax.tree.flatten(found) == jax.tree.flatten(expected)
        problem = f'{type(self.plugin).__name__}.{member} must return {what}{expected}, but returned {found}'
        require(is_same, self.key, self.plugin.name, problem)


def check_body(network: Network) -> BodyOutput:
    """Checks the members of a body and returns the shapes of its output in training. See `validate`."""
    body, V, key = network.body, network.vocabulary_size, jax.random.key(0)
    contract = _Contract('model.family', body)
    params = contract.trace('init', lambda: dict(body.init(key, V)))
    contract.require('init', _describe(params), _describe(params, dtype='float32'), 'the parameters as ')
    C_VxM = params.get(EMBEDDING)
    M = 'M' if C_VxM is None or C_VxM.ndim != 2 else C_VxM.shape[1]
    contract.require('init', _describe(C_VxM), f'float32[{V}, {M}]', f'{EMBEDDING} as ')
    state = contract.trace('start', lambda: body.start(_S))
    contract.require(f'start({_S})', _describe(state), _describe(state, rows=_S), 'arrays with one row per stream, ')
    widths = contract.trace('widths', lambda: {name: jnp.zeros(width) for name, width in body.widths.items()})
    for in_training in (False, True):
        T, lookback = (body.layout.bptt_length, body.layout.lookback) if in_training else (2, body.lookback)
        ids_SxL = jax.ShapeDtypeStruct((_S, lookback + T), jnp.int32)
        keys = Keys.of_streams(key, jnp.arange(_S)) if in_training else None
        features = functools.partial(network.features, keys=keys)
        output = contract.trace('features', features, params, ids_SxL)
        contract.require('features', type(output).__name__, BodyOutput.__name__)
        if body.scorer is LINEAR:
            expected = {name: f'float32[{_S}, {T}, {len(width)}]' for name, width in widths.items()}
            contract.require('features', _describe(output.features), expected, 'features S x T x D per output matrix, ')
        contract.require('features', _describe(output.state), _describe(state), 'a state with the shapes of start(), ')
        contract.require('features', _describe(output.penalty), 'float32[]', 'a scalar penalty, ')
    return output


def check_output(network: Network, output: BodyOutput, extras: Any) -> None:
    """Checks the members of an output layer. See `validate`.

    Args:
        network: The network.
        output: The shapes of the body's output in training.
        extras: The result of `OutputLayer.make_extras`.
    """
    layer, V, layout = network.output, network.vocabulary_size, network.layout
    contract, T = _Contract('output.kind', layer), layout.bptt_length
    ids_SxL, targets_SxT = (jax.ShapeDtypeStruct((_S, n), jnp.int32) for n in (layout.lookback + T, T))
    batch = Batch(cast(Any, ids_SxL), cast(Any, targets_SxT), jnp.arange(_S), extras=extras)
    key = jax.random.key(0)
    params = contract.trace('init', network.init, key)
    features = jax.eval_shape(by_example, output.features)
    state = layer.init_state(V) if isinstance(layer, SparseOutputLayer) else None
    rows = contract.trace('rows', lambda batch: layer.rows(batch, key, state), batch)
    view = View(params)
    if rows is not None:
        view = contract.trace('rows', lambda params, rows: view_rows(params, network.tables.words, rows), params, rows)
    losses = contract.trace('loss', layer.loss, view, features, batch)
    contract.require('loss', _describe(losses), ('float32[]', 'float32[]'), 'the loss and the mean NLL, ')
    log_p_BxV = contract.trace('log_probabilities', layer.log_probabilities, params, features)
    contract.require(
        'log_probabilities', _describe(log_p_BxV), f'float32[{_S * T}, {V}]', f'an array B x V with B={_S * T}, '
    )
    nll_B = contract.trace('nll', layer.nll, params, features, jax.ShapeDtypeStruct((_S * T,), jnp.int32))
    contract.require('nll', _describe(nll_B), f'float32[{_S * T}]', f'an array of length B={_S * T}, ')


def _describe(tree: Any, dtype: str = '', rows: int | None = None) -> Any:
    """Replaces each array of a tree with its dtype and shape as text, such as `float32[2, 5]`.

    Args:
        tree: A tree of arrays.
        dtype: The dtype to show instead of the actual dtypes, or ''.
        rows: The number of rows to show instead of the actual numbers, or None.
    """
    return jax.tree.map(lambda x: f'{dtype or x.dtype}{[*x.shape] if rows is None else [rows, *x.shape[1:]]}', tree)
