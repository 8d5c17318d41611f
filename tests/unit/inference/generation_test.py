"""Tests generation from models with known probabilities, and the command `generate`."""

import itertools

import helpers
import jax
import numpy as np
import pytest
from generation_models import BIGRAM, START, Table, Wrapped, drawn, shares
from helpers import refuses

from configs import sentences
from nplm_jax.cli import __main__ as cli
from nplm_jax.data.stream import Span
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.inference import beam_search, generation
from nplm_jax.inference.generation import Choice
from nplm_jax.models import mixture
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.ngram import counts, kneser_ney, unsmoothed
from nplm_jax.runs import experiment

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def network():
    model = helpers.make_model(300)
    params = jax.tree.map(lambda x: 3 * x, model.params)
    likely_rare_word = {'b_V': params['b_V'].at[0].set(3.0)}
    return NeuralLanguageModel(model.network, params | likely_rare_word)


def test_a_word_of_probability_zero_is_never_drawn():
    for zero in ([0, 1, 2, 3], [996, 997, 998, 999], range(4, 999)):
        p_V = np.ones(1000)
        p_V[list(zero)] = 0
        assert not set(drawn(p_V, 2000, Choice(rare=True))) & set(zero)


def test_samples_have_the_models_frequencies():
    np.testing.assert_allclose(shares(BIGRAM, Choice(rare=True)), [0.1, 0.2, 0.3, 0.4], atol=0.025)
    np.testing.assert_allclose(shares(BIGRAM, Choice()), np.array([0, 2, 3, 4]) / 9, atol=0.025)


def test_temperature_is_a_power_of_the_probabilities():
    for temperature in (0.5, 2.0):
        p = np.array([0.1, 0.2, 0.3, 0.4]) ** (1 / temperature)
        np.testing.assert_allclose(shares(BIGRAM, Choice(temperature, rare=True)), p / p.sum(), atol=0.025)
    assert shares(BIGRAM, Choice(1e-4, rare=True))[3] == 1


def test_of_equally_likely_words_top_k_takes_the_more_frequent_and_nucleus_all():
    p_V = np.array([0.1, 0.2, 0.2, 0.2, 0.2, 0.1])
    assert set(drawn(p_V, 100, Choice(top_k=2))) == {1, 2}
    assert set(drawn(p_V, 100, Choice(top_p=0.3, rare=True))) == {1, 2, 3, 4}
    assert set(drawn(p_V, 100, Choice(top_k=3, top_p=0.3))) == {1, 2, 3}


@pytest.mark.parametrize('top_k', [0, 2.0, '2'])
def test_a_number_of_most_likely_words_must_be_a_positive_integer(top_k):
    with refuses('top_k'):
        Choice(top_k=top_k)
    assert Choice(top_k=np.int64(2)) == Choice(top_k=2)


def test_the_same_seed_writes_the_same_whatever_the_number_of_samples(network):
    for model in (network, Wrapped(network)):
        few = generation.sample(model, START, 6, 10)
        np.testing.assert_array_equal(few, generation.sample(model, START, 6, 10))
        np.testing.assert_array_equal(few, generation.sample(model, START, 6, generation.BLOCK + 45)[:10])
        assert (few != generation.sample(model, START, 6, 10, seed=2)).any(1).all()
        assert len({tuple(row) for row in few}) == 10


def test_sequences_and_the_words_of_a_sequence_are_independent():
    ids_BxT = generation.sample(Table(np.full((4, 4), 0.25)), START, 2, 4000, Choice(rare=True))
    for first, second in ((ids_BxT[:, 0], ids_BxT[:, 1]), (ids_BxT[:-1, 0], ids_BxT[1:, 0])):
        expected = len(first) / 16
        statistic = np.sum((np.bincount(4 * first + second, minlength=16) - expected) ** 2) / expected
        assert statistic < 38  # 15 degrees of freedom: exceeded once in 1,000 times


def test_greedy_is_the_likeliest_word_each_time(network):
    (ids_T,) = generation.sample(network, START, 10, 1, generation.GREEDY)
    context = START
    for i in ids_T:
        assert i == 1 + network.next_word(context[None])[0, 1:].argmax()
        context = np.append(context, i)
    np.testing.assert_array_equal(beam_search.beam(network, START, 10, 1)[0][0], ids_T)


