"""Tests that a finished model is evaluated on every word, or on a sample of the training words of reported size."""

import copy
import dataclasses
import io
import json
import sys

import numpy as np
import pytest
from helpers import DATA, make_model, numbers

from configs import sentences
from nplm_jax.config.sections import EvalSettings, PaperRow
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.reporting import catalog
from nplm_jax.reporting.results import format_results
from nplm_jax.runs import evaluation, experiment, loading

MODEL = make_model(len(DATA.vocabulary))


def test_all_words_are_measured_and_a_sample_says_its_size():
    whole = evaluation.measure(MODEL, DATA)
    for name, span in DATA.splits.items():
        assert whole['perplexity'][name] == evaluate(MODEL, DATA.tokens_T, span).perplexity
    assert 'evaluated_train_words' not in whole and whole['words'] == {'train': 220, 'valid': 40, 'test': 40}
    sample = evaluation.measure(MODEL, DATA, EvalSettings(train_words=100, words=0))
    assert sample['evaluated_train_words'] == 100 and sample['words'] == whole['words']  # 25 stretches of 4 words
    assert sample['perplexity'] == whole['perplexity'] | {'train': sample['perplexity']['train']}
    assert sample['perplexity']['train'] == pytest.approx(whole['perplexity']['train'], rel=0.2)
    assert evaluation.measure(MODEL, DATA, EvalSettings(train_words=220, words=40)) == whole


def test_results_say_of_how_many_training_words_their_perplexity_is(tmp_path):
    config = sentences.get_config()
    config.train.epochs, config.eval.train_words = 1, 7
    results = experiment.run(config, tmp_path / 'run')
    assert results['evaluated_train_words'] == 7 and results['words']['train'] == 13
    assert json.loads((tmp_path / 'run' / 'results.json').read_text()) == results


def test_a_sample_of_the_held_out_words_has_a_standard_error(tmp_path):
    data = dataclasses.replace(DATA, valid=Span(30, 130), test=Span(130, 230))
    measured = evaluation.measure(MODEL, data, EvalSettings(0, words=59), trigram=lambda: evaluation.fit_trigram(data))
    assert 'mixture' not in measured  # its mixture weights would need all words
    for name in ('valid', 'test'):
        span, log_p_T = data.splits[name], MODEL.score(data.tokens_T, data.splits[name])
        stretches = np.array([log_p_T[i * 4 :][:2] for i in range(25)], np.float64)
        error = stretches.mean(1).std(ddof=1) / 5 * np.sqrt(1 - 50 / len(span))
        assert measured['sample']['words'][name] == 50
        assert measured['perplexity'][name] == pytest.approx(np.exp(-stretches.mean()), rel=1e-6)
        assert measured['sample']['standard_error'][name] == pytest.approx(np.exp(-stretches.mean()) * error, rel=1e-5)


def test_a_run_may_validate_and_be_tested_on_samples(tmp_path):
    config = sentences.get_config()
    config.train.epochs, config.eval.words = 2, 5
    results = experiment.run(config, tmp_path / 'run')
    assert results['sample']['words'] == {'valid': 5, 'test': 5} and catalog.is_complete(results)
    assert not catalog.is_complete({**results, 'sample': {'words': {'valid': 5}}})
    no_words = {**results['sample'], 'words': {'valid': 5, 'test': None}}
    for damage in ({'sample': no_words}, {'words': []}, {'parameters': '9'}, {'versions': {'jax': 1}}):
        assert not catalog.is_complete({**results, **damage})
    (line,) = (line for line in format_results(results, PaperRow()).splitlines() if 'eval.words' in line)
    assert numbers(line)[:2] == ['5', '5']


def test_which_words_are_predicted_is_said_before_they_are(lines):
    evaluation.measure(MODEL, DATA, EvalSettings(train_words=20, words=0), lambda: evaluation.fit_trigram(DATA))
    said = 'Evaluating on 40 valid, 40 test, 20 train words, and mixing with the trigram'
    assert lines() == ([said], [])


