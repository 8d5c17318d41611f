"""Tests tables from which the least useful n-grams of a model have been removed."""

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.stream import Span
from nplm_jax.ngram import entropy_pruning, kneser_ney
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramTable, count
from nplm_jax.ngram.normalization import ngram_words, normalize
from nplm_jax.ngram.scratch import SCRATCH, Scratch
from nplm_jax.runs.experiment import load_settings

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
TOKENS = np.minimum(np.random.default_rng(1).zipf(1.4, 4000), 49).astype(np.int32)
TRAIN, TEST, V = Span(10, 3500), Span(3500, 4000), 50
FITS = {'modified': kneser_ney.fit_modified, 'back-off': kneser_ney.fit_backoff}


def fit(name='modified', scratch=SCRATCH, **options):
    return FITS[name](count(TOKENS, TRAIN, 4, V, scratch), **options)


def sizes(model):
    return [model.table.size(k) for k in range(1, model.n + 1)]


def perplexity(model):
    return float(np.exp(-model.score(TOKENS, TEST).mean(dtype=np.float64)))


def ngrams(model, k):
    return list(map(tuple, ngram_words(model.table, k, np.arange(model.table.size(k))).tolist()))


def brute_force(model, context_p, threshold):
    """Returns the kept n-grams: removes each separately and compares the distributions after its context."""
    stays, lower_p = set(), {1: np.exp(model.log_p[0])}
    for k in range(2, model.n + 1):
        for context in ngrams(model, k - 1):
            lower_p[context] = np.exp(model.next_word(np.array([context[1:]], int))[0].astype(np.float64))
    for k in range(model.n, 1, -1):
        followers = {}
        for node, ngram in enumerate(ngrams(model, k)):
            followers.setdefault(ngram[:-1], {})[ngram[-1]] = np.exp(model.log_p[k - 1][node])
        for node, context in enumerate(ngrams(model, k - 1)):
            seen, lower = followers.get(context, {}), lower_p[context]

            def distribution(words, lower=lower, seen=seen):
                explicit = np.isin(np.arange(V), list(words))
                p = np.where(explicit, [seen.get(w, 0.0) for w in range(V)], 0)
                return p + np.where(explicit, 0, lower) * (1 - p.sum()) / lower[~explicit].sum()

            before = distribution(seen)
            for word in seen:
                after = distribution(seen.keys() - {word})
                change = context_p[k - 2][node] * float((before * np.log(before / after)).sum())
                is_needed = any(longer[:-1] == (*context, word) or longer[1:] == (*context, word) for longer in stays)
                if np.expm1(change) >= threshold or is_needed:
                    stays.add((*context, word))
    return stays


@pytest.mark.parametrize('threshold', [1e-4, 3e-4])
def test_the_ngrams_that_stay_are_those_whose_removal_changes_the_model_most(threshold):
    tokens_T = TOKENS[:500]
    model = kneser_ney.fit_modified(count(tokens_T, Span(2, 500), 3, V))
    rng = np.random.default_rng(3)
    context_p = [rng.uniform(0, 0.02, model.table.size(k)) for k in (1, 2)]
    found = entropy_pruning.prune(model, context_p, threshold)
    expected = brute_force(model, context_p, threshold)
    assert {ngram for k in (2, 3) for ngram in ngrams(found, k)} == expected
    assert 20 < len(expected) < 0.8 * sum(sizes(model)[1:])


@pytest.mark.parametrize('threshold', [1e-5, 1e-4])
@pytest.mark.parametrize('name', FITS)
def test_a_pruned_model_is_smaller_and_sums_to_one(name, threshold):
    model, full = fit(name, prune_entropy=threshold), fit(name)
    assert sum(sizes(model)) < 0.9 * sum(sizes(full)) and perplexity(model) < 1.1 * perplexity(full)
    contexts_BxN = np.random.default_rng(0).integers(0, V, (200, 3))
    contexts_BxN[:100] = np.lib.stride_tricks.sliding_window_view(TOKENS, 3)[:100]
    p_BxV = np.exp(model.next_word(contexts_BxN).astype(np.float64))
    np.testing.assert_allclose(p_BxV.sum(1), 1, atol=1e-6)


