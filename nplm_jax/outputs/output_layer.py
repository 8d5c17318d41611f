"""Interface of output layers: from a network's features to P(w) and the training loss.

An output layer multiplies each of its weight matrices with one array of features. The body says which matrices there
are and how wide they are: the paper's network has U (V x K, multiplied with the hidden units a) and W (V x P,
multiplied with the word features x). Features come by the name of their matrix: `{'U_VxK': a_BxK, 'W_VxP': x_BxP}`.

Dims: B batch, V vocabulary, D width of one array of features, L output rows that belong to one example, S output rows
that all examples share.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax import nn
from nplm_jax.config.component import Component
from nplm_jax.data.batches import Batch

if TYPE_CHECKING:
    from nplm_jax.data.vocabulary import Vocabulary

Params = dict[str, Any]  # arrays by the paper's letters, float32
Features = dict[str, jax.Array]  # name of an output matrix -> the features that it multiplies, B x D, float32
Losses = tuple[jax.Array, jax.Array]  # the loss and the mean NLL, float32 scalars in nats per word
BIAS = 'b_V'
EMBEDDING = 'C_VxM'  # the word features, which every body has, and whose rows are output rows where they are tied


class Tables(NamedTuple):
    """Names of the parameters of a body or an output layer by what each of their rows belongs to.

    Attributes:
        words: Those with one row per output word, besides the output matrices and b. A mesh divides their rows.
        others: Those with one row for something else, such as a position or a class of words. Each device has them in
            full.
        units: The matrices, no tables, with one row per output unit: (out, in). Other matrices are (in, out), which
            optimizers such as Muon need to know.
    """

    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @property
    def of_words(self) -> tuple[str, ...]:
        """Those of a network with one row per word: `words`, and C, which may be one of them."""
        return tuple(dict.fromkeys((*self.words, EMBEDDING)))

    @property
    def all(self) -> tuple[str, ...]:
        """Those of a network whose rows are vectors, as optimizers distinguish them from matrices."""
        return (*self.of_words, *self.others)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputLayer(Component, abc.ABC):
    """P(w | features) over V words, and its training loss.

    Attributes:
        takes_new_words: Whether P(w) depends on nothing but one row per word, so that rows of further words can follow.
        tables: Its tables besides the output matrices and b. `loss` gets the same rows of all that have one row per
            output word.
    """

    takes_new_words = False
    tables: ClassVar[Tables] = Tables()

    def over(self, vocabulary: 'Vocabulary') -> Self:
        """Returns the layer over the words of a vocabulary, with values such as `samples` lowered to fit a small one.

        Raises:
            BadInput: The layer does not fit the vocabulary.
        """
        return self

    def num_rows(self, vocabulary_size: int) -> int:
        """Returns the number of rows of the output matrices and of b: V, unless rows are not of words."""
        return vocabulary_size

    def init(
        self, key: jax.Array, keys: Mapping[str, jax.Array], widths: Mapping[str, int], bias_V: jax.Array
    ) -> Params:
        """Returns the layer's parameters: matrices uniform in +-1/sqrt(width), and b.

        Args:
            key: A random key for further parameters of a layer.
            keys: A random key for each output matrix, by name.
            widths: The width of each output matrix, by name.
            bias_V: Initial b, float32.
        """
        shapes = {name: (len(bias_V), width) for name, width in widths.items()}
        matrices = {name: nn.uniform(keys[name], shape, shape[1] ** -0.5) for name, shape in shapes.items()}
        return {**matrices, BIAS: bias_V}

    def make_extras(self, train_T: np.ndarray, vocabulary_size: int) -> Any:
        """Returns the arrays besides the words that each update's loss reads (`Batch.extras`), None for none.

        Such as the distribution that training samples words from, or the parameters of a teacher.

        Args:
            train_T: The training words in reading order, int32.
            vocabulary_size: V.
        """
        return None

    @abc.abstractmethod
    def loss(self, params: Params, features: Features, batch: Batch, axis: str | None = None) -> jax.Array:
        """Returns the training loss, a float32 scalar in nats per word, which is reported as the mean NLL.

        Args:
            params: The parameters. Where `axis` is given, arrays with V rows hold this device's rows only.
            features: The body's features of the batch's examples.
            batch: This device's examples, and the extras.
            axis: The named mesh axis over which the V words are divided; None if one device holds all.
        """

    @abc.abstractmethod
    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """Returns log P(w | features) of all words exactly, B x V, float32, nats."""

    @abc.abstractmethod
    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """Returns -log P(target | features) of each example exactly, B, float32, nats."""


class Gathered(NamedTuple):
    """The parameters that a sparse loss reads.

    Attributes:
        shared: The parameters, but only the rows `shared_S` of the output matrices and of b.
        per_example: The rows of the output matrices that belong to each example, B x L x D, and of b, B x L.
        shared_S: The numbers of the shared rows, as `SparseOutputLayer.rows` returned them.
        draws: What else it returned of the rows of each example.
    """

    shared: Params
    per_example: Params
    shared_S: jax.Array
    draws: Any = None


class SparseOutputLayer(OutputLayer):
    """An output layer whose training loss reads only some rows of the output matrices: gradients are sparse.

    It can keep a state, which `rows` reads and `update_state` changes.
    """

    def loss(self, params: Params, features: Features, batch: Batch, axis: str | None = None) -> jax.Array:
        """Returns the exact mean NLL; training uses `sparse_loss` instead."""
        return self.nll(params, features, batch.targets_B).mean()

    @abc.abstractmethod
    def rows(self, batch: Batch, key: jax.Array, state: Any = None) -> tuple[Any, ...]:
        """Returns the output rows that `sparse_loss` needs: B x L of the examples, S that all share; int32.

        A layer may return a third value, the `draws` of `Gathered`: a tree of arrays with one row per example.

        Args:
            batch: The examples, and the extras.
            key: A random key.
            state: The layer's state.
        """

    @abc.abstractmethod
    def sparse_loss(self, gathered: Gathered, features: Features, batch: Batch) -> Losses:
        """Returns the loss and the mean NLL (exact or estimated).

        Args:
            gathered: The parameters in the rows that `rows` returned.
            features: The body's features of the batch's examples.
            batch: This device's examples, and the extras.
        """

    def init_state(self, vocabulary_size: int) -> Any:
        """Returns the layer's state before the first update, a pytree of arrays; None for a layer without one."""
        return None

    def update_state(self, state: Any, extras: Any, rows: Any, bias_grads_BxL: jax.Array) -> Any:
        """Returns the layer's state after an update; not called where it is None.

        Args:
            state: The state before the update.
            extras: The result of `make_extras`.
            rows: The `training.sparse_rows.Rows` of the update.
            bias_grads_BxL: The gradient of the loss with respect to the rows of b that belong to each example. Where
                the loss has an estimated normaliser, that of a sample is its normalised importance weight over B.
        """
        return state


