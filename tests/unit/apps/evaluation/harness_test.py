"""Tests the lm-evaluation-harness adapter with a mock of the package: empty requests, no tokens, one pass."""

import importlib
import sys
import types

import numpy as np
import pytest
from helpers import refuses
from language_runs import make_runs

from nplm_jax.inference.generation import GREEDY, Choice

HARNESS = 'nplm_jax.apps.evaluation.harness'


@pytest.fixture
def make(monkeypatch, folders):
    """Returns a function that creates the harness's model for a run."""
    modules = {
        'lm_eval': types.ModuleType('lm_eval'),
        'lm_eval.api': types.ModuleType('lm_eval.api'),
        'lm_eval.api.model': types.SimpleNamespace(LM=type('LM', (), {})),
        'lm_eval.api.registry': types.SimpleNamespace(register_model=lambda name: lambda made: made),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, HARNESS, raising=False)
    harness = importlib.import_module(HARNESS)
    del sys.modules[HARNESS]  # the next test imports it again
    return lambda run, **arguments: harness.NplmLM(str(folders / run), **arguments)


def requests(*arguments):
    return [types.SimpleNamespace(args=args) for args in arguments]


@pytest.mark.parametrize('method', ['loglikelihood', 'loglikelihood_rolling', 'generate_until'])
def test_no_request_has_no_result(make, method):
    assert getattr(make('counts'), method)([]) == []


@pytest.mark.parametrize('key', ['max_gen_toks', 'max_new_tokens'])
def test_as_many_tokens_are_written_as_are_asked_for(make, key):
    lm = make('counts')
    for number in (0, 1, 5):
        (text,) = lm.generate_until(requests(('i like', {key: number})))
        assert len(text.replace('\n', ' <p> ').split()) == number


def test_a_paragraph_ends_a_generated_line(make):
    lm = make('counts')
    whole, cut = lm.generate_until(requests(*(('i like', {'until': u, 'max_gen_toks': 24}) for u in ([], ['\n']))))
    assert '<p>' not in whole and '\n' in whole and cut == whole.partition('\n')[0] != ''


def test_a_misspelled_argument_is_not_ignored(make):
    make('counts', batch_size=1, max_batch_size=None, device='cpu')
    with refuses('weight') as error:
        make('counts', weight='0.3;0.7')
    assert 'did you mean weights?' in error.value.problem


def test_an_empty_stop_sequence_is_ignored(make):
    lm = make('counts')
    whole, other = lm.generate_until(requests(*(('i like', {'until': u, 'max_gen_toks': 9}) for u in ([], ['', '']))))
    assert other == whole != ''
    assert lm.generate_until(requests(('i like', {'until': '', 'max_gen_toks': 9}))) == [whole]


@pytest.mark.parametrize('run', ['counts', 'network'])
def test_greedy_continuations_are_told_in_one_pass(make, run, monkeypatch):
    lm = make(run)
    model = lm._model
    whole = lm._vocabulary.encode(['i', 'like'])
    for _ in range(6):
        context = np.concatenate([lm._start.before(whole), whole])
        whole = np.append(whole, model.next_word(context[None])[0].argmax()).astype(np.int32)
    tokens = lm._vocabulary.decode(whole)
    other = next(word for word in ('dog', 'milk') if word != tokens[-1])
    calls = []
    for name in ('prefill', 'advance'):
        method = getattr(model, name)
        monkeypatch.setattr(model, name, lambda *a, name=name, method=method: calls.append(name) or method(*a))
    assert lm._is_greedy(whole, 2) and calls == ['prefill', *['advance'] * 5]
    changed = np.append(whole[:-1], lm._vocabulary.encode([other])).astype(np.int32)
    assert not lm._is_greedy(changed, 2) and lm._is_greedy(changed, len(changed))
    assert lm._is_greedy(whole, 0) == (model.next_word(lm._start.before(whole)[None])[0].argmax() == whole[0])


def test_an_unknown_word_is_not_greedy_even_if_rare_words_are_the_most_likely(make, monkeypatch):
    lm = make('counts')
    best = 2
    log_p_1xV = np.full((1, len(lm._vocabulary)), -9.0)
    log_p_1xV[0, [0, best]] = -0.1, -1.0
    monkeypatch.setattr(lm._model, 'predict', lambda state: log_p_1xV)
    told = [lm._is_greedy(np.array([1, word], np.int32), 1) for word in (0, best, best + 1)]
    assert told == [False, True, False]


def test_repeated_requests_are_different_samples_with_the_given_limits(make, monkeypatch):
    lm = make('counts', seed=5)
    calls = []

    def sample(model, prompt, words, samples, choice, seed, is_enough):
        calls.append((choice, seed))
        return np.zeros((1, 0), np.int32)

    monkeypatch.setattr('nplm_jax.inference.generation.sample', sample)
    sampled, limits = {'do_sample': True}, {'temperature': 0.5, 'top_k': 3, 'top_p': 0.9}
    lm.generate_until(requests(*(('i', options) for options in (sampled, sampled, sampled | limits, limits))))
    assert calls == [(Choice(), 5), (Choice(), 6), (Choice(0.5, 3, 0.9), 5), (GREEDY, 5)]


def test_too_many_unknown_words_are_named_and_the_model_is_described(make, capsys):
    lm = make('network')
    lm.loglikelihood_rolling(requests(('i like zzz',)))
    (line,) = capsys.readouterr().err.splitlines()
    assert '33.3%' in line
    lm.loglikelihood(requests(('i like', ' dog')))
    assert capsys.readouterr().err == ''
    assert repr(lm).startswith('<NplmLM network: ') and len(repr(lm)) < 200


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
def test_segmented_texts_are_read_without_their_spaces(make, tmp_path):
    lm = make(make_runs(tmp_path, ['chinese']) / 'chinese')
    joined, segmented = lm.loglikelihood(requests(('人人', '生而自由'), ('人人', ' 生而 自由')))
    assert joined == segmented
    joined, segmented = lm.loglikelihood_rolling(requests(('人人生而自由',), ('人人 生而 自由',)))
    assert joined == segmented
