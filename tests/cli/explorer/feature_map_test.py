"""The map of the word features: its places by hand, and which words it marks."""

import json

import numpy as np
import pytest

from nplm_jax.cli.explorer import feature_map
from nplm_jax.data.vocabulary import RARE, Vocabulary

WORDS = (RARE, *(f'w{i}' for i in range(1, 500)))
VOCABULARY = Vocabulary(WORDS, tuple(range(len(WORDS), 0, -1)))


def test_one_or_two_features_are_their_own_map():
    points, axes = feature_map.project(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert points.tolist() == [[1, 2], [3, 4]] and axes == ('feature 1', 'feature 2')
    points, axes = feature_map.project(np.array([[1.0], [3.0]]))
    assert points.tolist() == [[1, 0], [3, 0]] and axes == ('feature 1', '')


def test_the_map_is_the_plane_in_which_the_frequent_words_differ_most():
    """Three directions with variances 16, 9 and 1; a rotation hides them."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    hidden = np.array([[4, 0, 0], [-4, 0, 0], [0, 3, 0], [0, -3, 0], [0, 0, 1], [0, 0, -1]], float)
    points, axes = feature_map.project(hidden @ rotation + 7)
    np.testing.assert_allclose(np.abs(points), np.abs(hidden[:, :2]), atol=1e-12)
    assert axes == ('principal component 1: 62% of the variance', 'principal component 2: 35% of the variance')


def test_rare_words_do_not_turn_the_map():
    frequent = np.random.default_rng(1).normal(size=(5, 4))
    alone, axes = feature_map.project(frequent, 5)
    points, same_axes = feature_map.project(np.concatenate([frequent, 1e3 * np.ones((1, 4))]), 5)
    np.testing.assert_allclose(points[:5], alone, atol=1e-9)
    assert axes == same_axes


def test_equal_features_have_a_map_as_well():
    points, axes = feature_map.project(np.ones((4, 3)))
    assert not points.any() and '0%' in axes[0]


@pytest.mark.parametrize('selected,near', [('', []), ('zzz', []), ('w2', ['w1', 'w450']), ('w460', ['w1'])])
def test_a_chart_marks_the_selected_word_and_its_neighbours_however_rare(selected, near):
    points = feature_map.project(np.random.default_rng(2).normal(size=(500, 5)))
    chart = json.loads(json.dumps(feature_map.chart(VOCABULARY, points, selected, near)))
    shown = {series['name']: {point['name']: point['value'] for point in series['data']} for series in chart['series']}
    known = [selected] if selected in VOCABULARY.ids else []
    assert list(shown['selected word']) == known and list(shown['neighbour']) == near
    frequent = set(WORDS[: feature_map.NUM_POINTS]) - {*known, *near}
    assert set(shown['frequent word']) == frequent
    for places in shown.values():
        for word, place in places.items():
            np.testing.assert_allclose(place, points.points_Vx2[VOCABULARY.ids[word]], atol=1e-4)
    assert (chart['series'][0]['itemStyle']['opacity'] < 0.5) == bool(known or near)
