"""Tests that a network scores many lines together as it scores each line separately."""

import functools

import jax
import numpy as np
import pytest
from helpers import make_model

from nplm_jax.data.stream import Span
from nplm_jax.models import mixture, network_reading, neural

V = 17
GRU = {'model.family': 'gru', 'model.direct': False, 'train.batch_size': 16}


@pytest.mark.parametrize(
    'changes,max_states', [({}, 0), (GRU, 2**10), (GRU, 0)], ids=['window', 'gru', 'gru, one by one']
)
def test_each_line_is_scored_as_alone(changes, max_states, monkeypatch):
    monkeypatch.setattr(neural, 'MIN_LINES', 2)  # so that a few lines need several batches of one shape
    monkeypatch.setattr(neural, 'MAX_LINES', 4)
    monkeypatch.setattr(neural, 'MAX_STATE_BYTES', max_states)
    model, rng = make_model(V, changes), np.random.default_rng(1)
    long = rng.integers(0, V, 2 * neural.LENGTH_MULTIPLE + 3)
    shared = long[:5]
    parts = [long, shared, [], long[:18], [*shared, 1], [*shared, 2], shared, [0], [0, 0], long[:16], [*long[:17], 3]]
    lines = [np.array(part, np.int32) for part in parts]
    scores = model.score_lines(lines)
    assert [len(log_p_T) for log_p_T in scores] == [len(line) for line in lines]
    padding = np.zeros(model.network.body.lookback + 1, np.int32)
    for line, log_p_T in zip(lines, scores):
        span = Span(0, len(line)) if model.n is None else Span(len(padding), len(padding) + len(line))
        alone_T = model.score(line if model.n is None else np.append(padding, line), span) if len(line) else []
        np.testing.assert_allclose(log_p_T, alone_T, atol=2e-6)
    np.testing.assert_array_equal(scores[1], scores[6])  # equal lines, and equal beginnings, have equal bits
    np.testing.assert_array_equal(scores[4][:5], scores[1])


@pytest.mark.parametrize('memory', [1, 100, 4096])
def test_the_states_of_lines_that_are_read_together_are_limited(memory):
    body = make_model(V, {**GRU, 'model.family': 'attentive_mogrifier', 'model.memory': memory}).network.body
    states = jax.tree.leaves(
        jax.eval_shape(functools.partial(body.start, network_reading.max_streams(body, neural.MAX_STATE_BYTES)))
    )
    assert 2**25 <= sum(x.size * x.dtype.itemsize for x in states) <= 2**26


@pytest.mark.parametrize('changes', [{}, GRU], ids=['window', 'gru'])
def test_very_long_lines_are_read_as_streams(changes, monkeypatch):
    model, rng = make_model(V, changes), np.random.default_rng(1)
    lines = [rng.integers(0, V, size).astype(np.int32) for size in (40, 3, 0, 33, 32)]
    expected = model.score_lines(lines)
    monkeypatch.setattr(neural, 'MAX_LENGTH', 32)
    monkeypatch.setattr(model, '_score_batch', functools.partial(score_short, model._score_batch))
    for log_p_T, expected_T in zip(model.score_lines(lines), expected, strict=True):
        np.testing.assert_allclose(log_p_T, expected_T, atol=2e-6)


def score_short(score_batch, lines_SxT):
    assert lines_SxT.shape[1] <= 32
    return score_batch(lines_SxT)


def test_a_beginning_that_lines_share_is_scored_once(monkeypatch):
    model, scored = make_model(V), []
    score = model._score_examples
    monkeypatch.setattr(model, '_score_examples', lambda *x: scored.append(len(x[2])) or score(*x))
    line = np.arange(10, dtype=np.int32)
    model.score_lines([line, np.append(line[:7], 9), line, line[:7]])
    assert scored == [10 + 1]


def test_a_batch_of_long_lines_is_read_in_blocks(monkeypatch):
    model, read = make_model(V, GRU), []
    batch = neural.compiled_read
    monkeypatch.setattr(neural, 'compiled_read', lambda n, p, s, ids: read.append(ids.shape) or batch(n, p, s, ids))
    model.score_lines([np.zeros(33, np.int32), np.zeros(3, np.int32)])
    assert read == [(neural.MIN_LINES, neural.LENGTH_MULTIPLE)] * 3


def test_cached_scores_of_lines_are_the_models(monkeypatch):
    model, lines = make_model(V), [np.array([1, 2], np.int32), np.array([3], np.int32)]
    cached = mixture.CachedScores(model)
    for part in (lines, lines[1:]):
        expected = np.concatenate(model.score_lines(part))
        np.testing.assert_array_equal(np.concatenate(cached.score_lines(part)), expected)
        with monkeypatch.context() as patch:
            patch.setattr(type(model), 'score_lines', None)  # the lines are not scored again
            again = cached.score_lines([line.copy() for line in part])
        np.testing.assert_array_equal(np.concatenate(again), expected)
