"""The interface of output layers, which compute P(w) and the training loss from the features of a network's body.

An output layer multiplies each of its weight matrices by one array of features. The body determines the matrices and
their widths: the paper's network has U (V x K, for the hidden units a) and W (V x P, for the word features x). Features
are keyed by the name of their matrix: `{'U_VxK': a_BxK, 'W_VxP': x_BxP}`.

Dims: B batch, V vocabulary, D width of a feature array, L output rows specific to one example, S output rows shared by
all examples.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax import nn
from nplm_jax.config.component import Component
from nplm_jax.data.batches import Batch

if TYPE_CHECKING:
    from nplm_jax.data.vocabulary import Vocabulary

Params = dict[str, Any]  # float32 arrays, named by the paper's letters
Features = dict[str, jax.Array]  # name of an output matrix -> the features it is multiplied by, B x D, float32
Losses = tuple[jax.Array, jax.Array]  # the loss, and the mean NLL or its estimate; float32 scalars, nats per word
BIAS = 'b_V'
EMBEDDING = 'C_VxM'  # the word features of every body; also an output matrix if tied


class Tables(NamedTuple):
    """The names of tables and matrices among the parameters, grouped by what their rows represent.

    A table is an array whose rows represent words or other items. A single example uses only a few rows.

    Attributes:
        words: Tables with one row per output word. A body or an output layer does not list the output matrices and b.
            On a mesh, the rows of these tables are sharded.
        others: Tables whose rows represent other items, such as positions or word classes. Every device holds them in
            full.
        units: Matrices, not tables, that are stored as (out, in), with one row per output unit. All other matrices are
            stored as (in, out). Optimizers such as Muon depend on this distinction.
    """

    words: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @property
    def of_words(self) -> tuple[str, ...]:
        """All tables of a network with one row per word: those in `words`, and C."""
        return tuple(dict.fromkeys((*self.words, EMBEDDING)))

    @property
    def all(self) -> tuple[str, ...]:
        """All tables of a network, which optimizers distinguish from matrices."""
        return (*self.of_words, *self.others)


class Rows(NamedTuple):
    """The indices of the rows that a loss reads from the output matrices, b and other word tables.

    Attributes:
        examples_BxL: Indices of the L rows that only a single example reads, int32.
        shared_S: Indices of the S rows that all examples read, int32.
        sample_info: Additional data about the samples of each example, a pytree of arrays with B rows. None if the
            layer needs no such data.
    """

    examples_BxL: jax.Array
    shared_S: jax.Array
    sample_info: Any = None


class View(NamedTuple):
    """The parameters that a training loss reads: either all parameters, or only the selected rows of the tables.

    Attributes:
        shared: The parameters. If `rows` is given, the tables contain only the rows `rows.shared_S`.
        examples: The rows `rows.examples_BxL` of the tables, B x L x D (B x L for b). Empty if `rows` is None.
        rows: The indices of the selected rows, or None if the view contains all rows.
        contexts_SxLxM: The rows of C for the input tokens. If None, they must be gathered from `shared`.
    """

    shared: Params
    examples: Params = {}  # never mutated
    rows: Rows | None = None
    contexts_SxLxM: jax.Array | None = None


def view_rows(params: Params, tables: Iterable[str], rows: Rows) -> View:
    """Returns a view that contains only the selected rows of the given tables, and all other parameters in full."""
    shared, examples = ({name: params[name][ids] for name in tables} for ids in (rows.shared_S, rows.examples_BxL))
    return View(params | shared, examples, rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputLayer(Component, abc.ABC):
    """The distribution P(w | features) over V words, and its training loss.

    Attributes:
        takes_new_words: Whether words can be added to the layer by appending one row per word to its tables.
        tables: The tables of the layer, without the output matrices and b. For tables with one row per output word,
            `loss` receives the rows of the same words as of the output matrices.
    """

    takes_new_words = False
    tables: ClassVar[Tables] = Tables()

    def over(self, vocabulary: 'Vocabulary') -> Self:
        """Adapts the settings of the layer to a vocabulary. For example, `samples` is limited to the number of words.

        Raises:
            BadInput: The layer is incompatible with the vocabulary.
        """
        return self

    def num_rows(self, vocabulary_size: int) -> int:
        """Returns the number of rows of the output matrices and of b. It is V if each row represents a word."""
        return vocabulary_size

    def init(
        self, key: jax.Array, keys: Mapping[str, jax.Array], widths: Mapping[str, int], bias_V: jax.Array
    ) -> Params:
        """Initializes the output matrices uniformly in ±1/sqrt(width), and b to `bias_V`.

        Args:
            key: A random key for additional parameters of subclasses.
            keys: A random key for each output matrix, by name.
            widths: The width of each output matrix, by name.
            bias_V: The initial value of b, float32.
        """
        shapes = {name: (len(bias_V), width) for name, width in widths.items()}
        matrices = {name: nn.uniform(keys[name], shape, shape[1] ** -0.5) for name, shape in shapes.items()}
        return {**matrices, BIAS: bias_V}

    def make_extras(self, train_T: np.ndarray, vocabulary_size: int) -> Any:
        """Returns the constant arrays that the loss reads in every update (`Batch.extras`), or None.

        For example, a sampled loss reads its sampling distribution.

        Args:
            train_T: The training words in reading order, int32.
            vocabulary_size: The size of the vocabulary, V.
        """
        return None

    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows | None:
        """Selects the rows that the training loss of a batch reads. Returns None if the loss reads all rows.

        Args:
            batch: The examples, and the arrays from `make_extras`.
            key: The random key of the update.
            state: The state of the layer; see `SparseOutputLayer`.
        """
        return None

    @abc.abstractmethod
    def loss(self, view: View, features: Features, batch: Batch, axis: str | None = None) -> Losses:
        """Computes the training loss of a batch, and the mean NLL that training reports.

        Args:
            view: The parameters, or the rows that `rows` selects. If `axis` is given, arrays with one row per word
                contain only the rows on this device.
            features: The features that the body computed for the examples.
            batch: The examples on this device, and the arrays from `make_extras`.
            axis: The named mesh axis over which the V words are sharded, or None if each device holds all words.

        Returns:
            A tuple (loss, nll) of float32 scalars, nats per word. The NLL may be an estimate.
        """

    @abc.abstractmethod
    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """Returns the exact float32 log P(w | features) of all words in nats, B x V."""

    @abc.abstractmethod
    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """Returns the exact float32 -log P(target | features) of each example, in nats."""


class SparseOutputLayer(OutputLayer):
    """An output layer whose training loss reads only some rows of the output matrices, so its gradients are sparse.

    The layer may have a state, which is passed to `rows` and replaced by `update_state` after each update.
    """

    @abc.abstractmethod
    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows:
        """See `OutputLayer.rows`."""

    def init_state(self, vocabulary_size: int) -> Any:
        """Returns the initial state of the layer, a pytree of arrays, or None if the layer is stateless."""
        return None

    def update_state(self, state: Any, batch: Batch, rows: Rows, bias_grads_BxL: jax.Array) -> Any:
        """Returns the state after an update. This method is not called for stateless layers.

        Args:
            state: The state of the layer before the update.
            batch: The examples of the update, and the arrays from `make_extras`.
            rows: The rows that the loss read.
            bias_grads_BxL: The gradient of the loss with respect to the rows `rows.examples_BxL` of b. If the loss
                estimates the softmax normalizer from samples, the gradient for a sample is its normalized importance
                weight divided by B.
        """
        return state


class ExactSparseLayer(SparseOutputLayer):
    """A sparse output layer whose training loss is the exact mean NLL.

    The rows that the loss reads depend only on the targets.
    """

    @abc.abstractmethod
    def rows_of(self, targets_B: jax.Array) -> Rows:
        """Returns the indices of the rows from which the probabilities of the targets are computed."""

    @abc.abstractmethod
    def nll_of(self, view: View, features: Features, targets_B: jax.Array) -> jax.Array:
        """Returns -log P(target) of each example in nats, computed from the rows that `rows_of` selected."""

    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows:
        """See `OutputLayer.rows`."""
        return self.rows_of(batch.targets_B)

    def loss(self, view: View, features: Features, batch: Batch, axis: str | None = None) -> Losses:
        """See `OutputLayer.loss`. The loss is the exact mean NLL."""
        nll = jnp.mean(self.nll_of(view, features, batch.targets_B))
        return nll, nll

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`. Computes only the scores that the targets require."""
        return self.nll_of(view_rows(params, (*features, BIAS), self.rows_of(targets_B)), features, targets_B)
