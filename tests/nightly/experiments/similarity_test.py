"""Tests similarity and analogies with synthetic vectors whose answers are known."""

import json
import re
import types

import numpy as np
import pytest
from helpers import make_model, refuses

from experiments.use.similarity import measure, table, tasks
from nplm_jax.inference.embeddings import unit_vectors

WORDS = {word: i for i, word in enumerate(('man', 'king', 'woman', 'queen', 'cat'))}
VECTORS = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0, 0]], np.float32)


def test_the_correlation_of_made_up_vectors():
    angles = np.radians([0, 10, 50, 120])
    vectors, ids = (
        np.stack([np.cos(angles), np.sin(angles)], 1) * [[1], [5], [1], [2]],
        {c: i for i, c in enumerate('abcd')},
    )
    pairs = [tasks.RatedPair('a', other, rating) for other, rating in (('b', 9), ('c', 5), ('d', 1))]
    assert tasks.rate(vectors, ids, pairs)['spearman'] == pytest.approx(1)
    reverse = [pair._replace(rating=-pair.rating) for pair in pairs]
    assert tasks.rate(vectors, ids, reverse)['spearman'] == pytest.approx(-1)
    more = [*pairs, tasks.RatedPair('a', 'zebra', 3)]
    found = tasks.rate(vectors, ids, more)
    assert (found['counted'], found['of']) == (3, 4) and found['interval'] == pytest.approx([1, 1])
    none = tasks.rate(vectors, ids, pairs[:2])
    assert none == {'spearman': None, 'interval': None, 'counted': 2, 'of': 2}


def test_ranks_with_ties_by_hand():
    # Ranks 1.5 1.5 3 and 1 2 3: covariance 1.5, variances 1.5 and 2.
    first, second = np.array([[5.0, 5.0, 8.0], [1.0, 1.0, 1.0]]), np.array([[1.0, 2.0, 3.0]] * 2)
    np.testing.assert_allclose(tasks.spearman(first, second), [1.5 / np.sqrt(3), np.nan])


def test_the_interval_holds_the_value_and_narrows_with_more_pairs():
    rng = np.random.default_rng(0)

    def width(number):
        vectors = rng.standard_normal((2 * number, 4))
        ids = {str(i): i for i in range(2 * number)}
        cosines = [unit_vectors(vectors)[2 * i] @ unit_vectors(vectors)[2 * i + 1] for i in range(number)]
        noisy = np.array(cosines) + 0.5 * rng.standard_normal(number)
        found = tasks.rate(vectors, ids, [tasks.RatedPair(str(2 * i), str(2 * i + 1), noisy[i]) for i in range(number)])
        low, high = found['interval']
        assert low < found['spearman'] < high
        return high - low

    assert width(400) < 0.7 * width(50)


def test_analogies_leave_out_the_words_that_are_asked():
    right, wrong = ('man', 'king', 'woman', 'queen'), ('man', 'king', 'woman', 'cat')
    found = tasks.answer(VECTORS, WORDS, [right, wrong, ('man', 'king', 'girl', 'princess')])
    assert found['accuracy'] == 0.5 and (found['counted'], found['of']) == (2, 3)
    assert found['interval'] == [0.0, 1.0]
    assert tasks.answer(VECTORS, WORDS, [('a', 'b', 'c', 'd')])['accuracy'] is None
    zero = np.vstack([VECTORS[:3], np.zeros((2, 3))])
    assert tasks.answer(zero, WORDS, [right])['accuracy'] in (0.0, 1.0)  # a zero vector does not give nan


@pytest.mark.parametrize(
    'read,text,key',
    [
        (tasks.read_pairs, 'a\tb\t1\na b 2', 'task, line 2'),
        (tasks.read_pairs, 'a\tb\tmuch', 'task, line 1'),
        (tasks.read_pairs, '# a\tb\t1\n', 'pairs'),
        (tasks.read_analogies, ': section\na b c', 'task, line 2'),
        (tasks.read_analogies, ': section\n', 'questions'),
    ],
)
def test_a_task_that_is_damaged_is_refused(read, text, key, tmp_path):
    (tmp_path / 'task').write_text(text)
    with refuses(key):
        read(tmp_path / 'task')


