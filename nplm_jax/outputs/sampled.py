"""Cheaper losses from a few sampled words, the same for the whole batch: the paper's section 5.2, and NCE.

Bengio & Senecal (2003): importance sampling. Gutmann & Hyvarinen (2010), Mnih & Teh (2012): noise-contrastive
estimation. Dims: V words, B examples, S samples, D inputs of a part.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import OutputSettings
from nplm_jax.data import dataset
from nplm_jax.outputs import blockwise


@flax.struct.dataclass
class Noise:
    """Which words are drawn how often.

    edges_V: int32, cumulative shares of the words, in units of 1 / (2**30 // S) of a draw.
    log_inclusion_prob_V: log of the chance that a word is among the S distinct words of a draw, float32, nats.
    """

    edges_V: jax.Array
    log_inclusion_prob_V: jax.Array


def make_noise(log_q_V: np.ndarray, samples: int) -> Noise:
    """Draws of `samples` distinct words with chances in proportion to q, as far as no chance exceeds one.

    samples: at most |V|; with |V| of them every word is in every draw.
    """
    q_V = np.exp(np.asarray(log_q_V, np.float64))
    chance_V = np.zeros(len(q_V))
    certain_V = np.zeros(len(q_V), bool)
    while True:  # a word that would be drawn more than once is in every draw; the others share what is left
        left = samples - certain_V.sum()
        chance_V = np.where(certain_V, 1.0, q_V * left / max(q_V[~certain_V].sum(), 1e-300))
        if not (too_much_V := (chance_V > 1) & ~certain_V).any():
            break
        certain_V |= too_much_V
    unit = _unit(samples)
    edges_V = np.round(np.cumsum(chance_V) * unit).astype(np.int64)
    edges_V[-1] = samples * unit
    with np.errstate(divide='ignore'):  # chances as rounded, so that they are exact
        log_inclusion_prob_V = np.log(np.diff(edges_V, prepend=0) / unit)
    return Noise(jnp.asarray(edges_V, jnp.int32), jnp.asarray(log_inclusion_prob_V, jnp.float32))


def for_data(data: dataset.Dataset, output: OutputSettings) -> Noise | None:
    """The noise that `output` names, for a corpus; None for a kind that draws no words."""
    if output.kind not in ('sampled', 'nce'):
        return None
    unigram = output.proposal == 'unigram'
    log_q_V = dataset.unigram_log_probabilities(data) if unigram else log_uniform(len(data.vocabulary))
    return make_noise(log_q_V, output.samples)


def log_uniform(vocabulary_size: int) -> np.ndarray:
    """log q of q(id) = log((id + 2) / (id + 1)) / log(|V| + 1), Zipf's law for ids by falling frequency. V, nats."""
    ids_V = np.arange(vocabulary_size)
    return np.log(np.log1p(1 / (ids_V + 1)) / np.log(vocabulary_size + 1))


def draw(key: jax.Array, noise: Noise, samples: int) -> jax.Array:
    """Distinct words by systematic sampling: one random start, then every unit of the cumulative chances. int32, S."""
    unit = _unit(samples)
    points_S = jax.random.randint(key, (), 0, unit) + unit * jnp.arange(samples, dtype=jnp.int32)
    return jnp.searchsorted(noise.edges_V, points_S, side='right').astype(jnp.int32)


def losses(
    kind: str,
    parts: tuple[blockwise.Part, ...],
    b_S: jax.Array,
    y_target_B: jax.Array,
    targets_B: jax.Array,
    samples_S: jax.Array,
    log_inclusion_prob_V: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The loss of `kind`, and the estimate of the mean NLL, both float32 scalars, nats a word.

    sampled: -log of exp(y_target) / Z, where Z counts the target once and every other sample exp(y) / chance: without
    bias for the softmax's normaliser, and equal to it when all words are samples.
    nce: telling the target from the samples by y - log chance, where y itself is taken for log P: the normaliser is
    learned to be one. The estimate of the mean NLL is that of `sampled`.

    parts, b_S: the samples' weights, each with what it multiplies, and their biases; y_target_B: the targets' scores.
    """
    odds_SxB = blockwise.scores(b_S, *parts) - log_inclusion_prob_V[samples_S][:, None]
    is_target_SxB = samples_S[:, None] == targets_B[None, :]
    log_rest_B = jax.nn.logsumexp(jnp.where(is_target_SxB, -1e30, odds_SxB), axis=0)
    nll = jnp.mean(jnp.logaddexp(y_target_B, log_rest_B) - y_target_B)
    if kind == 'sampled':
        return nll, nll
    told_B = _softplus(log_inclusion_prob_V[targets_B] - y_target_B)
    return jnp.mean(told_B + jnp.sum(_softplus(odds_SxB), axis=0)), jax.lax.stop_gradient(nll)


@jax.custom_jvp
def _softplus(x: jax.Array) -> jax.Array:
    """log(1 + exp x), stable; jax.nn.softplus takes twice as long on a CPU, for digits that a loss does not show."""
    return jnp.maximum(x, 0) + jnp.log(1 + jnp.exp(-jnp.abs(x)))


_softplus.defjvps(lambda tangent, _, x: tangent * jax.nn.sigmoid(x))


def _unit(samples: int) -> int:
    return 2**30 // samples
