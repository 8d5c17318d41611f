"""Tests generation from models with known probabilities, and the command `generate`."""

import math

import helpers
import jax
import numpy as np
import pytest
from generation_models import BIGRAM, START, Wrapped, drawn, shares
from helpers import numbers

from configs import sentences
from nplm_jax.cli import __main__ as cli
from nplm_jax.inference import beam_search, generation
from nplm_jax.inference.generation import Choice
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs import experiment

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def network():
    model = helpers.make_model(300)
    params = jax.tree.map(lambda x: 3 * x, model.params)
    likely_rare_word = {'b_V': params['b_V'].at[0].set(3.0)}
    return NeuralLanguageModel(model.network, params | likely_rare_word)


# --- one word --------------------------------------------------------------------------------------------


@pytest.mark.parametrize('seed', helpers.others_nightly(range(3), (0,)))
def test_draws_pass_a_chi_square_test(seed):
    p_V = np.random.default_rng(seed).dirichlet(np.full(200, 2.0))
    for choice, p in (
        (Choice(rare=True), p_V),
        (Choice(0.7, rare=True), p_V ** (1 / 0.7)),
        (Choice(), np.where(np.arange(200) == 0, 0, p_V)),
        (Choice(top_k=50, rare=True), np.where(p_V >= np.sort(p_V)[-50], p_V, 0)),
    ):
        observed, expected = np.bincount(drawn(p_V, 20_000, choice, seed), minlength=200), 20_000 * p / p.sum()
        assert observed[expected == 0].sum() == 0
        statistic = np.sum((observed - expected)[expected > 0] ** 2 / expected[expected > 0])
        degrees = np.count_nonzero(expected) - 1
        assert abs(statistic - degrees) < 4 * math.sqrt(2 * degrees)


def test_top_k_and_nucleus_keep_the_likeliest_words():
    np.testing.assert_allclose(shares(BIGRAM, Choice(top_k=2)), [0, 0, 3 / 7, 4 / 7], atol=0.025)
    np.testing.assert_allclose(shares(BIGRAM, Choice(top_p=0.6, rare=True)), [0, 0, 3 / 7, 4 / 7], atol=0.025)
    np.testing.assert_allclose(shares(BIGRAM, Choice(top_p=0.75, rare=True)), [0, 2 / 9, 3 / 9, 4 / 9], atol=0.025)
    np.testing.assert_allclose(shares(BIGRAM, Choice(top_k=2, top_p=0.5)), [0, 0, 0, 1])
    for all_words in (Choice(top_k=4, rare=True), Choice(top_p=1.0, rare=True), Choice(top_k=99, rare=True)):
        np.testing.assert_array_equal(shares(BIGRAM, all_words), shares(BIGRAM, Choice(rare=True)))


def test_top_k_and_nucleus_against_sorting():
    p_V = np.random.default_rng(1).dirichlet(np.full(500, 0.5)).astype(np.float32)
    order = np.argsort(-p_V)
    for k in (1, 7, 100):
        assert set(drawn(p_V, 3000, Choice(top_k=k, rare=True))) <= set(order[:k])
    for share in (0.1, 0.5, 0.9):
        size = np.searchsorted(np.cumsum(p_V[order], dtype=np.float64), share) + 1
        likely = [i for i in order[:size] if p_V[i] > 0.004]
        assert set(likely) <= set(drawn(p_V, 3000, Choice(top_p=share, rare=True))) <= set(order[:size])


@pytest.mark.parametrize('family', ['nplm', 'gru'])
def test_a_networks_state_gives_what_its_next_word_gives(network, family):
    gru = {'model.family': 'gru', 'model.direct': False, 'train.batch_size': 16}
    model = network if family == 'nplm' else helpers.make_model(300, gru)
    for prompt in ([], [5], [7, 8, 9, 10, 11]):
        for choice in (Choice(), Choice(0.7, top_k=20), Choice(top_p=0.8), Choice(rare=True)):
            by_state = generation.sample(model, np.array(prompt, int), 12, 20, choice)
            by_context = generation.sample(Wrapped(model), np.array(prompt, int), 12, 20, choice)
            assert by_state.shape == (20, 12) and by_state.dtype == np.int32
            assert (by_state == by_context).all(1).mean() >= 0.9  # rounding may change a sample


def test_the_rare_word_is_written_only_when_asked(network):
    for model in (network, BIGRAM):
        assert (generation.sample(model, START, 20, 50) > 0).all()
        assert (generation.sample(model, START, 20, 50, Choice(rare=True)) == 0).any()
        assert (beam_search.beam(model, START, 5, 3)[0] > 0).all()
    assert (beam_search.beam(BIGRAM, np.array([0]), 1, 1, rare=True)[0] == 0).all()


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('generate') / 'run'
    experiment.run(sentences.get_config(), folder)
    return folder


def test_the_command(run, lines):
    lines()
    flags = str(run), '--prompt=zzz i love', '--words=1'
    cli.main(['generate', *flags, '--greedy'])
    texts, (note,) = lines()
    assert texts == ['zzz i love coffee'] and numbers(note) == ['1', '3', '33.3'] and note.endswith(': zzz')
    cli.main(['generate', *flags, '--samples=3', '--temperature=0.1', '--top_k=2'])
    assert lines()[0] == ['zzz i love coffee'] * 3
    cli.main(['generate', str(run), '--words=2', '--beam=3', '--prompt=<p> i'])
    assert sorted(lines()[0]) == ['i hate milk', 'i like dog', 'i love coffee']  # `<p>` is skipped
    cli.main(['generate', str(run)])
    texts = lines()[0]
    assert len(texts) == 10 and all(len(line.split()) == 50 for line in texts)
