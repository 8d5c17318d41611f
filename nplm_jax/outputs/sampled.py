"""Sampled losses, in which all examples of a batch share the same sampled words.

The losses are importance sampling (section 5.2 of the paper) and noise-contrastive estimation (NCE).

Dims: V vocabulary, B batch, S samples.

References:
    Bengio and Senecal, Quick training of probabilistic neural nets by importance sampling, AISTATS 2003.
    Gutmann and Hyvarinen, Noise-contrastive estimation, AISTATS 2010.
    Mnih and Teh, A fast and simple algorithm for training neural probabilistic language models, ICML 2012.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config.component import Count, internal, key
from nplm_jax.data.batches import Batch
from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.outputs import softmax
from nplm_jax.outputs.output_layer import Features, Losses, Rows, SparseOutputLayer, View
from nplm_jax.outputs.soft_targets import SoftTargets, check_teacher

if TYPE_CHECKING:
    from nplm_jax.data.vocabulary import Vocabulary

_RESOLUTION = 2**30  # resolution of the cumulative inclusion probabilities


@flax.struct.dataclass
class ProposalDistribution:
    """A distribution over sets of S distinct words.

    Attributes:
        cumulative_V: The cumulative sums of the inclusion probabilities, int32, in units of 1 / (2**30 // S).
        log_inclusion_prob_V: For each word, the log of its inclusion probability, that is, of the probability that a
            draw of S words includes the word, float32, nats.
    """

    cumulative_V: jax.Array
    log_inclusion_prob_V: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampledSoftmax(softmax.Softmax, SparseOutputLayer):
    """The softmax, trained by importance sampling (section 5.2).

    The loss is log(exp(y_target) + sum over other samples of exp(y) / P(included)) - y_target, where P(included) is the
    inclusion probability of a sample. The argument of the log is an unbiased estimate of the softmax normalizer, and is
    exact if all words are sampled.

    Attributes:
        scorer: The function that computes y.
    """

    samples: Count = key(
        1000,
        'number of distinct words sampled for each update and shared by all examples of the batch; at most |V|',
    )
    proposal: Literal['unigram', 'log_uniform'] = key(
        'unigram',
        'sampling distribution: unigram (based on training counts) | log_uniform (based on frequency ranks)',
    )
    scorer: softmax.Scorer = internal(softmax.LINEAR)  # type: ignore[misc]

    def check(self) -> None:
        """See `Component.check`. Also rejects teachers for subclasses with their own loss, such as `nce`."""
        own = SampledSoftmax.loss, SampledSoftmax.sampled_loss, SampledSoftmax.rows
        has_own_loss = (type(self).loss, type(self).sampled_loss, type(self).rows) != own
        check_teacher(self.teacher, self.teacher_weight, has_own_loss)

    def over(self, vocabulary: 'Vocabulary') -> Self:
        """See `OutputLayer.over`. Caps `samples` at the size of the vocabulary."""
        return dataclasses.replace(self, samples=min(self.samples, len(vocabulary)))

    def make_extras(self, train_T: np.ndarray, vocabulary_size: int) -> ProposalDistribution:
        """See `OutputLayer.make_extras`."""
        unigram = self.proposal == 'unigram'
        log_q_V = unigram_log_probabilities(train_T, vocabulary_size) if unigram else log_uniform(vocabulary_size)
        return inclusion_distribution(log_q_V, self.samples)

    def rows(self, batch: Batch, key: jax.Array | None = None, state: Any = None) -> Rows:
        """Returns the indices of each target's row, B x 1, and of the rows of the S sampled words."""
        assert key is not None
        return Rows(batch.targets_B[:, None], draw(key, batch.extras, self.samples))

    def loss(
        self,
        view: View,
        features: Features,
        batch: Batch,
        axis: str | None = None,
        teachers: SoftTargets | None = None,
    ) -> Losses:
        """See `OutputLayer.loss`. The reported mean NLL is estimated by importance sampling.

        With teachers, the loss is the cross-entropy with a mixture of the targets and the teachers' distributions. The
        teachers' distributions are estimated over the target and the samples; see `SoftTargets.of_candidates`.
        """
        assert view.rows is not None
        targets_B, samples_S = batch.targets_B, view.rows.shared_S
        log_inclusion_prob_V = batch.extras.log_inclusion_prob_V
        log_inclusion_prob_S = log_inclusion_prob_V[samples_S]
        y_target_B = self.scorer.gathered_scores(view.shared, view.examples, features)[:, 0]
        y_SxB = self.scorer.scores(view.shared, features, self.precision) - log_inclusion_prob_S[:, None]
        nll = _estimated_nll(y_SxB, y_target_B, targets_B, samples_S)
        if teachers is None:
            return self.sampled_loss(y_SxB, y_target_B - log_inclusion_prob_V[targets_B], nll), nll
        q_target_B, q_SxB = teachers.of_candidates(targets_B, samples_S, log_inclusion_prob_S, self.precision)
        expected_B = q_target_B * y_target_B + jnp.sum(q_SxB * y_SxB, axis=0)
        return nll + self.teacher_weight * jnp.mean(y_target_B - expected_B), nll

    def sampled_loss(
        self, corrected_logits_SxB: jax.Array, corrected_target_logits_B: jax.Array, nll: jax.Array
    ) -> jax.Array:
        """Returns the training loss without teachers as a float32 scalar, in nats per word.

        In this class, the loss is the estimated mean NLL. Subclasses override this method to define another loss.

        Args:
            corrected_logits_SxB: y - log P(included) for each sample.
            corrected_target_logits_B: y - log P(included) for each target.
            nll: The estimated mean NLL.
        """
        return nll


class NoiseContrastive(SampledSoftmax):
    """The softmax, trained by noise-contrastive estimation.

    The loss is the cross-entropy of a binary classifier that distinguishes targets from samples. The logit of a word is
    y - log P(included). Because the classifier uses y in place of log P(w), training drives the softmax normalizer
    toward one (self-normalization).
    """

    def sampled_loss(
        self, corrected_logits_SxB: jax.Array, corrected_target_logits_B: jax.Array, nll: jax.Array
    ) -> jax.Array:
        """Returns the binary cross-entropy, summed over the decisions for each example and averaged over examples."""
        return jnp.mean(_softplus(-corrected_target_logits_B) + jnp.sum(_softplus(corrected_logits_SxB), axis=0))


def inclusion_distribution(log_q_V: np.ndarray, num_samples: int) -> ProposalDistribution:
    """Creates a sampling distribution whose inclusion probabilities are proportional to q and at most one.

    If a probability would exceed one, it is set to one, and the excess is redistributed over the other words. Every
    word with a positive q can be drawn, because its inclusion probability is at least one unit of `cumulative_V`.

    Args:
        log_q_V: log q of each word, up to a constant, nats.
        num_samples: The number of distinct words per draw, at most V.
    """
    q_V = np.exp(np.asarray(log_q_V, np.float64))
    inclusion_prob_V = np.zeros(len(q_V))
    certain_V = np.zeros(len(q_V), bool)
    while True:
        num_left = num_samples - certain_V.sum()
        inclusion_prob_V = np.where(certain_V, 1.0, q_V * num_left / max(q_V[~certain_V].sum(), 1e-300))
        if not (too_large_V := (inclusion_prob_V > 1) & ~certain_V).any():
            break
        certain_V |= too_large_V
    unit = _RESOLUTION // num_samples
    cumulative_V = _round_edges(inclusion_prob_V, num_samples, unit)
    possible_V = inclusion_prob_V > 0
    if not np.diff(cumulative_V, prepend=0)[possible_V].all():  # a word that is never drawn would never have a gradient
        least = 1.5 / unit  # 1.5 units, of which at least one is left after rounding
        small_V = possible_V & (inclusion_prob_V < least)
        missing = (least - inclusion_prob_V[small_V]).sum()
        scale = 1 - missing / inclusion_prob_V[~small_V].sum()
        cumulative_V = _round_edges(np.where(small_V, least, scale * inclusion_prob_V), num_samples, unit)
    with np.errstate(divide='ignore'):  # `draw` uses the rounded sums, so their differences are its exact probabilities
        log_inclusion_prob_V = np.log(np.diff(cumulative_V, prepend=0) / unit)
    return ProposalDistribution(jnp.asarray(cumulative_V, jnp.int32), jnp.asarray(log_inclusion_prob_V, jnp.float32))


def _round_edges(inclusion_prob_V: np.ndarray, num_samples: int, unit: int) -> np.ndarray:
    """Returns the int64 cumulative sums of inclusion probabilities, rounded to units of 1 / `unit`."""
    cumulative_V = np.round(np.cumsum(inclusion_prob_V) * unit).astype(np.int64)
    cumulative_V[-1] = num_samples * unit
    return cumulative_V


def log_uniform(vocabulary_size: int) -> np.ndarray:
    """Returns log q of each word under Zipf's law, in nats, for word ids sorted by decreasing frequency.

    q(id) = log((id + 2) / (id + 1)) / log(V + 1).
    """
    ids_V = np.arange(vocabulary_size)
    return np.log(np.log1p(1 / (ids_V + 1)) / np.log(vocabulary_size + 1))


def draw(key: jax.Array, proposal: ProposalDistribution, num_samples: int) -> jax.Array:
    """Draws distinct words by systematic sampling.

    A random point in [0, 1) and the S - 1 points at distances 1, 2, ... from it are mapped to words by the cumulative
    sums of the inclusion probabilities.

    Returns:
        The ids of S distinct words, int32.
    """
    unit = _RESOLUTION // num_samples
    points_S = jax.random.randint(key, (), 0, unit) + unit * jnp.arange(num_samples, dtype=jnp.int32)
    return jnp.searchsorted(proposal.cumulative_V, points_S, side='right').astype(jnp.int32)


def _estimated_nll(
    corrected_logits_SxB: jax.Array, y_target_B: jax.Array, targets_B: jax.Array, samples_S: jax.Array
) -> jax.Array:
    """Returns the mean of -log P(target), with the softmax normalizer estimated from the target and the samples."""
    is_target_SxB = samples_S[:, None] == targets_B[None, :]
    log_rest_B = jax.nn.logsumexp(jnp.where(is_target_SxB, -1e30, corrected_logits_SxB), axis=0)
    return jnp.mean(jnp.logaddexp(y_target_B, log_rest_B) - y_target_B)


@jax.custom_jvp
def _softplus(x: jax.Array) -> jax.Array:
    """Returns log(1 + exp x) without overflow. On a CPU, `jax.nn.softplus` is more precise but half as fast."""
    return jnp.maximum(x, 0) + jnp.log(1 + jnp.exp(-jnp.abs(x)))


_softplus.defjvps(lambda tangent, _, x: tangent * jax.nn.sigmoid(x))