def test_a_wide_beam_is_exhaustive_search():
    def log_p(path):
        return sum(BIGRAM.log_p_VxV[a, b] for a, b in itertools.pairwise((1, *path)))

    paths = sorted(itertools.product([1, 2, 3], repeat=3), key=log_p, reverse=True)
    ids_KxT, log_p_K = beam_search.beam(BIGRAM, START, 3, 27)
    np.testing.assert_allclose(log_p_K, [log_p(p) for p in paths], rtol=1e-6)
    assert {tuple(p) for p in ids_KxT.tolist()} == set(paths)
    np.testing.assert_allclose(log_p_K, [log_p(p) for p in ids_KxT], rtol=1e-6)
    assert len(beam_search.beam(BIGRAM, START, 1, 99)[0]) == 3


def test_the_largest_values_are_those_of_a_stable_sort():
    generator = np.random.default_rng(0)
    values = np.concatenate([generator.normal(size=1000), generator.integers(0, 5, 200)])  # some are equal to others
    values[::7], values[5:9] = -np.inf, np.nan
    for number in (1, 3, 50, 190, 1200, 1300):
        expected = np.argsort(-np.nan_to_num(values, nan=-np.inf, neginf=-np.inf), kind='stable')[:number]
        np.testing.assert_array_equal(generation.largest(values, number), expected)


@pytest.mark.parametrize('words,kept', [(0, ''), (1, 'ab '), (2, 'ab cd '), (3, 'ab cd e'), (4, 'ab cd e')])
def test_a_text_is_cut_after_so_many_words(words, kept):
    (tokens,) = cutting.tokenize(tokenizer := ByteTokenizer(), ['ab cd e'])
    assert tokenizer.decode(generation.cut_words(tokens, tokenizer, words)) == kept


def test_where_only_the_rare_word_can_follow():
    stuck = Table([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    ids_BxT = generation.sample(stuck, START, 1, 400)
    np.testing.assert_allclose(np.bincount(ids_BxT[:, 0]) / 400, [0, 0.5, 0.5], atol=0.1)
    with refuses('beam'):
        beam_search.beam(stuck, START, 2, 2)
    assert (beam_search.beam(stuck, START, 2, 2, rare=True)[0] == 0).all()


def test_count_based_models_and_mixtures():
    tokens_T = np.minimum(np.random.default_rng(0).geometric(0.2, 500), 9).astype(np.int32)
    trigram = kneser_ney.fit_modified(counts.count(tokens_T, Span(0, 500), 3, 10))
    add_delta = unsmoothed.add_delta(counts.count(tokens_T, Span(0, 500), 2, 10))
    mixed = mixture.equal([trigram, add_delta])
    for model in (trigram, add_delta, mixed):
        ids_BxT = generation.sample(model, tokens_T[:5], 4, 30)
        assert ids_BxT.shape == (30, 4) and ids_BxT.min() > 0 and ids_BxT.max() < 10
        ids_KxT, log_p_K = beam_search.beam(model, tokens_T[:5], 4, 3)
        each = [model.next_word(np.append(tokens_T[:5], ids_KxT[0, :t])[None])[0, ids_KxT[0, t]] for t in range(4)]
        assert log_p_K[0] == pytest.approx(sum(each), rel=1e-5) and (np.diff(log_p_K) <= 0).all()


# --- the command -----------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('generate') / 'run'
    experiment.run(sentences.get_config(), folder)
    return folder


WRONG = [
    (['--top_k=0'], 'top_k=0:'),
    (['--top_p=0'], 'top_p=0.0:'),
    (['--top_p=1.5'], 'top_p=1.5:'),
    (['--temperature=-1'], 'temperature=-1.0:'),
    (['--temperature=1e-50'], 'temperature=1e-50:'),
    (['--temperature=nan'], "--temperature='nan':"),
    (['--beam=0'], 'beam=0:'),
    (['--words=0'], 'words=0:'),
    (['--samples=0'], 'samples=0:'),
    (['--seed=-1'], 'seed=-1:'),
    (['--beam=3', '--top_k=3'], '--top_k=3:'),
    (['--beam=5', '--samples=2'], '--samples=2:'),
    (['--beam=3', '--greedy'], 'argument --greedy: not allowed with argument --beam'),
    (['--prompt=zzz yyy'], "--prompt='zzz yyy':"),
    (['--top_k=many'], "--top_k='many':"),
    (['--topk=3'], 'unrecognized arguments: --topk=3'),
    (['/nowhere'], "RUN='/nowhere':"),
]


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, run, lines):
    lines()
    with pytest.raises(SystemExit) as stop:
        cli.main(['generate', str(run), *arguments])
    _, stderr = lines()
    assert stop.value.code == 2
    assert stderr[-1].startswith(message) and len(stderr) == 1, stderr
