"""Tests new words: weights by hand and in float64, rows as weighted means, and biases that fit the counts."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_model, others_nightly, refuses

import nplm_jax
from nplm_jax.config.settings import Settings
from nplm_jax.data.stream import RARE, RARE_ID, Span
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import generation
from nplm_jax.inference import induction as new_words
from nplm_jax.inference.induction import Occurrence, Weighting
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.unsmoothed import add_delta

V = 23
COUNTS = (211, *range(131, 131 - V + 1, -1))
VOCABULARY = Vocabulary((RARE, *(f'w{i}' for i in range(1, V))), COUNTS)
LINES = [
    line.split() for line in ('w5 w3 wug w7 w1', 'wug w2', 'w2 w9 dax wug w4 w4', 'w1 w2 w3 w4 w5 w6 w7 w8 w9 dax')
]
SIZE = {'model.m': 5, 'model.h': 7, 'model.direct': False, 'train.batch_size': 16, 'model.bptt_length': 4}
NETWORKS = {
    'nplm': {'model.direct': True, 'output.kind': 'sampled', 'output.samples': 9},
    'window_lstm, nce': {'model.family': 'window_lstm', 'output.kind': 'nce', 'output.samples': 9},
    'residual, tied': {'model.family': 'residual', 'model.tied': True},
    'lstm, tied, two layers': {'model.family': 'lstm', 'model.tied': True, 'model.layers': 2, 'model.h': 5},
}


@functools.cache
def make(name, scale=4.0):
    """Returns a network whose biases come from the counts; other parameters are large, so that contexts matter."""
    unigram = np.asarray(COUNTS, np.float32) / sum(COUNTS)
    model = make_model(V, {**SIZE, **NETWORKS[name]}, bias_V=np.log(unigram))
    tables = {table: scale * model.params[table] for table in ('C_VxM', *model.network.body.widths)}
    return with_params(model, tables)


def with_params(model, changed):
    return type(model)(model.network, model.params | changed)


@functools.cache
def grow(name, *words):
    grown = nplm_jax.induce(LoadedModel(Settings(), VOCABULARY, make(name)), words, LINES)
    return grown.vocabulary, grown.model


QUICK = 'nplm', 'lstm, tied, two layers'
every_network = pytest.mark.parametrize('name', others_nightly(NETWORKS, QUICK))


def by_hand():
    """Returns a model with P(<rare>, a, b) = (0.1, 0.3, 0.6) after <rare> and a, and (1, 6, 6) / 13 after b."""
    model = make_model(3, {'model.n': 2, 'model.m': 1, 'model.h': 0, 'model.direct': True})
    params = {'C_VxM': jnp.array([[0.0], [0], [1]]), 'W_VxP': jnp.log(jnp.array([[1.0], [2], [1]]))}
    return with_params(model, params | {'b_V': jnp.log(jnp.array([0.1, 0.3, 0.6]))})


@pytest.mark.parametrize(
    'line,weighting,expected',
    [
        ('b wug', Weighting('mean'), [1 / 13, 6 / 13, 6 / 13]),
        ('wug a wug b', Weighting('mean'), [0.1, 0.3, 0.6]),
        ('b wug b wug', Weighting('mean'), [1 / 13, 6 / 13, 6 / 13]),
        ('a wug b wug', Weighting('mean'), [(0.1 + 1 / 13) / 2, (0.3 + 6 / 13) / 2, (0.6 + 6 / 13) / 2]),
        ('b wug', Weighting(following=0), [1 / 10.5, 6 / 30.5, 6 / 60.5]),
        ('b wug a', Weighting(following=0), [1 / 10.5, 6 / 30.5, 6 / 60.5]),
        ('b wug a', Weighting(following=1), [1 / 10.5 * 0.3, 6 / 30.5 * 0.3, 6 / 60.5 * 6 / 13]),
        ('b wug a b', Weighting(following=2), [1 / 10.5 * 0.3, 6 / 30.5 * 0.3, 6 / 60.5 * 6 / 13]),
        ('b wug a wug', Weighting(following=0), [1 * 0.1 / 10.5**2, 6 * 0.3 / 30.5**2, 6 * 0.6 / 60.5**2]),
        ('b wug', Weighting(following=0, candidates=1), [0, 1, 0]),
        ('b wug', Weighting(following=0, candidates=2, min_count=20), [0, 6 / 30.5, 6 / 60.5]),
        ('b wug', Weighting(following=0, candidates=2, min_count=50), [0, 6 / 30.5, 6 / 60.5]),
    ],
)
def test_weights_and_rows_by_hand(line, weighting, expected):
    known = LoadedModel(Settings(), Vocabulary((RARE, 'a', 'b'), (10, 30, 60)), by_hand())
    grown = nplm_jax.induce(known, 'wug', [line.split()], weighting=weighting)
    vocabulary, model = grown.vocabulary, grown.model
    q = np.array(expected) / sum(expected)
    assert vocabulary.words == (RARE, 'a', 'b', 'wug')
    assert vocabulary.counts == (10 - line.count('wug'), 30, 60, line.count('wug'))
    np.testing.assert_allclose(model.params['C_VxM'][:, 0], [0, 0, 1, q[2]], atol=1e-6)
    np.testing.assert_allclose(model.params['W_VxP'][:, 0], [0, np.log(2), 0, q[1] * np.log(2)], atol=1e-6)
    np.testing.assert_allclose(model.params['b_V'][1:3], np.log([0.3, 0.6]), atol=1e-6)


def log_softmax(y):
    return y - y.max() - np.log(np.exp(y - y.max()).sum())


def test_weights_are_those_of_a_transcription_in_float64():
    model, weighting = make('nplm'), Weighting(following=2, candidates=11, min_count=115)
    p = {name: np.asarray(values, np.float64) for name, values in model.params.items()}

    def log_p(context):
        x = np.concatenate([p['C_VxM'][i] for i in reversed(context)])
        return log_softmax(p['b_V'] + p['W_VxP'] @ x + p['U_VxK'] @ np.tanh(p['d_K'] + p['H_KxP'] @ x))

    seen = [[([5, 3], [7, 1]), ([], [2]), ([2, 9, 0], [4, 4])], [([2, 9], [0, 4, 4]), ([*range(1, 10)], [])]]
    counts = np.array(COUNTS) + 0.5
    expected = np.zeros((2, V))
    for w, occurrences in enumerate(seen):
        scores = np.zeros(V)
        for before, _ in occurrences:
            scores += log_p([0, 0, 0, *before][-3:]) - np.log(counts / counts.sum())
        scores[np.array(COUNTS) < 115] = -np.inf
        best = np.argsort(-scores)[:11]
        for v in best:
            for before, after in occurrences:
                read = [0, 0, 0, *before, v]
                for word in after[:2]:
                    scores[v] += log_p(read[-3:])[word]
                    read.append(word)
        expected[w, best] = np.exp(scores[best] - scores[best].max())
    expected /= expected.sum(axis=1, keepdims=True)
    assert ((expected > 0.01).sum(axis=1) > 1).all()  # not a single word
    found = [new_words.find_occurrences(VOCABULARY, word, LINES) for word in ('wug', 'dax')]
    assert [[(o.before.tolist(), o.after.tolist()) for o in occurrences] for occurrences in found] == [
        [(before, after) for before, after in occurrences] for occurrences in seen
    ]
    np.testing.assert_allclose(new_words.word_weights(model, VOCABULARY, found, weighting), expected, atol=1e-5)


def test_a_line_is_read_after_the_same_mark_as_a_scored_line():
    words = Vocabulary((RARE, '<p>', 'a'), (1, 9, 5), WordTokenizer(boundary_tokens=True))
    lines = [line.split() for line in ('wug a', '<p> a wug')]
    first, second = new_words.find_occurrences(words, 'wug', lines)
    assert (first.before.tolist(), first.after.tolist()) == ([1], [2])
    assert (second.before.tolist(), second.after.tolist()) == ([1, 2], [])


@every_network
def test_weights_are_those_of_reading_each_line_with_each_word_in_the_place_of_the_new_one(name):
    model, lines = make(name), [line for line in LINES if 'dax' not in line]
    counts = np.asarray(COUNTS) + 0.5
    scores_V = np.zeros(V)
    for v in range(V):
        for line in lines:
            t = line.index('wug')
            ids = VOCABULARY.encode(line)
            ids[t] = v
            scores_V[v] += model.score_lines([ids[: t + 2]])[0][t:].astype(np.float64).sum() - np.log(counts[v])
    expected_V = np.exp(log_softmax(scores_V))
    seen = [new_words.find_occurrences(VOCABULARY, 'wug', lines)]
    found_V = new_words.word_weights(model, VOCABULARY, seen, Weighting(following=1))[0]
    np.testing.assert_allclose(found_V, expected_V, atol=2e-5)


@every_network
def test_a_grown_network_is_one_distribution_of_weighted_means_for_every_family(name):
    model, (vocabulary, grown) = make(name), grow(name, 'wug', 'dax')
    assert len(vocabulary) == grown.network.vocabulary_size == V + 2 and vocabulary.encode(['dax']) == [V + 1]
    seen = [new_words.find_occurrences(VOCABULARY, word, LINES) for word in ('wug', 'dax')]
    weights_WxV = new_words.word_weights(model, VOCABULARY, seen)
    np.testing.assert_allclose(weights_WxV.sum(axis=1), 1, atol=1e-12)
    for table in {'C_VxM', *model.network.body.widths}:
        np.testing.assert_allclose(grown.params[table][V:], weights_WxV @ model.params[table], atol=1e-5)
    for name, values in model.params.items():
        if name not in {'C_VxM', 'b_V', *model.network.body.widths}:
            assert grown.params[name] is values
        elif name != 'b_V':
            assert (grown.params[name][:V] == values).all()
    assert (grown.params['b_V'][1:V] == model.params['b_V'][1:]).all()
    contexts = np.array([[5, V, 3], [1, 2, V + 1], [0, 7, 9]])
    np.testing.assert_allclose(np.exp(grown.next_word(contexts).astype(np.float64)).sum(axis=1), 1, atol=1e-6)
    line = vocabulary.encode(LINES[2])
    assert (line[2:4] == [V + 1, V]).all() and np.isfinite(grown.score(line, Span(0, len(line)))).all()
    words = generation.sample(grown, line, 5, 7)
    assert words.shape == (7, 5) and (words < V + 2).all()


@every_network
def test_known_words_keep_their_odds_where_no_new_word_was_read(name):
    model, (_, grown) = make(name), grow(name, 'wug', 'dax')
    contexts = np.array([[5, 2, 3], [1, 2, 9], [0, 7, 9]])
    before, after = (m.next_word(contexts)[:, 1:V].astype(np.float64) for m in (model, grown))
    np.testing.assert_allclose(after - after[:, :1], before - before[:, :1], atol=1e-5)


@pytest.mark.parametrize('name', ['nplm', 'lstm, tied, two layers'])
def test_a_new_word_is_as_frequent_as_its_count_says_and_rare_loses_what_it_gains(name):
    model, counts = make(name), {'wug': 40, 'dax': 13}
    new = nplm_jax.induce(LoadedModel(Settings(), VOCABULARY, model), ['wug', 'dax'], LINES, counts)
    vocabulary, grown = new.vocabulary, new.model
    assert vocabulary.counts == (211 - 53, *COUNTS[1:], 40, 13)
    ids = generation.sample(model, np.zeros(0, np.int32), 64, 64, generation.Choice(rare=True), seed=1)
    contexts = [ids[:, : t + 1] for t in range(16, 64)]
    before, after = (np.mean([np.exp(m.next_word(c)).mean(0) for c in contexts], axis=0) for m in (model, grown))
    np.testing.assert_allclose(after[V:], np.array([40, 13]) / sum(COUNTS), rtol=2e-3)
    np.testing.assert_allclose(after[RARE_ID], before[RARE_ID] * (158 + 0.5) / (211 + 0.5), rtol=2e-3)


def test_more_occurrences_than_rare_words_were_counted_leave_half_an_occurrence_to_rare():
    new = nplm_jax.induce(LoadedModel(Settings(), VOCABULARY, make('nplm')), 'wug', LINES, {'wug': 300})
    assert new.vocabulary.counts[RARE_ID] == 0 and new.vocabulary.counts[V] == 300
    assert np.isfinite(new.model.params['b_V']).all()


@every_network
def test_a_word_gets_the_same_rows_alone_and_with_others(name):
    model, together, alone = make(name), grow(name, 'wug', 'dax')[1], grow(name, 'wug')[1]
    for table in {'C_VxM', *model.network.body.widths}:
        np.testing.assert_allclose(together.params[table][V], alone.params[table][V], rtol=1e-4, atol=1e-5)


def test_a_word_that_stands_where_a_known_word_stands_gets_its_features():
    """By Bayes' rule, the weight of w3 grows with the number of occurrences where w3 is likely."""
    model = make('nplm', scale=8.0)
    ids = generation.sample(model, np.zeros(0, np.int32), 3000, 1, generation.Choice(rare=True), seed=2)[0]
    positions = np.flatnonzero(ids[3:] == 3)[:40] + 3
    assert len(positions) == 40
    occurrences = [Occurrence(ids[p - 3 : p], ids[p + 1 :]) for p in positions]
    weights = [new_words.word_weights(model, VOCABULARY, [occurrences[:k]])[0] for k in (1, 40)]
    assert weights[1][3] > 0.9 and weights[0][3] < weights[1][3]


