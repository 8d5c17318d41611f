"""Defines models with known distributions for the tests of generation, and samples from them."""

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.inference import generation
from nplm_jax.models.language_model import LanguageModel


class Table(LanguageModel):
    """A bigram model whose probabilities P(w | last word) are given by a table."""

    n = 2

    def __init__(self, p_VxV):
        with np.errstate(divide='ignore'):
            self.log_p_VxV = np.log(np.array(p_VxV, np.float32))

    def score_span(self, tokens_T, span):
        raise NotImplementedError

    def next_word(self, contexts_BxN):
        return self.log_p_VxV[contexts_BxN[:, -1]]


class Wrapped(LanguageModel):
    """A model that predicts from all previous words, without a state."""

    n = None

    def __init__(self, model):
        self.model = model

    def score_span(self, tokens_T, span):
        return self.model.score(tokens_T, span)

    def next_word(self, contexts_BxN):
        return self.model.next_word(contexts_BxN)


BIGRAM = Table([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]])


START = np.array([1])


def drawn(p_V, num_draws, choice, seed=0):
    log_p_BxV = jnp.tile(jnp.log(jnp.asarray(p_V, jnp.float32)), (num_draws, 1))
    return np.asarray(generation.draw(jax.random.split(jax.random.key(seed), num_draws), log_p_BxV, choice))


def shares(model, choice, size=4):
    ids_B = generation.sample(model, START, 1, 4000, choice)[:, 0]
    return np.bincount(ids_B, minlength=size) / 4000
