"""Importance sampling with an adaptive proposal for each context (the paper's section 5.2).

Each example draws L words w_i from Q(. | its last context word), a bigram. The gradient of the log of the normalizer,
sum over all words of P(w) dy_w, becomes sum_i r_i dy_i / sum_i r_i with r_i = exp(y_i) / Q(w_i). This estimate is
biased, but exact in the limit of many samples. Dims: V vocabulary, B batch, L words of an example, G entries of the
bigram.

References:
    Bengio and Senecal, Quick training of probabilistic neural nets by importance sampling, AISTATS 2003.
    Bengio and Senecal, Adaptive importance sampling to accelerate training of a neural probabilistic language model,
    IEEE Transactions on Neural Networks 19(4), 2008.
    Kong, A note on importance sampling using standardized weights, 1992 (effective sample size).
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from experiments.paper.section5.plugins import bigram_proposal
from experiments.paper.section5.plugins.bigram_proposal import BigramProposal
from nplm_jax.config.component import Count, NonNegative, key
from nplm_jax.data.batches import Batch
from nplm_jax.outputs import softmax
from nplm_jax.outputs.output_layer import Features, Losses, Rows, SparseOutputLayer, View

REFRESH_EVERY = 50  # number of updates between refreshes of the cumulative sums for sampling
MEAN_DECAY = 0.98  # decay per update of the running mean of the effective sample size
MASKED = -1e30  # log of a term excluded from the normalizer


@flax.struct.dataclass
class ProposalState:
    """The part of the proposal that changes during training.

    Attributes:
        ess_per_sample: Running mean of the effective sample size as a fraction of L, float32; initially 0.
        step: The number of updates, int32.
        added_G: Counts added to the bigram, float32, or None for a fixed proposal.
        moved_G: The resulting change of its cumulative sums at the last refresh, uint32 modulo 2**32; or None.
    """

    ess_per_sample: jax.Array
    step: jax.Array
    added_G: jax.Array | None = None
    moved_G: jax.Array | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportanceSampling(softmax.Softmax, SparseOutputLayer):
    """A softmax trained by importance sampling from an adaptive bigram.

    Attributes:
        samples: The number of samples per example.
    """

    samples: Count = key(100, 'number of samples per example')
    exact_target: bool = key(True, 'let samples represent only words other than the target; the paper uses all words')
    adaptation: NonNegative = key(
        1.0, "weight of the network's words relative to training words in Q; 0 means fixed counts"
    )

    def make_extras(self, train_T: np.ndarray, vocabulary_size: int) -> BigramProposal:
        """See `OutputLayer.make_extras`."""
        return bigram_proposal.estimate(train_T, vocabulary_size)

    def init_state(self, vocabulary_size: int) -> ProposalState:
        """See `SparseOutputLayer.init_state`."""
        state = ProposalState(jnp.zeros(()), jnp.zeros((), jnp.int32))
        num_entries = bigram_proposal.num_entries(vocabulary_size)
        if not self.adaptation:
            return state
        return dataclasses.replace(
            state, added_G=jnp.zeros(num_entries), moved_G=jnp.zeros(num_entries + 1, jnp.uint32)
        )

    def rows(self, batch: Batch, key: jax.Array | None = None, state: ProposalState | None = None) -> Rows:
        """Returns the rows of the target and the samples of each example, no shared rows, and the sampling metadata."""
        assert key is not None
        previous_B, proposal = previous_words(batch.ids_SxL, batch.targets_B), adapted(batch.extras, state)
        samples_BxL = bigram_proposal.draw(key, proposal, previous_B, self.samples)
        words_BxL = jnp.concatenate([batch.targets_B[:, None], samples_BxL], axis=1)
        return Rows(words_BxL, jnp.zeros(0, jnp.int32), bigram_proposal.look_up(proposal, previous_B, words_BxL))

    def loss(self, view: View, features: Features, batch: Batch, axis: str | None = None) -> Losses:
        """See `OutputLayer.loss`. Loss and mean NLL are the estimate with the biased gradient."""
        assert view.rows is not None
        y_BxL, draws = softmax.gathered_scores(view.examples, features), view.rows.sample_info
        terms_BxL = y_BxL - draws.log_q_BxL - np.log(self.samples)
        if self.exact_target:
            is_target_BxL = draws.word_BxL == batch.targets_B[:, None]
            terms_BxL = jnp.where(is_target_BxL, MASKED, terms_BxL).at[:, 0].set(y_BxL[:, 0])
        else:
            terms_BxL = terms_BxL.at[:, 0].set(MASKED)
        nll = jnp.mean(jax.nn.logsumexp(terms_BxL, axis=1) - y_BxL[:, 0])
        return nll, nll

    def update_state(self, state: ProposalState, batch: Batch, rows: Rows, bias_grads_BxL: jax.Array) -> ProposalState:
        """See `SparseOutputLayer.update_state`. Adds the estimated P(w) of the words in each example to the counts."""
        weights_BxL = normalised_weights(bias_grads_BxL)
        fraction = jnp.mean(effective_sample_size(weights_BxL[:, 1:])) / self.samples
        mean, step = MEAN_DECAY * state.ess_per_sample + (1 - MEAN_DECAY) * fraction, state.step + 1
        if state.added_G is None:
            return ProposalState(mean, step)
        proposal, previous_B = batch.extras, previous_words(batch.ids_SxL, weights_BxL)
        weighted = previous_B, rows.sample_info, self.adaptation * weights_BxL
        added_G = bigram_proposal.expected_counts(proposal, state.added_G, *weighted)
        refreshed = lambda: bigram_proposal.add_counts(proposal, added_G).edge_G - proposal.edge_G  # noqa: E731
        moved_G = jax.lax.cond(step % REFRESH_EVERY == 0, refreshed, lambda: state.moved_G)
        return ProposalState(mean, step, added_G, moved_G)


def previous_words(ids_SxL: jax.Array, examples_B: jax.Array) -> jax.Array:
    """Returns the word before the target of each example, stream by stream."""
    num_targets = len(examples_B) // len(ids_SxL)
    return ids_SxL[:, -num_targets:].reshape(-1)


def adapted(proposal: BigramProposal, state: ProposalState | None) -> BigramProposal:
    """Returns the proposal for the next update."""
    if state is None or state.moved_G is None:
        return proposal
    return dataclasses.replace(proposal, edge_G=proposal.edge_G + state.moved_G)


def normalised_weights(bias_grads_BxL: jax.Array) -> jax.Array:
    """Returns the float32 importance weights of the words of each example, target first, normalized to sum to 1.

    Args:
        bias_grads_BxL: The gradient of the loss with respect to the words' biases: (P(w) - 1) / B for the target, and
            P(w) / B for the other words.
    """
    return (len(bias_grads_BxL) * bias_grads_BxL).at[:, 0].add(1)


def effective_sample_size(weights_BxL: jax.Array) -> jax.Array:
    """Returns (sum w)**2 / sum w**2 of each example's weights, which is from 1 to L, or 0 if all weights are 0."""
    return jnp.sum(weights_BxL, axis=1) ** 2 / jnp.maximum(jnp.sum(weights_BxL**2, axis=1), 1e-30)