TEXT = np.arange(60, dtype=np.int32) % V


@pytest.mark.parametrize(
    'arguments,message',
    [
        ({'words': 'w3'}, 'word'),
        ({'words': RARE}, 'word'),
        ({'words': 'wag'}, 'word'),
        ({'words': ['wug', 'wug']}, 'word'),
        ({'words': []}, 'words'),
        ({'lines': ['a wug']}, 'words'),
        ({'counts': {'wug': 0}}, "counts['wug']"),
        ({'vocabulary': Vocabulary((RARE, 'w1'), (1, 1))}, 'vocabulary'),
        (
            {'model': add_delta(count(TEXT, Span(0, 60), 2, V), 0.1)},
            'model',
        ),
        (
            {'model': make_model(V, {'output.kind': 'two_level', 'output.num_shortlist': 5, 'output.classes': 4})},
            'output layer',
        ),
    ],
)
def test_what_cannot_be_done_ends_in_one_line(arguments, message):
    usual = {'model': make('nplm'), 'vocabulary': VOCABULARY, 'words': 'wug', 'lines': LINES}
    given = {**usual, **arguments}
    run = LoadedModel(Settings(), given.pop('vocabulary'), given.pop('model'))
    with refuses(message) as error:
        nplm_jax.induce(run, **given)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize(
    'values,message',
    [
        ({'rule': 'median'}, 'rule'),
        ({'following': -1}, 'following'),
        ({'candidates': 0}, 'candidates'),
    ],
)
def test_a_weighting_that_does_not_exist_ends_in_one_line(values, message):
    with refuses(message):
        dataclasses.replace(Weighting(), **values)
