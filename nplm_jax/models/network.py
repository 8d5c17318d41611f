"""A network: a body and an output layer over V words, as pure functions of a dictionary of parameters.

Dims: V vocabulary, S streams, L tokens of each that are read, T of them after which there are predictions, B = S * T
examples, stream by stream.
"""

import dataclasses
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax import config, parts
from nplm_jax.config import Settings
from nplm_jax.data.vocabulary import Vocabulary, numbered
from nplm_jax.distributed.sharding import NO_AXES, PADDING_BIAS, MeshAxes
from nplm_jax.models.body import Body, State, by_example
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, Features, OutputLayer, Params
from nplm_jax.outputs.softmax import LINEAR
from nplm_jax.utils import nn
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.nn import AxisName, Key


@dataclasses.dataclass(frozen=True)
class Network:
    """The static part of a network: body, output layer and |V|. Parameters are arguments of its methods.

    Attributes:
        body: Maps context words to features.
        output: Maps features to P(w) and the training loss.
        vocabulary_size: V.
    """

    body: Body
    output: OutputLayer
    vocabulary_size: int

    @classmethod
    def make(cls, settings: Settings, vocabulary: Vocabulary | int) -> Self:
        """Returns the network that a config describes, over the words of a vocabulary or over so many words.

        A precision that is `auto` is this processor's; the settings of a run that has begun have none.

        Raises:
            BadInput: The settings are impossible or do not fit the vocabulary.
        """
        settings = resolve_precisions(settings)
        body = parts.make('model.family', settings)
        body.check(settings)
        words = numbered(vocabulary) if isinstance(vocabulary, int) else vocabulary
        output = parts.make('output.kind', settings).over(words)
        if body.scorer is not LINEAR:
            output = dataclasses.replace(cast(Any, output), scorer=body.scorer)
        return cls(body, output, len(words))

    @property
    def output_tables(self) -> tuple[str, ...]:
        """Names of the parameters with one row per output word."""
        return (*self.body.widths, BIAS, *self.body.output_tables, *self.output.output_tables)

    @property
    def word_tables(self) -> tuple[str, ...]:
        """Names of the parameters with one row per word: the output tables, and C, which may be one of them."""
        return tuple(dict.fromkeys((*self.output_tables, EMBEDDING)))

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the parameters that are tables for the optimizer: each row is a vector of something."""
        return (*self.word_tables, *self.body.tables, *self.output.tables)

    @property
    def paddings(self) -> tuple[tuple[str, float], ...]:
        """The parameters that are divided over devices by their rows, and what pads them: see `MeshSharding`.

        C is not one of them, tied or not: each device reads any row of it.
        """
        return tuple((name, PADDING_BIAS if name == BIAS else 0.0) for name in self.output_tables if name != EMBEDDING)

    @property
    def num_rows(self) -> int:
        """Number of rows of the output tables, V for most output layers."""
        return self.output.num_rows(self.vocabulary_size)

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
            raise BadInput(f"{type(self.body).__name__}.init: {taken[0]} is the name of an output layer's parameter")
        return params | body  # a tied C is the body's

    def num_parameters(self) -> int:
        """Returns the number of free parameters."""
        shapes = jax.eval_shape(lambda: self.init(jax.random.key(0)))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    def check_takes_new_words(self) -> None:
        """Raises BadInput if the output layer has more than one row per word."""
        allowed = 'cannot take new words; the networks of output.kind full, sampled and nce can'
        require(self.output.takes_new_words, 'output layer', type(self.output).__name__, allowed)

    def append_words(self, params: Params, rows: Params) -> tuple[Self, Params]:
        """Returns the network and the parameters with more words, whose ids follow the last one.

        Args:
            params: The parameters.
            rows: The rows of the new words, of each of `word_tables`.
        """
        self.check_takes_new_words()
        longer = {name: jnp.concatenate([params[name], rows[name]]) for name in self.word_tables}
        return dataclasses.replace(self, vocabulary_size=self.vocabulary_size + len(rows[BIAS])), params | longer

    def features(
        self, params: Params, ids_SxL: jax.Array, state: State = None, key: Key = None, axis: AxisName = None
    ) -> tuple[Features, State]:
        """Computes the features that the output layer multiplies, B x D. See `Body.features`.

        Args:
            params: The parameters.
            ids_SxL: Token ids of each stream in reading order, int32.
            state: The state of the streams before these tokens; None for that of `Body.start`.
            key: A random key for dropout; None switches it off.
            axis: The named axis over which the streams are divided, if they are.
        """
        self.check_contexts(ids_SxL)
        state = self.body.start(len(ids_SxL)) if state is None else state
        features, state = self.body.features(params, params[EMBEDDING][ids_SxL], state, key, axis)
        return by_example(features), state

    def check_contexts(self, ids_SxL: jax.Array, targets_B: jax.Array | None = None) -> None:
        """Raises BadInput unless `Body.features` takes so many tokens: others could silently give wrong numbers."""
        shape, N = np.shape(ids_SxL), self.body.num_context
        is_window = not self.body.has_state and self.body.bptt_length is None
        takes = f'batch x {N}' if is_window else 'streams x tokens'
        ok = len(shape) == 2 and shape[1] == N if is_window else len(shape) == 2
        if ok and targets_B is not None:
            ok = len(targets_B) == (shape[0] if is_window else np.size(ids_SxL))
            takes = f'{takes} for {len(targets_B)} targets'
        if not ok:
            raise BadInput(f'contexts of shape {shape}: must be {takes}, in reading order, the most recent word last')

    def loss(
        self,
        params: Params,
        ids_SxL: jax.Array,
        targets_B: jax.Array,
        state: State = None,
        key: Key = None,
        axes: MeshAxes = NO_AXES,
    ) -> tuple[jax.Array, State]:
        """Returns the mean NLL of this device's examples, nats per word, and the state after them.

        Its gradient is that of the NLL plus the body's penalty.

        Args:
            params: The parameters.
            ids_SxL: Token ids of each stream in reading order, int32.
            targets_B: The tokens that follow, stream by stream, int32.
            state: The state of the streams before these tokens; None for that of `Body.start`.
            key: A random key for dropout; None switches it off.
            axes: The named axes over which the streams and the words are divided.
        """
        self.check_contexts(ids_SxL, targets_B)
        features, state = self.features(params, ids_SxL, state, key, axes.data)
        if axes.model and EMBEDDING in features:
            params = params | {EMBEDDING: _local_rows(params[EMBEDDING], len(params[BIAS]), axes.model)}
        nll = self.output.loss(params, features, targets_B, axes.model)
        penalty = self.body.penalty(features)
        return nll + (penalty - jax.lax.stop_gradient(penalty)), state  # the value is the NLL's


def resolve_precisions(settings: Settings) -> Settings:
    """Returns settings in which each precision that is `auto` is this processor's."""
    values = {'model.precision': settings.model.precision, 'output.precision': settings.output.precision}
    return config.replace(settings, {key: nn.native_precision() for key, value in values.items() if value == 'auto'})


def _local_rows(table_VxD: jax.Array, num_rows: int, axis: str) -> jax.Array:
    """Returns this device's rows of an array that every device has in full, padded with zeros where it has fewer."""
    first = num_rows * jax.lax.axis_index(axis)
    padding = num_rows * jax.lax.axis_size(axis) - len(table_VxD)
    return jax.lax.dynamic_slice_in_dim(jnp.pad(table_VxD, ((0, padding), (0, 0))), first, num_rows)