def test_words_are_read_in_lower_case(tmp_path):
    (tmp_path / 'task').write_text('# words\nLove\tSex\t6.77\n')
    assert tasks.read_pairs(tmp_path / 'task') == [('love', 'sex', 6.77)]
    (tmp_path / 'task').write_text(': capitals\nAthens Greece Oslo Norway\n')
    assert tasks.read_analogies(tmp_path / 'task') == [('athens', 'greece', 'oslo', 'norway')]


def test_the_vectors_of_a_network_are_its_features_and_its_output_rows():
    paper = measure.vectors(make_model(17, {'model.h': 5, 'model.direct': True}))
    assert set(paper) == {'C_VxM', 'U_VxK', 'W_VxP'} and all(len(array) == 17 for array in paper.values())
    tied = {'model.family': 'gru', 'model.direct': False, 'model.tied': True, 'train.batch_size': 16}
    assert set(measure.vectors(make_model(17, tied))) == {'C_VxM'}


def test_paragraphs_have_no_marks():
    words = ('<rare>', '<text>', '<p>', 'a', 'b')
    vocabulary = types.SimpleNamespace(ids={w: i for i, w in enumerate(words)}, decode=lambda i: [words[j] for j in i])
    data = types.SimpleNamespace(train_words=np.array([1, 2, 3, 4, 2, 4, 0, 2, 1, 2, 3]), vocabulary=vocabulary)
    assert measure.paragraphs(data) == [['a', 'b'], ['b', '<rare>'], ['a']]


def test_the_table_has_the_mean_of_the_seeds(tmp_path):
    assert table.cell(
        [{'simlex999': {'spearman': s, 'interval': [s - 0.1, s + 0.3]}} for s in (0.1, 0.3)], 'simlex999'
    ) == ('0.20 [0.10, 0.50]')
    assert table.cell([{'analogies': {'accuracy': 0.125, 'interval': [0.1, 0.2]}}], 'analogies') == '12.5 [10.0, 20.0]'
    assert table.cell([{'analogies': {'accuracy': None, 'interval': None}}], 'analogies') == '-'
    with refuses(tmp_path):
        table.rows(tmp_path)


def test_the_table_has_a_row_for_each_matrix_and_the_coverage(tmp_path):
    def found(dimension, counted):
        rated = {'spearman': 0.25, 'interval': [0.1, 0.4], 'counted': counted, 'of': 9}
        answered = {'accuracy': 0.5, 'interval': [0.4, 0.6], 'counted': 4, 'of': 8}
        return {'dimension': dimension, 'simlex999': rated, 'wordsim353': rated, 'analogies': answered}

    for seed in (1, 2):
        vectors = {'C_VxM': found(30, 8), 'U_VxK': found(20, 8)}
        (tmp_path / f'mlp-{seed}.json').write_text(json.dumps({'model': 'mlp', 'seed': seed, 'vectors': vectors}))
    cbow = {'model': 'cbow', 'seed': 1, 'vectors': {'': found(30, 7)}}
    (tmp_path / 'cbow-30.json').write_text(json.dumps(cbow))
    assert [row[:4] for row in table.rows(tmp_path)] == [
        ['mlp', 'U', '20', '2'],
        ['cbow', '', '30', '1'],
        ['mlp', 'C', '30', '2'],
    ]
    header = table.make(tmp_path).splitlines()[0]
    numbers = [re.findall(r'\d+', cell.partition('(')[2]) for cell in header.split('|')]
    assert numbers.count(['7', '8', '9']) == 2 and ['4', '8'] in numbers