def test_words_that_training_has_scored_are_named(lines):
    span = DATA.splits['valid']
    known = {span: np.full(len(span), -1.0)}
    evaluation.measure(MODEL, DATA, EvalSettings(train_words=20, words=0), None, known)
    (line,) = lines()[0]
    assert '40 valid, 40 test, 20 train' in line and line.count('valid') == 2


def test_a_terminal_sees_which_evaluation_is_under_way(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = {}
    for kind in (Terminal, io.StringIO):
        monkeypatch.setattr(sys, 'stderr', stream := kind())
        evaluation.measure(MODEL, DATA, trigram=lambda: evaluation.fit_trigram(DATA))
        shown[kind] = stream.getvalue()
    stages = ['valid words', 'test words', 'train words', 'estimating the trigram', 'mixing with the trigram']
    assert sorted(map(shown[Terminal].index, stages)) == [shown[Terminal].index(stage) for stage in stages]
    assert '300/300' in shown[Terminal] and shown[io.StringIO] == ''


def test_the_last_word_of_each_paragraph_is_predicted_where_the_text_is_small(tmp_path):
    experiment.run(sentences.get_config(), tmp_path / 'run')
    loaded = experiment.load(tmp_path / 'run')
    settings, vocabulary, model = loaded.settings, loaded.vocabulary, loaded.model
    data = loading.load_dataset(settings)
    table = evaluation.predictions_table(model, data).splitlines()
    rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in table]
    assert [row[:2] for row in rows[2:]] == [['i like', 'dog'], ['i love', 'coffee'], ['i hate', 'milk']]
    log_p_V = model.next_word(vocabulary.encode(['i', 'hate'])[None])[0]
    assert rows[-1][2].startswith(f'milk {np.exp(log_p_V[vocabulary.ids["milk"]]):.3f}, ')
    assert evaluation.predictions_table(MODEL, DATA).count('\n') == 2  # one paragraph without boundaries
    assert evaluation.predictions_table(MODEL, dataclasses.replace(DATA, test=DATA.train)) == ''  # 220 words


def test_the_trigram_of_a_text_read_by_lines_predicts_each_line_alone():
    rng, words = np.random.default_rng(0), ('<rare>', '<p>', *'abcdef')
    lines = [[*rng.integers(2, 8, rng.integers(0, 6)), 1] for _ in range(150)]
    tokens_T = np.concatenate([[1], *lines]).astype(np.int32)
    vocabulary, stops = Vocabulary(words, (1,) * len(words)), (1 + np.cumsum(list(map(len, lines)))).tolist()
    spans = (Span(start, stop) for start, stop in zip((1, stops[89], stops[119]), (stops[89], stops[119], stops[-1])))
    trigram, bins = evaluation.fit_trigram(Dataset(*spans, tokens_T, vocabulary, by_lines=True))
    for start, stop in zip(stops[119:], stops[120:]):
        alone_T = tokens_T[start - 1 : stop]
        words_of_line = Span(1, len(alone_T))
        np.testing.assert_array_equal(trigram.score(tokens_T, Span(start, stop)), trigram.score(alone_T, words_of_line))
        in_text = bins.of_stream(tokens_T, Span(start, stop))
        np.testing.assert_array_equal(in_text, bins.of_stream(alone_T, words_of_line))
    contexts = tokens_T[np.arange(200, 260)[:, None] + np.arange(2)]
    np.testing.assert_allclose(np.exp(trigram.next_word(contexts)).sum(1), 1, rtol=1e-5)


def test_a_model_without_an_order_reads_a_limited_context_before_each_predicted_word(monkeypatch):
    sizes, model = [], copy.copy(MODEL)
    model.n = None
    model.next_word = lambda contexts: sizes.append(contexts.shape[1]) or MODEL.next_word(contexts)
    monkeypatch.setattr(evaluation, '_MAX_CONTEXT', 50)
    assert evaluation.predictions_table(model, DATA) and sizes == [50]
