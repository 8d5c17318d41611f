"""Combines a body and an output layer into a network, whose methods are pure functions of the parameters.

Dims: V vocabulary, S streams, L input tokens per stream, T predictions per stream (one after each of the last T
tokens), B = S * T examples, stream by stream, R = L - T tokens of lookback (`Body.lookback`).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.batches import Batch, Layout
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes
from nplm_jax.models.body import Body, BodyOutput, State, by_example
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, OutputLayer, Params, Tables, View
from nplm_jax.utils.errors import BadInput, require


@dataclasses.dataclass(frozen=True)
class Network:
    """A network without its parameters, which methods take as an argument. Instances can be static arguments of `jit`.

    Attributes:
        body: The body, which maps context words to features.
        output: The output layer, which maps features to P(w) and the training loss.
        vocabulary_size: The size of the vocabulary, V.
        line_end: The id of the end-of-line token if lines are read independently of each other
            (`corpus.context=line`). None if the text is read as a single stream. See `data.batches.mark_lines`.
    """

    body: Body
    output: OutputLayer
    vocabulary_size: int
    line_end: int | None = None

    @property
    def tables(self) -> Tables:
        """The tables of the body and of the output layer, including b and the output matrices in `Body.widths`."""
        body, output = self.body.tables, self.output.tables
        words = (*self.body.widths, BIAS, *body.words, *output.words)
        return Tables(words, (*body.others, *output.others), (*body.units, *output.units))

    @property
    def num_rows(self) -> int:
        """The number of rows of the output matrices and of b; see `OutputLayer.num_rows`."""
        return self.output.num_rows(self.vocabulary_size)

    def init(self, key: jax.Array, bias_V: np.ndarray | None = None) -> Params:
        """Returns random initial parameters.

        Args:
            key: A random key.
            bias_V: The initial value of b, float32, such as unigram log-probabilities. If None, b is initialized to
                zero.
        """
        b_V = jnp.zeros(self.vocabulary_size) if bias_V is None else jnp.asarray(bias_V)
        body, widths = self.body.init(key, self.vocabulary_size), self.body.widths
        params = self.output.init(key, self.body.output_keys(key), widths, b_V)
        if taken := sorted(params.keys() & body.keys() - widths.keys()):
            problem = f'must not return {taken[0]}, which is a parameter of the output layer'
            raise BadInput(f'{type(self.body).__name__}.init', problem)
        return params | body  # a tied C comes from the body

    def num_parameters(self) -> int:
        """Returns the total number of parameters."""
        return sum(x.size for x in jax.tree.leaves(jax.eval_shape(lambda: self.init(jax.random.key(0)))))

    @property
    def layout(self) -> Layout:
        """The arrangement of training examples into streams."""
        return self.body.layout

    def start(self, num_streams: int) -> State:
        """Returns the initial state of `num_streams` streams."""
        return self.body.start(num_streams)

    def features(
        self,
        params: Params,
        ids_SxL: jax.Array,
        state: State = None,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
        e_SxLxM: jax.Array | None = None,
    ) -> BodyOutput:
        """Computes the features that the output layer reads. See `Body.features`.

        Args:
            params: The parameters.
            ids_SxL: Token ids of each stream in reading order, int32.
            state: The state of each stream before these tokens. If None, streams are in their initial state.
            keys: The random keys of a training update. If None, the features are computed for scoring, without dropout.
            starts_SxL: Whether each token begins a line; see `Batch`.
            e_SxLxM: The word features of the tokens. If None, they are gathered from the rows of C.

        Raises:
            BadInput: `ids_SxL` is not a matrix or has too few columns.
        """
        R, shape = self.body.lookback if keys is None else self.body.layout.lookback, np.shape(ids_SxL)
        if len(shape) != 2 or shape[1] <= R:
            allowed = f'must have shape (streams, words) with at least {R + 1} words in reading order'
            raise BadInput(f'contexts of shape {shape}', allowed)
        state = self.body.start(shape[0]) if state is None else state
        e_SxLxM = params[EMBEDDING][ids_SxL] if e_SxLxM is None else e_SxLxM
        lines: dict[str, Any] = {} if starts_SxL is None else {'starts_SxL': starts_SxL}
        return self.body.features(params, e_SxLxM, state, keys, **lines)

    def loss(
        self,
        view: View,
        batch: Batch,
        state: State = None,
        keys: Keys | None = None,
        axes: MeshAxes = NO_AXES,
        **options: Any,
    ) -> tuple[jax.Array, tuple[jax.Array, State]]:
        """Computes the training loss of this device's examples, including the body's penalty.

        Args:
            view: The parameters, or the rows that the output layer selected.
            batch: The examples on this device.
            state: The state after the previous batch, or None for the initial state.
            keys: The random keys of the update. If None, dropout is disabled.
            axes: The named mesh axes over which streams and words are sharded.
            **options: Additional arguments that are passed to `OutputLayer.loss`.

        Returns:
            A tuple (loss, (nll, state)) of the training loss, the mean NLL and the state after the batch. The loss and
            the NLL are in nats per word. Depending on the output layer, the NLL is exact or an estimate.
        """
        L, (S, T) = batch.ids_SxL.shape[1], batch.targets_SxT.shape
        allowed = f'must be {(len(batch.ids_SxL), L - self.layout.lookback)}, one target per token after the lookback'
        require(len(batch.ids_SxL) == S and L - T == self.layout.lookback, 'targets of shape', (S, T), allowed)
        batch, params = batch.recent(self.body.layout.lookback), view.shared
        body = self.features(params, batch.ids_SxL, state, keys, batch.starts_SxL, view.contexts_SxLxM)
        features = by_example(body.features)
        if axes.model and EMBEDDING in features:
            local = _local_rows(params[EMBEDDING], len(params[BIAS]), axes.model)
            view = view._replace(shared=params | {EMBEDDING: local})
        loss, nll = self.output.loss(view, features, batch, axes.model, **options)
        return loss + body.penalty, (nll, body.state)


def _local_rows(table_VxD: jax.Array, num_rows: int, axis: str) -> jax.Array:
    """Returns the rows of a replicated array that belong to this device, padded with zeros to `num_rows` rows."""
    first = num_rows * jax.lax.axis_index(axis)
    padding = num_rows * jax.lax.axis_size(axis) - len(table_VxD)
    return jax.lax.dynamic_slice_in_dim(jnp.pad(table_VxD, ((0, padding), (0, 0))), first, num_rows)
