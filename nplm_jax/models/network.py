"""A network: a body and an output layer over V words, as pure functions of a dictionary of parameters.

Dims: V vocabulary, S streams, L tokens of each that are read, T of them after which there are predictions, B = S * T
examples, stream by stream, R = L - T tokens before these (`Body.lookback`).
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.batches import Batch, Layout
from nplm_jax.data.stream import RARE_ID
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes
from nplm_jax.models.body import Body, BodyOutput, State, by_example
from nplm_jax.models.teachers import Teachers, read_with_teachers
from nplm_jax.nn import AxisName, Key
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, Features, OutputLayer, Params, Tables
from nplm_jax.utils.errors import BadInput, require


class Tokens(NamedTuple):
    """What a body reads.

    Attributes:
        ids_SxL: Token ids, int32. Between lines that are read by themselves stands the rare-word symbol, which is in
            all places of a window before its line too.
        starts_SxL: Whether the state begins anew before a token; None where it never does.
    """

    ids_SxL: jax.Array
    starts_SxL: jax.Array | None = None


@dataclasses.dataclass(frozen=True)
class Network:
    """The static part of a network: body, output layer and |V|. Parameters are arguments of its methods.

    Attributes:
        body: Maps context words to features.
        output: Maps features to P(w) and the training loss.
        vocabulary_size: V.
        line_end: The id of the token that ends a line, for a network that reads each line by itself
            (`corpus.context=line`): a window then has rare-word symbols in the places before its line, and a state
            begins anew. None for a network that reads the text as one stream.
        teachers: The networks from whose distributions this one learns in training; None for none.
    """

    body: Body
    output: OutputLayer
    vocabulary_size: int
    line_end: int | None = None
    teachers: Teachers | None = None

    @property
    def tables(self) -> Tables:
        """The tables of the body and the output layer, the matrices of `Body.widths` and b included."""
        body, output = self.body.tables, self.output.tables
        words = (*self.body.widths, BIAS, *body.words, *output.words)
        return Tables(words, (*body.others, *output.others), (*body.units, *output.units))

    def init(self, key: jax.Array, bias_V: np.ndarray | None = None) -> Params:
        """Returns random parameters.

        Args:
            key: A random key; the parameters are a pure function of it.
            bias_V: Initial b, float32 (unigram log-probabilities); zeros when None.
        """
        b_V = jnp.zeros(self.vocabulary_size) if bias_V is None else jnp.asarray(bias_V)
        body, widths = self.body.init(key, self.vocabulary_size), self.body.widths
        params = self.output.init(key, self.body.output_keys(key), widths, b_V)
        if taken := sorted(params.keys() & body.keys() - widths.keys()):
            raise BadInput(f'{type(self.body).__name__}.init', f"{taken[0]} is the name of an output layer's parameter")
        return params | body  # a tied C is the body's

    def num_parameters(self) -> int:
        """Returns the number of free parameters."""
        shapes = jax.eval_shape(lambda: self.init(jax.random.key(0)))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    def features(
        self,
        params: Params,
        ids_SxL: jax.Array,
        state: State = None,
        key: Key = None,
        axis: AxisName = None,
        e_SxLxM: jax.Array | None = None,
    ) -> BodyOutput:
        """Computes the features that the output layer multiplies. See `Body.features`.

        Args:
            params: The parameters.
            ids_SxL: Token ids of each stream in reading order, int32.
            state: The state of the streams before these tokens; None for that of `Body.start`.
            key: A random key for the dropout of a training update; None while scoring.
            axis: The named axis over which the streams are divided, if they are.
            e_SxLxM: The rows of C of what `body_tokens` returns, if they have been gathered already.
        """
        R = self.body.lookback if key is None else self.body.layout.lookback
        tokens = body_tokens(self, ids_SxL, R)
        state = self.body.start(ids_SxL.shape[0]) if state is None else state
        if self.line_end is not None and 0 < R < ids_SxL.shape[1] - 1:  # each window by itself: its words differ
            indices_TxR = jnp.arange(ids_SxL.shape[1] - R)[:, None] + jnp.arange(R + 1)[None, :]
            output = self.features(params, ids_SxL[:, indices_TxR].reshape(-1, R + 1), None, key, axis)
            return BodyOutput(
                {name: x.reshape(len(ids_SxL), -1, x.shape[2]) for name, x in output.features.items()}, state
            )
        e_SxLxM = params[EMBEDDING][tokens.ids_SxL] if e_SxLxM is None else e_SxLxM
        starts = {} if tokens.starts_SxL is None else {'starts_SxL': tokens.starts_SxL}
        return self.body.features(params, e_SxLxM, state, key, axis, **starts)

    @property
    def layout(self) -> Layout:
        """How training lays out the examples of an update: as the body does, with more lookback for the teachers."""
        layout = self.body.layout
        return (
            layout if self.teachers is None else layout._replace(lookback=max(layout.lookback, self.teachers.lookback))
        )

    def loss(
        self,
        params: Params,
        batch: Batch,
        state: State = None,
        key: Key = None,
        axes: MeshAxes = NO_AXES,
        teacher_params: Sequence[Params] = (),
    ) -> tuple[jax.Array, State]:
        """Returns the mean NLL of this device's examples, nats per word, and the state after them.

        Its gradient is that of the NLL, or of the loss with teachers, plus the body's penalty.

        Args:
            params: The parameters.
            batch: The examples.
            state: The state of the streams before these tokens; None for that of `Body.start`.
            key: A random key for the dropout of a training update; None for no dropout.
            axes: The named axes over which the streams and the words are divided.
            teacher_params: The teachers' parameters. With teachers, `state` is what `training_start` returns.
        """
        batch, state, teachers, teacher_states = read_with_teachers(self, batch, state, teacher_params)
        output = self.features(params, batch.ids_SxL, state, key, axes.data)
        features = by_example(output.features)
        check_targets(features, batch)
        if axes.model and EMBEDDING in features:
            params = params | {EMBEDDING: _local_rows(params[EMBEDDING], len(params[BIAS]), axes.model)}
        penalty = output.penalty
        if not teachers:
            nll, state = self.output.loss(params, features, batch, axes.model), output.state
        else:
            loss, nll = cast(FullSoftmax, self.output).distillation_loss(params, features, batch, teachers)
            penalty, nll, state = penalty + loss, jax.lax.stop_gradient(nll), (output.state, teacher_states)
        return nll + (penalty - jax.lax.stop_gradient(penalty)), state  # the value is the NLL's


def body_tokens(network: Network, ids_SxL: jax.Array, lookback: int) -> Tokens:
    """Returns what the body reads: the tokens as they are, or lines by themselves (`line_end`).

    Args:
        network: The network.
        ids_SxL: Token ids of each stream, int32. Those of a window with a lookback are for one prediction.
        lookback: R.

    Raises:
        BadInput: They are too few, or not a matrix: they could silently give wrong numbers.
    """
    shape = np.shape(ids_SxL)
    if len(shape) != 2 or shape[1] <= lookback:
        allowed = f'must be streams x {lookback + 1} or more, in reading order, the most recent word last'
        raise BadInput(f'contexts of shape {shape}', allowed)
    if network.line_end is None:
        return Tokens(ids_SxL)
    is_end_SxL = ids_SxL == network.line_end
    if not lookback:
        starts_SxL = is_end_SxL if network.body.layout.over_streams else None
        return Tokens(jnp.where(is_end_SxL, RARE_ID, ids_SxL), starts_SxL)
    is_before_SxL = jax.lax.cummax(is_end_SxL.astype(jnp.int32), axis=1, reverse=True) > 0
    return Tokens(jnp.where(is_before_SxL, RARE_ID, ids_SxL))


def check_targets(features: Features, batch: Batch) -> None:
    """Raises BadInput unless there is one target for each example: others could silently give wrong numbers."""
    B, shape = len(next(iter(features.values()))), np.shape(batch.targets_SxT)
    allowed = f'must be {B} for contexts of shape {np.shape(batch.ids_SxL)}, one for each position after the lookback'
    require(len(shape) == 2 and np.size(batch.targets_SxT) == B, 'targets of shape', shape, allowed)


def _local_rows(table_VxD: jax.Array, num_rows: int, axis: str) -> jax.Array:
    """Returns this device's rows of an array that every device has in full, padded with zeros where it has fewer."""
    first = num_rows * jax.lax.axis_index(axis)
    padding = num_rows * jax.lax.axis_size(axis) - len(table_VxD)
    return jax.lax.dynamic_slice_in_dim(jnp.pad(table_VxD, ((0, padding), (0, 0))), first, num_rows)