class ExactSparseLayer(SparseOutputLayer):
    """A sparse output layer whose training loss is the exact mean NLL. The targets alone decide which rows it reads."""

    @abc.abstractmethod
    def rows_of(self, targets_B: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the output rows that the targets need: B x L of the examples, S that all share; int32."""

    @abc.abstractmethod
    def gathered_nll(self, shared: Params, per_example: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """Returns -log P(target) of each example, B, nats, from the rows of `rows_of`; see `Gathered`."""

    def rows(self, batch: Batch, key: jax.Array, state: Any = None) -> tuple[jax.Array, jax.Array]:
        """See `SparseOutputLayer.rows`."""
        return self.rows_of(batch.targets_B)

    def sparse_loss(self, gathered: Gathered, features: Features, batch: Batch) -> Losses:
        """See `SparseOutputLayer.sparse_loss`. The loss is the exact mean NLL."""
        nll = jnp.mean(self.gathered_nll(gathered.shared, gathered.per_example, features, batch.targets_B))
        return nll, nll

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`. Computes only the scores of the rows that the targets need."""
        rows_BxL, shared_S = self.rows_of(targets_B)
        shared, per_example = (
            {name: params[name][rows] for name in (*features, BIAS)} for rows in (shared_S, rows_BxL)
        )
        return self.gathered_nll(params | shared, per_example, features, targets_B)