def test_ngrams_that_stay_keep_their_probability_and_their_first_and_last_words():
    full, model = fit(), fit(prune_entropy=5e-5)
    for k in range(1, 5):
        before = dict(zip(ngrams(full, k), full.log_p[k - 1]))
        kept = ngrams(model, k)
        assert [before[ngram] for ngram in kept] == list(model.log_p[k - 1])
        if k > 1:
            shorter = set(ngrams(model, k - 1))
            assert all(ngram[:-1] in shorter and ngram[1:] in shorter for ngram in kept)


def test_a_threshold_of_zero_changes_nothing():
    for a, b in zip(fit(prune_entropy=0.0).log_b, fit().log_b, strict=True):
        np.testing.assert_array_equal(a, b)


def test_contexts_have_the_frequency_of_training_less_a_discount(monkeypatch):
    seen = []
    monkeypatch.setattr(entropy_pruning, 'prune', lambda model, context_p, *_: seen.append(context_p))
    fit(prune_entropy=1e-6)
    counts = count(TOKENS, TRAIN, 4, V)
    for k, p in zip((2, 3, 4), seen[0], strict=True):
        missing = counts.totals(k) - p * len(TRAIN)
        assert ((missing > 0) == (counts.totals(k) > 0)).all() and missing.max() <= 3
        assert len(np.unique(missing.round(9))) <= 4


def test_counts_are_pruned_first():
    thresholds = (0, 0, 1, 1)
    both, counted = fit(thresholds=thresholds, prune_entropy=5e-5), fit(thresholds=thresholds)
    assert sum(sizes(both)) < sum(sizes(counted)) < sum(sizes(fit()))
    for k in (2, 3, 4):
        assert set(ngrams(both, k)) <= set(ngrams(counted, k))


def test_pruning_in_blocks_is_pruning_at_once():
    blocks, at_once = fit(scratch=Scratch(block=150, in_memory=0), prune_entropy=5e-5), fit(prune_entropy=5e-5)
    for a, b in zip((*blocks.table.keys, *blocks.log_p), (*at_once.table.keys, *at_once.log_p), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_threshold_that_leaves_no_ngram_of_an_order_is_refused():
    with refuses('model.prune_entropy'):
        fit(prune_entropy=0.5)


@pytest.mark.parametrize('value', [-1e-9, 1.0, float('nan'), float('inf'), 'little'])
def test_other_thresholds_are_refused(value):
    with refuses('model.prune_entropy'):
        load_settings({'model.family': 'kneser_ney', 'model.prune_entropy': value})


@pytest.mark.parametrize('family', ['nplm', 'interpolated', 'classes', 'maximum_likelihood', 'add_delta', 'backoff'])
def test_families_that_are_not_pruned_refuse_a_threshold(family):
    with refuses('model.prune_entropy'):
        load_settings({'model.family': family, 'model.n': 3, 'model.prune_entropy': 1e-7})


def test_contexts_without_ngrams_have_a_back_off_weight_of_exactly_one():
    model = fit()
    pruned = entropy_pruning.prune(model, entropy_pruning.context_probabilities(model), 1e-4)
    for k in range(2, pruned.n + 1):
        has_ngrams = np.isin(np.arange(pruned.table.size(k - 1)), pruned.table.prefixes(k))
        assert not has_ngrams.all() and not pruned.log_b[k - 2][~has_ngrams].any()


def test_back_off_weights_of_a_file_with_few_digits_keep_their_mass():
    p = np.log([0.1, 0.3, 0.4, 0.2])
    table = NgramTable(4, (np.arange(4), np.array([6, 11, 12, 13, 14])))
    log_p = [p, np.log([0.5, 1 - 8e-5, 0.3, 0.2, 0.2])]
    model = normalize(table, log_p, SCRATCH)
    rounded = BackoffModel(table, [p, (log_p[1] / np.log(10)).round(4) * np.log(10)], model.log_b)
    assert rounded.log_p[1][1] == 0  # 1 - 8e-5 is 0.0000 in the file
    pruned = entropy_pruning.prune(rounded, [np.full(4, 0.1)], 1e-9)
    np.testing.assert_allclose(pruned.log_b[0], model.log_b[0], atol=1e-12)
