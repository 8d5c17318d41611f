"""Tests the gain of a regression: exclusions, folds and resampling of items, and analysed words."""

import math

import numpy as np
import pytest

from nplm_jax.apps.psycholinguistics import gains


def test_words_before_do_not_reach_into_the_story_before():
    columns = gains.with_words_before(np.array([1.0, 2, 3, 4, 5]), np.array([1, 1, 1, 2, 2]))
    np.testing.assert_array_equal(
        columns, [[1, np.nan, np.nan], [2, 1, np.nan], [3, 2, 1], [4, np.nan, np.nan], [5, 4, np.nan]]
    )


def test_sentences_end_at_their_marks_and_at_the_end_of_a_story():
    words = ['Mr.', 'Fox', 'ran.', "'Why?'", 'said', 'she']
    positions_W, first_W, last_W = gains.sentence_positions(words, np.array([1, 1, 1, 1, 1, 2]))
    assert positions_W.tolist() == [1, 2, 3, 1, 1, 1]
    assert first_W.tolist() == [True, False, False, True, True, True]
    assert last_W.tolist() == [False, False, True, True, True, True]


def test_the_words_that_are_left_out():
    words = ['One', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight.']
    known_W = np.array([True, True, True, False, True, True, True, True])
    kept_W = gains.choose_words(words, np.ones(8, int), np.arange(8) + 1, known_W)
    assert [word for word, is_kept in zip(words, kept_W) if is_kept] == ['six', 'seven']


def test_a_story_is_predicted_by_the_regression_of_the_other():
    # Slopes 1 and 1.5, variance 0.5 in both fits, computed by hand. The means of the stories, 7 and 90, have no effect.
    times_W = np.array([-1.5, 1, 0.5, -2, 1, 1]) + np.repeat([7, 90], 3)
    columns_Wx1 = np.array([[-1.0], [0], [1], [-1], [0], [1]])
    story_W = np.repeat([1, 2], 3)
    log_p_W = gains.held_out(times_W, story_W, columns_Wx1, story_W)
    np.testing.assert_allclose(log_p_W, -0.5 * math.log(math.pi) - np.array([0, 1, 1, 1, 1, 0]), atol=1e-12)


@pytest.mark.parametrize('effect', [0.0, 0.5])
def test_the_gain_is_that_of_the_effect(effect):
    rng, story_W = np.random.default_rng(1), np.repeat(np.arange(10), 2000)
    baseline_WxB, added_Wx1 = rng.normal(size=(len(story_W), 3)), rng.normal(size=(len(story_W), 1))
    times_W = baseline_WxB @ [1.0, -2.0, 3.0] + effect * added_Wx1[:, 0] + story_W + rng.normal(size=len(story_W))
    gain = gains.gain(times_W, story_W, baseline_WxB, added_Wx1)
    expected = 0.5 * math.log(1 + effect**2)  # nats per word, for a variance that falls from 1 + effect**2 to 1
    assert gain.per_word == pytest.approx(expected, abs=0.012)
    low, high = gains.interval(gains.mean_gain(gain.sums_S, gain.counts_S), 10)
    assert low < expected < high and high - low < 0.05
    assert gain.per_word > 0.05 or gain.per_word < 1e-4


def test_slopes_are_those_of_the_models_columns():
    rng, story_W = np.random.default_rng(1), np.repeat([1, 2], 50)
    columns_WxC = rng.normal(size=(100, 4))
    found = gains.slopes(columns_WxC @ [5.0, 6, 7, 8] + story_W, story_W, columns_WxC[:, :2], columns_WxC[:, 2:])
    np.testing.assert_allclose(found, [7, 8], atol=1e-9)
    times_W = columns_WxC[:, 0] + 3 * story_W
    assert gains.explained_variance(times_W, story_W, columns_WxC[:, :1]) == pytest.approx(1)
    correlation = np.corrcoef(*(gains.centre(x, story_W) for x in (times_W, columns_WxC[:, 1])))[0, 1]
    assert gains.explained_variance(times_W, story_W, columns_WxC[:, 1:2]) == pytest.approx(correlation**2)


def test_an_interval_is_over_stories():
    statistic = gains.mean_gain(np.array([10.0, 10, 10]), np.array([100, 100, 100]))
    assert gains.interval(statistic, 3) == (pytest.approx(0.1), pytest.approx(0.1))
    low, high = gains.interval(gains.mean_gain(np.array([0.0, 30]), np.array([100, 100])), 2)
    assert (low, high) == (0, pytest.approx(0.3))  # a quarter of the resamples contain one story twice


def test_units_are_dealt_to_folds_in_turn_and_left_out_together():
    rng, story_W = np.random.default_rng(2), np.repeat(np.arange(8), 20)
    unit_W = np.array([3, 3, 0, 0, 1, 1, 2, 2])[story_W]  # two conditions of an item
    baseline_WxB, added_WxA = rng.normal(size=(160, 2)), rng.normal(size=(160, 1))
    times_W = baseline_WxB @ [1.0, 2] + added_WxA[:, 0] + rng.normal(size=160)
    found = gains.gain(times_W, story_W, baseline_WxB, added_WxA, unit_W, 2)
    fold_W = np.array([1, 1, 0, 0, 1, 1, 0, 0])[story_W]
    both_WxC = np.column_stack([baseline_WxB, added_WxA])
    log_p_W = gains.held_out(times_W, story_W, both_WxC, fold_W) - gains.held_out(
        times_W, story_W, baseline_WxB, fold_W
    )
    np.testing.assert_allclose(found.sums_S, [log_p_W[unit_W == unit].sum() for unit in range(4)])
    assert found.counts_S.tolist() == [40] * 4
    by_story = gains.gain(times_W, story_W, baseline_WxB, added_WxA)
    assert len(by_story.sums_S) == 8 and by_story.per_word != found.per_word


def test_a_column_that_is_the_sum_of_others_changes_no_prediction():
    rng, story_W = np.random.default_rng(3), np.repeat([0, 1, 2], 30)
    columns_WxC, times_W = rng.normal(size=(90, 2)), rng.normal(size=90)
    more_WxC = np.column_stack([columns_WxC, columns_WxC.sum(1)])
    expected_W = gains.held_out(times_W, story_W, columns_WxC, story_W)
    np.testing.assert_allclose(gains.held_out(times_W, story_W, more_WxC, story_W), expected_W, rtol=1e-9)


def test_a_title_after_an_opening_quotation_mark_or_bracket_ends_no_sentence():
    ends = {'"Mr.': False, '“Dr.': False, "('Mrs.": False, 'St.”': True, '"So.': True}
    assert {word: gains.ends_sentence(word) for word in ends} == ends


def test_sentences_end_and_words_are_without_punctuation_in_other_scripts_too():
    ends = {'老师。': True, '「見た。」': True, '。': True, 'Mr.': False, 'ครู': False, '先生': False}
    assert {word: gains.ends_sentence(word) for word in ends} == ends
    words, item_W, zone_W = ['ตัวนี้', '老师', 'ครู', '老师。', 'dog', 'dog,'], np.zeros(6), np.arange(6) + 1
    baseline_WxB = gains.make_baseline(words, item_W, zone_W, np.ones(6), np.ones(6))
    assert baseline_WxB[:, 9].tolist() == [0, 0, 0, 1, 0, 1]
