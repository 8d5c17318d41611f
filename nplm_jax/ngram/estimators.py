"""Count-based models as parts of a run: how each `model.family` is estimated, and the keys that it reads."""

import abc
import dataclasses
import pathlib
from typing import Annotated, ClassVar, Literal

from nplm_jax.config import parts
from nplm_jax.config.component import Count, Part, Share, between, key
from nplm_jax.config.registry import NGRAM_MODELS
from nplm_jax.data.dataset import Dataset
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import class_ngram, interpolated, kneser_ney, lines, pruning
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramCounts, count
from nplm_jax.ngram.quantization import quantize
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.ngram.unsmoothed import add_delta, unsmoothed_backoff
from nplm_jax.utils.errors import require

CLASSES_FILE = 'classes.txt'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimator(Part, abc.ABC):
    """Estimates a count-based model.

    Attributes:
        n: The order.
        reads_lines: Whether it can read a text line by line, as `corpus.context=line` asks.
        is_backoff: Whether it makes a back-off model, which an ARPA file can hold.
    """

    n: int
    reads_lines: ClassVar[bool] = False
    is_backoff: ClassVar[bool] = False

    @abc.abstractmethod
    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """Estimates the model from the training words.

        Args:
            data: The corpus as the run reads it; see `read`.
            folder: The folder of the run, for files about the model; large arrays are unnamed files in it.

        Raises:
            BadInput: The corpus cannot serve.
        """

    def check(self) -> None:
        """See `Part.check`. Refuses an order above 100."""
        require(self.n <= 100, 'model.n', self.n, 'must be 100 or less for a count-based model')


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackoffEstimator(Estimator):
    """Estimates a back-off model from the counts of all orders up to n."""

    bits: Literal[0, 8, 16] = key(
        0,
        'of back-off models: 8 or 16 bits for each log p above order 1, and 32 for each back-off weight, such that the '
        'probabilities sum to one; 0: 64 bits for each',
        'ngram',
    )
    is_backoff = True

    @abc.abstractmethod
    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """Estimates the model from counts."""

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`."""
        marks, scratch = lines.marks_of(data.vocabulary) if data.by_lines else None, SharedScratch(folder)
        model = self.from_counts(count(data.tokens_T, data.train, self.n, len(data.vocabulary), scratch, marks))
        return quantize(model, self.bits, SharedScratch(folder)) if self.bits else model


class MaximumLikelihood(BackoffEstimator):
    """Relative frequencies after the last n-1 words."""

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return add_delta(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddDelta(BackoffEstimator):
    """Relative frequencies with a number added to every count."""

    delta: Annotated[float, between(0, 1_000_000)] = key(
        0.1, 'of add_delta: the number that is added to every count', 'ngram'
    )

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return add_delta(counts, self.delta)


class Backoff(BackoffEstimator):
    """Relative frequencies after the longest context that was seen."""

    reads_lines = True

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return unsmoothed_backoff(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KneserNey(BackoffEstimator):
    """Back-off Kneser-Ney (section 4.1)."""

    prune_entropy: Share = key(
        0.0,
        'of kneser_ney and modified_kneser_ney, as ngram -prune of SRILM: n-grams are dropped whose removal raises the '
        'perplexity by a smaller share than this (Stolcke, 1998); 1e-7 leaves a quarter of a 5-gram of Brown; 0: off',
        'ngram',
    )
    reads_lines = True

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return kneser_ney.fit_backoff(counts, prune_entropy=self.prune_entropy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModifiedKneserNey(KneserNey):
    """Modified interpolated Kneser-Ney, as lmplz estimates it."""

    prune: str = key(
        '0',
        'of modified_kneser_ney, as lmplz --prune: for each order from 1 on, n-grams of at most this count are dropped '
        "(the first is 0); the last number holds for all higher orders: '0 0 1' drops n-grams of order 3 or more that "
        'occur once',
        'ngram',
    )

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The count threshold of each order. Raises BadInput where `ngram.prune` is no list of them."""
        return pruning.parse_thresholds('ngram.prune', self.prune, self.n)

    def check(self) -> None:
        """See `Part.check`. Also refuses a value of `ngram.prune` that is no list of thresholds."""
        super().check()
        _ = self.thresholds

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return kneser_ney.fit_modified(counts, self.thresholds, self.prune_entropy)


class Interpolated(Estimator):
    """The paper's interpolated trigram (section 4.1)."""

    def check(self) -> None:
        """See `Part.check`. Also refuses all orders but 3."""
        super().check()
        require(self.n == 3, 'model.n', self.n, 'must be 3: the interpolated model is a trigram')

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`."""
        return interpolated.fit(data.tokens_T, data.train, data.valid, len(data.vocabulary))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classes(Estimator):
    """The class-based n-gram (section 4.1)."""

    classes: Count = key(500, 'of classes: number of word classes; the paper: 150 to 2000', 'ngram')

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`. Writes the classes into `folder` for people to read."""
        size = len(data.vocabulary)
        allowed = f'must be {size:,}, the size of the vocabulary, or less'
        require(self.classes <= size, 'ngram.classes', self.classes, allowed)
        classes_V = class_ngram.exchange(data.tokens_T, data.train, self.classes, size)
        class_ngram.save(classes_V, data.vocabulary, folder / CLASSES_FILE)
        return class_ngram.ClassNgram.fit(data.tokens_T, data.train, self.n, classes_V)


def estimator_class(family: str) -> type[Estimator]:
    """Returns the class of a name in `registry.NGRAM_MODELS`."""
    return parts.part_class('model.family', family)


def makes_backoff(family: str) -> bool:
    """Returns whether a `model.family`, any there is, makes a back-off model."""
    return family in NGRAM_MODELS and estimator_class(family).is_backoff
