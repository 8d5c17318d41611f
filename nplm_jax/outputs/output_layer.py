"""Interface of output layers: from a network's features to P(w) and the training loss.

An output layer multiplies each of its weight matrices with one array of features. The body says which matrices there
are and how wide they are: the paper's network has U (V x K, multiplied with the hidden units a) and W (V x P,
multiplied with the word features x). Features come by the name of their matrix: `{'U_VxK': a_BxK, 'W_VxP': x_BxP}`.

Dims: B batch, V vocabulary, D width of one array of features, L output rows that belong to one example, S output rows
that all examples share.
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

Params = dict[str, Any]  # arrays by the paper's letters, float32
Features = dict[str, jax.Array]  # name of an output matrix -> the features that it multiplies, B x D, float32
Losses = tuple[jax.Array, jax.Array]  # the loss, and the mean NLL or its estimate; float32 scalars, nats per word
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


class Rows(NamedTuple):
    """The rows of the output matrices, of b and of other tables of words that a loss reads.

    Attributes:
        examples_BxL: The numbers of the rows that belong to each example, int32.
        shared_S: The numbers of the rows that all examples share, int32.
        draws: What a layer knows besides of the rows of each example, arrays of B rows; None for nothing.
    """

    examples_BxL: jax.Array
    shared_S: jax.Array
    draws: Any = None


class View(NamedTuple):
    """What a training loss multiplies: all parameters, or only the rows of the tables that it reads.

    Attributes:
        shared: The parameters; with `rows` only the rows `rows.shared_S` of the tables.
        examples: The rows `rows.examples_BxL` of the tables, B x L x D and B x L; empty without `rows`.
        rows: Which rows; None for all.
        contexts_SxLxM: The rows of C of the tokens that the body reads; None where they are gathered from `shared`.
    """

    shared: Params
    examples: Params = {}  # never changed
    rows: Rows | None = None
    contexts_SxLxM: jax.Array | None = None


def view_rows(params: Params, tables: Iterable[str], rows: Rows) -> View:
    """Returns the view of some rows of the tables, and of all other parameters."""
    shared, examples = ({name: params[name][ids] for name in tables} for ids in (rows.shared_S, rows.examples_BxL))
    return View(params | shared, examples, rows)


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

    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows | None:
        """Returns the rows that the training loss of a batch reads; None for all rows.

        Args:
            batch: The examples, and the extras.
            key: A random key of the update.
            state: The layer's state, see `SparseOutputLayer`.
        """
        return None

    @abc.abstractmethod
    def loss(self, view: View, features: Features, batch: Batch, axis: str | None = None) -> Losses:
        """Returns the training loss, and the mean NLL that is reported: the same, exact or estimated.

        Args:
            view: The parameters, or the rows of them that `rows` names. Where `axis` is given, arrays with V rows hold
                this device's rows only.
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


class SparseOutputLayer(OutputLayer):
    """An output layer whose training loss reads only some rows of the output matrices: gradients are sparse.

    It can keep a state, which `rows` reads and `update_state` changes.
    """

    @abc.abstractmethod
    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows:
        """See `OutputLayer.rows`."""

    def init_state(self, vocabulary_size: int) -> Any:
        """Returns the layer's state before the first update, a pytree of arrays; None for a layer without one."""
        return None

    def update_state(self, state: Any, batch: Batch, rows: Rows, bias_grads_BxL: jax.Array) -> Any:
        """Returns the layer's state after an update; not called where it is None.

        Args:
            state: The state before the update.
            batch: The examples of the update, and the extras.
            rows: The rows that its loss read.
            bias_grads_BxL: The gradient of the loss with respect to the rows of b that belong to each example. Where
                the loss has an estimated normaliser, that of a sample is its normalised importance weight over B.
        """
        return state


class ExactSparseLayer(SparseOutputLayer):
    """A sparse output layer whose training loss is the exact mean NLL. The targets alone decide which rows it reads."""

    @abc.abstractmethod
    def rows_of(self, targets_B: jax.Array) -> Rows:
        """Returns the rows that the targets need."""

    @abc.abstractmethod
    def nll_of(self, view: View, features: Features, targets_B: jax.Array) -> jax.Array:
        """Returns -log P(target) of each example, B, nats, from the rows of `rows_of`."""

    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows:
        """See `OutputLayer.rows`."""
        return self.rows_of(batch.targets_B)

    def loss(self, view: View, features: Features, batch: Batch, axis: str | None = None) -> Losses:
        """See `OutputLayer.loss`. The loss is the exact mean NLL."""
        nll = jnp.mean(self.nll_of(view, features, batch.targets_B))
        return nll, nll

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`. Computes only the scores of the rows that the targets need."""
        return self.nll_of(view_rows(params, (*features, BIAS), self.rows_of(targets_B)), features, targets_B)
