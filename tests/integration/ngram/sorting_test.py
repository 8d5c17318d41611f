"""Tests that n-grams counted in small blocks and in files equal those counted at once in memory."""

import os
import resource
import tempfile

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given, settings
from hypothesis import strategies as st

from nplm_jax.data.stream import Span, with_history
from nplm_jax.ngram import counts, kneser_ney
from nplm_jax.ngram.integers import sort_with_order
from nplm_jax.ngram.scratch import Scratch
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


def reference(tokens_T, span, n, size):
    """Returns keys, counts and suffix nodes of orders 2..n, computed by np.unique for each order."""
    words_L = with_history(np.asarray(tokens_T), span, n - 1)
    nodes_L, tables = words_L, []
    for k in range(2, n + 1):
        keys, next_L = np.unique(nodes_L[:-1] * size + words_L[k - 1 :], return_inverse=True)
        suffixes = np.empty(len(keys), np.int64)
        suffixes[next_L] = nodes_L[1:]
        tables.append((keys, np.bincount(next_L[n - k :], minlength=len(keys)), suffixes))
        nodes_L = next_L
    return tables


def check(counted, tables):
    for k, table in enumerate(tables, start=2):
        arrays = counted.table.keys[k - 1], counted.counts[k - 1], counted.suffix_nodes[k - 1]
        for array, expected in zip(arrays, table):
            np.testing.assert_array_equal(array, expected)


@settings(max_examples=40)
@given(
    tokens=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    start=st.integers(0, 5),
    n=st.integers(1, 6),
    block=st.sampled_from([1, 2, 3, 10, 1000]),
    in_memory=st.sampled_from([0, 100, 10**6]),
    scratch_class=st.sampled_from([Scratch, SharedScratch]),
)
def test_counting_in_blocks_is_counting_at_once(tokens, start, n, block, in_memory, scratch_class):
    span = Span(min(start, len(tokens) - 1), len(tokens))
    scratch = scratch_class(block=block, in_memory=in_memory)
    check(counts.count(np.array(tokens, np.int32), span, n, 5, scratch), reference(tokens, span, n, 5))


@pytest.mark.parametrize('block', [1, 20, 90, 10**6])
def test_one_frequent_word_and_many_rare_ones_are_counted(block):
    rng = np.random.default_rng(0)
    tokens_T = np.where(rng.random(80) < 0.7, 3, rng.integers(0, 90, 80))
    counted = counts.count(tokens_T, Span(2, 80), 4, 90, Scratch(block=block))
    check(counted, reference(tokens_T, Span(2, 80), 4, 90))
    np.testing.assert_array_equal(counted.counts[0], np.bincount(tokens_T[2:], minlength=90))


@pytest.mark.parametrize('fit', [kneser_ney.fit_backoff, kneser_ney.fit_modified])
@pytest.mark.parametrize('block, in_memory', [pytest.param(9, 0, marks=pytest.mark.nightly), (50, 0), (200, 10**6)])
def test_an_estimate_in_blocks_is_the_estimate_at_once_bit_for_bit(fit, block, in_memory):
    rng = np.random.default_rng(1)
    tokens_T = np.minimum(rng.zipf(1.4, 400), 29)
    pieces = fit(counts.count(tokens_T, Span(0, 400), 4, 30, scratch=Scratch(block=block, in_memory=in_memory)))
    at_once = fit(counts.count(tokens_T, Span(0, 400), 4, 30, scratch=Scratch(block=10**6, in_memory=10**9)))
    for name in ('log_p', 'log_b'):
        for a, b in zip(getattr(pieces, name), getattr(at_once, name), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize('largest', [10, 2**40, 2**62])
def test_equal_numbers_keep_their_order(largest):
    keys = np.random.default_rng(0).integers(0, 10, 500) * (largest // 10)
    sorted_keys, order = sort_with_order(keys)
    np.testing.assert_array_equal(order, np.argsort(keys, kind='stable'))
    np.testing.assert_array_equal(sorted_keys, keys[order])


def test_many_queries_find_what_each_finds_alone():
    rng = np.random.default_rng(0)
    keys = np.unique(rng.integers(0, 10**6, 5000))
    queries = np.concatenate([rng.integers(-5, 10**6, 4000), keys[:2000]]).reshape(3, -1)
    places = {int(key): i for i, key in enumerate(keys)}
    np.testing.assert_array_equal(counts.find(keys, queries), np.vectorize(lambda q: places.get(q, -1))(queries))
    assert (counts.find(keys[:0], queries) == -1).all()


@pytest.mark.nightly
def test_many_ranges_need_few_open_files():
    tokens_T = np.random.default_rng(2).integers(0, 50, 3000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')) + 40, hard))
    try:
        counted = counts.count(tokens_T, Span(0, 3000), 3, 50, SharedScratch(block=60))  # 100 ranges
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    check(counted, reference(tokens_T, Span(0, 3000), 3, 50))


@pytest.mark.parametrize('scratch_class', [Scratch, SharedScratch])
def test_temporary_files_have_no_name(tmp_path, scratch_class):
    counted = counts.count(np.arange(100) % 7, Span(0, 100), 3, 7, scratch_class(tmp_path, block=10, in_memory=0))
    assert counted.counts[2].sum() == 100
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('in_memory', [0, 1000])
def test_a_full_disk_is_one_line(in_memory, monkeypatch):
    monkeypatch.setattr(tempfile, 'TemporaryFile', lambda **_: open('/dev/full', 'w+b', buffering=0))
    with pytest.raises(BadInput, match='No space left on device'):
        counts.count(np.arange(300) % 7, Span(0, 300), 3, 7, Scratch(block=64, in_memory=in_memory))


def test_a_folder_that_is_missing_is_one_line(tmp_path):
    for block in (10, 1000):
        with refuses('missing'):
            scratch = Scratch(tmp_path / 'missing', block, in_memory=0)
            counts.count(np.arange(100) % 7, Span(0, 100), 3, 7, scratch)
