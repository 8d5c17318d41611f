"""Estimators of count-based models, one component for each `model.family`."""

import abc
import dataclasses
import pathlib
from typing import Annotated, ClassVar, Literal

from nplm_jax.config.component import Component, Count, Share, at_least, between, key
from nplm_jax.data.dataset import Dataset
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import class_ngram, interpolated, kneser_ney, lines, pruning
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramCounts, count
from nplm_jax.ngram.quantization import quantize
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.ngram.unsmoothed import add_delta, unsmoothed_backoff
from nplm_jax.utils.errors import BadInput, require

CLASSES_FILE = 'classes.txt'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimator(Component, abc.ABC):
    """The base class of components that estimate a count-based model from the training words.

    Attributes:
        n: The order of the model: words are predicted from the n-1 preceding words.
        reads_lines: Whether the model can read a text line by line (`corpus.context=line`).
        is_backoff: Whether the model is a back-off model, which can be written as an ARPA file.
    """

    n: Annotated[int, at_least(2)] = key(5, 'n-gram order; the model predicts each word from the n-1 previous words')
    reads_lines: ClassVar[bool] = False
    is_backoff: ClassVar[bool] = False

    @abc.abstractmethod
    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """Estimates the model from the training words.

        Args:
            data: The corpus. If the run reads its text line by line, the corpus has been converted by `lines.by_lines`.
            folder: The run's folder, for files about the model and for temporary files with large arrays.

        Raises:
            BadInput: The corpus is unsuitable for this model.
        """

    def check(self) -> None:
        """See `Component.check`. Rejects orders above 100."""
        require(self.n <= 100, 'model.n', self.n, 'must be at most 100 for a count-based model')


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackoffEstimator(Estimator):
    """An estimator of back-off models from the counts of all orders up to n."""

    bits: Literal[0, 8, 16] = key(
        0,
        'number of bits per log-probability above order 1; back-off weights then have 32 bits, and the probabilities '
        'still sum to one; 0 means 64 bits for log-probabilities and back-off weights',
    )
    is_backoff = True

    @abc.abstractmethod
    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """Estimates the model from n-gram counts of orders 1 to n."""

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`."""
        marks, scratch = lines.marks_of(data), SharedScratch(folder)
        model = self.from_counts(count(data.tokens_T, data.train, self.n, len(data.vocabulary), scratch, marks))
        return quantize(model, self.bits, SharedScratch(folder)) if self.bits else model


class MaximumLikelihood(BackoffEstimator):
    """The maximum-likelihood estimator: relative frequencies of words after the last n-1 words, without smoothing."""

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return add_delta(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddDelta(BackoffEstimator):
    """Additive smoothing: relative frequencies of words after a constant has been added to every count."""

    delta: Annotated[float, between(0, 1_000_000)] = key(0.1, 'number added to every count')

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return add_delta(counts, self.delta)


class Backoff(BackoffEstimator):
    """Back-off without discounting: relative frequencies of words after the longest context that occurs in training."""

    reads_lines = True

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return unsmoothed_backoff(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KneserNey(BackoffEstimator):
    """The paper's back-off form of Kneser-Ney smoothing (section 4.1)."""

    prune_entropy: Share = key(
        0.0,
        'remove n-grams whose removal increases the perplexity by less than this fraction, as in '
        "SRILM's ngram -prune (Stolcke, 1998); 1e-7 keeps a quarter of a Brown 5-gram model; 0 means no pruning",
    )
    reads_lines = True

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return kneser_ney.fit_backoff(counts, prune_entropy=self.prune_entropy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModifiedKneserNey(KneserNey):
    """Modified interpolated Kneser-Ney smoothing, as in KenLM's lmplz."""

    prune: str = key(
        '0',
        "count thresholds of orders 1, 2, ..., as in KenLM's lmplz --prune; n-grams whose count does not exceed "
        'the threshold of their order are removed; the first threshold must be 0, and the last also applies to all '
        "higher orders; '0 0 1' removes n-grams of order 3 and above that occur once",
    )

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The count threshold of each order. Raises BadInput if `model.prune` is not a list of thresholds."""
        return pruning.parse_thresholds(self.prune, self.n)

    def check(self) -> None:
        """See `Component.check`. Also rejects a `model.prune` that is not a list of thresholds."""
        super().check()
        _ = self.thresholds

    def from_counts(self, counts: NgramCounts) -> BackoffModel:
        """See `BackoffEstimator.from_counts`."""
        return kneser_ney.fit_modified(counts, self.thresholds, self.prune_entropy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpolated(Estimator):
    """The paper's interpolated trigram (section 4.1)."""

    n: Annotated[int, at_least(2)] = key(3, 'n-gram order, which must be 3')

    def check(self) -> None:
        """See `Component.check`. Also rejects all orders except 3."""
        super().check()
        require(self.n == 3, 'model.n', self.n, 'must be 3, because the interpolated model is a trigram')

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`."""
        return interpolated.fit(data.tokens_T, data.train, data.valid, len(data.vocabulary))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classes(Estimator):
    """The class-based n-gram (section 4.1)."""

    n: Annotated[int, at_least(2)] = key(3, 'n-gram order; the model predicts each class from the n-1 previous classes')
    classes: Count = key(500, 'number of word classes; the paper uses 150 to 2000')

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`. Also writes the classes into `folder` as text."""
        size = len(data.vocabulary)
        allowed = f'must be at most {size:,}, the size of the vocabulary'
        require(self.classes <= size, 'model.classes', self.classes, allowed)
        classes_V = class_ngram.exchange(data.tokens_T, data.train, self.classes, size)
        class_ngram.save(classes_V, data.vocabulary, folder / CLASSES_FILE)
        return class_ngram.ClassNgram.fit(data.tokens_T, data.train, self.n, classes_V)


class Imported(Estimator):
    """A model imported from an ARPA file by `nplm import`."""

    def check(self) -> None:
        """Raises BadInput, because an imported model cannot be estimated."""
        problem = 'cannot be estimated from text; use `nplm import` to import an ARPA file'
        raise BadInput('model.family', problem, value=self.name)

    def fit(self, data: Dataset, folder: pathlib.Path) -> LanguageModel:
        """See `Estimator.fit`."""
        raise NotImplementedError
