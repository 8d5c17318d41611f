"""Tests the map of word features: positions calculated by hand, and marked words."""

import json

import numpy as np
import pytest

from nplm_jax.apps.explorer import feature_map
from nplm_jax.data.stream import RARE
from nplm_jax.data.vocabulary import Vocabulary

pytest.importorskip('sklearn', reason='needs scikit-learn: pip install scikit-learn')

WORDS = (RARE, *(f'w{i}' for i in range(1, 500)))
VOCABULARY = Vocabulary(WORDS, tuple(range(len(WORDS), 0, -1)))


def test_one_or_two_features_are_their_own_map():
    points, axes = feature_map.project(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert points.tolist() == [[1, 2], [3, 4]] and axes == ('feature 1', 'feature 2')
    points, axes = feature_map.project(np.array([[1.0], [3.0]]))
    assert points.tolist() == [[1, 0], [3, 0]] and axes == ('feature 1', '')


def clusters(num=12, size=20, seed=0):
    """Returns points around `num` orthogonal directions, more than exist in a plane."""
    centres = np.repeat(np.eye(num), size, axis=0)
    return centres + np.random.default_rng(seed).normal(scale=0.1, size=centres.shape), np.repeat(np.arange(num), size)


@pytest.mark.nightly
def test_words_with_similar_features_lie_together():
    features, cluster = clusters()
    points, _ = feature_map.project(features)
    distances = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (cluster[np.argsort(distances, axis=1)[:, :10]] == cluster[:, None]).mean() > 0.99
    again, _ = feature_map.project(features * 8)  # lengths do not affect the cosine
    np.testing.assert_array_equal(again, points)


@pytest.mark.nightly
def test_a_rare_word_lies_amid_the_similar_frequent_ones_and_does_not_move_them():
    features, cluster = clusters()
    order = np.random.default_rng(1).permutation(len(features))
    features, cluster = features[order], cluster[order]
    alone, _ = feature_map.project(features[:180])
    points, _ = feature_map.project(features, 180)
    np.testing.assert_array_equal(points[:180], alone)
    nearest = np.argmin(np.linalg.norm(points[180:, None] - points[None, :180], axis=2), axis=1)
    np.testing.assert_array_equal(cluster[nearest], cluster[180:])


@pytest.mark.nightly
@pytest.mark.parametrize('num_words', [2, 3, 4, 30])
def test_few_words_and_equal_features_have_a_map_as_well(num_words):
    assert np.isfinite(feature_map.project(np.random.default_rng(0).normal(size=(num_words, 5)))[0]).all()
    assert np.isfinite(feature_map.project(np.ones((num_words, 3)))[0]).all()
    assert np.isfinite(feature_map.project(np.zeros((num_words, 3)))[0]).all()


@pytest.mark.parametrize('selected', ['', 'coffee'])
def test_of_a_tiny_vocabulary_every_word_is_named_and_no_special_token(selected):
    words = RARE, '<text>', '<p>', 'i', 'coffee', 'milk'
    points = feature_map.FeatureMap(np.zeros((6, 2)), ('x', 'y'))
    series = feature_map.chart(Vocabulary(words, (1,) * 6), points, selected, [])['series']
    assert {point['name'] for each in series for point in each['data']} == set(words[3:])
    assert all(each['label']['show'] and 'hideOverlap' not in each['labelLayout'] for each in series)


@pytest.mark.parametrize('selected,near', [('', []), ('zzz', []), ('w2', ['w1', 'w450']), ('w460', ['w1'])])
def test_a_chart_marks_the_selected_word_and_its_neighbours_however_rare(selected, near):
    points = feature_map.FeatureMap(np.random.default_rng(2).normal(size=(500, 2)), ('x', 'y'))
    chart = json.loads(json.dumps(feature_map.chart(VOCABULARY, points, selected, near)))
    shown = {series['name']: {point['name']: point['value'] for point in series['data']} for series in chart['series']}
    known = [selected] if selected in VOCABULARY.ids else []
    assert list(shown['selected word']) == known and list(shown['neighbour']) == near
    frequent = set(WORDS[: feature_map.NUM_POINTS]) - {RARE, *known, *near}
    assert set(shown['frequent word']) == frequent
    for places in shown.values():
        for word, place in places.items():
            np.testing.assert_allclose(place, points.points_Vx2[VOCABULARY.ids[word]], atol=1e-4)
    assert (chart['series'][0]['itemStyle']['opacity'] < 0.5) == bool(known or near)
