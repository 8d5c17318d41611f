"""Tests `nplm adapt`: which model it chooses, which words it uses for the choice, and the gains from a cache."""

import io
import json
import sys

import numpy as np
import pytest
from helpers import write_arpa

from configs import text as text_config
from nplm_jax.apps.adaptive import adaptation, dynamic_evaluation
from nplm_jax.apps.adaptive.ngram_cache import NgramCache
from nplm_jax.config import settings as config_lib
from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, loading

SECTIONS = 60  # each with three words that occur nowhere else, so a cache predicts better than any trained model


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp('adapt'), np.random.default_rng(0)
    sections = [rng.choice(40, 3, replace=False) for _ in range(SECTIONS)]
    text = '\n\n'.join(' '.join(f'w{i}' for i in rng.choice(words, 30)) for words in sections)
    (root / 'text').write_text(text)
    config = text_config.get_config()
    config.corpus.path, config.corpus.tokens, config.corpus.min_count = str(root / 'text'), 'whitespace', 1
    config.train.epochs, config.train.batch_size, config.model.m, config.model.h = 4, 32, 4, 5
    experiment.run(config, root / 'network')
    config = config_lib.override(config, {'model.family': 'add_delta', 'model.n': 2})
    experiment.run(config, root / 'counts')
    return root


def test_each_way_to_adapt_is_a_row_and_a_cache_learns_what_repeats(folders, tmp_path, nplm_command):
    runs = [folders / 'network', folders / 'counts']
    (output,), _ = nplm_command('adapt', *runs, '--tune_words=100', '--json', f'--output={tmp_path}/a.json')
    rows = {row['name']: row for row in json.loads(output)['rows']}
    assert list(rows) == [
        'network',
        'network + n-gram cache',
        'network + neural cache',
        'network, dynamic evaluation',
        'network, dynamic evaluation + caches',
        'counts',
        'counts + n-gram cache',
        'all mixed',
        'all mixed, adapted',
    ]
    for name in ('network', 'counts'):
        recorded = json.loads((folders / name / 'results.json').read_text())['perplexity']
        assert rows[name]['test'] == pytest.approx(recorded['test'], rel=1e-5)
        assert rows[f'{name} + n-gram cache']['test'] < 0.7 * rows[name]['test']
    assert rows['network, dynamic evaluation']['test'] < rows['network']['test']
    assert set(rows['network, dynamic evaluation']['values']) == {'rate', 'decay'}
    assert set(rows['all mixed, adapted']['weights']) == {'network', 'counts', 'n-gram cache', 'network: neural cache'}
    written = json.loads((tmp_path / 'a.json').read_text())
    assert written['rows'] == list(rows.values())
    digests = [catalog.digest(run) for run in runs]
    assert [(model['name'], model['digest']) for model in written['models']] == list(
        zip(('network', 'counts'), digests)
    )
    assert all(model['versions'] == written['versions'] for model in written['models'])


def test_dynamic_evaluation_reads_the_test_words_after_the_validation_words(folders, nplm_command):
    (output,), _ = nplm_command('adapt', folders / 'network', '--methods=dynamic', '--tune_words=100', '--json')
    row = json.loads(output)['rows'][1]
    loaded = experiment.load(folders / 'network')
    settings, model = loaded.settings, loaded.model
    data, segment = loading.load_dataset(settings), adaptation.SEGMENT
    measured = data.tokens_T, data.train, segment, adaptation.NUM_SEGMENTS
    rms = dynamic_evaluation.root_mean_square_gradients(model, *measured)
    adapted = dynamic_evaluation.DynamicEvaluation(
        model, rms, **row['values'], segment=segment, anchor_rate=adaptation.ANCHOR_RATE
    )
    log_p_T = adapted.score(data.tokens_T, Span(data.valid.start, data.test.stop))
    assert row['test'] == pytest.approx(np.exp(-log_p_T[data.test.start - data.valid.start :].mean()), rel=1e-5)
    anew = np.exp(-adapted.score(data.tokens_T, data.test).mean())
    assert abs(row['test'] - anew) > 1e-4 * anew


def test_a_row_is_the_mixture_with_weights_of_the_validation_words(folders, nplm_command):
    (output,), _ = nplm_command('adapt', folders / 'counts', '--methods=ngram_cache', '--json')
    row = json.loads(output)['rows'][1]
    loaded = experiment.load(folders / 'counts')
    settings, words, model = loaded.settings, loaded.vocabulary, loaded.model
    data = loading.load_dataset(settings)
    chosen = row['values']
    cache = NgramCache(len(words), int(chosen['order']), int(chosen['num_remembered']), chosen['concentration'])
    mixed = mixture.fit([model, cache], data.tokens_T, data.valid)
    assert row['test'] == pytest.approx(evaluate(mixed, data.tokens_T, data.test).perplexity, rel=1e-6)
    assert list(row['weights'].values()) == pytest.approx(mixed.weights_QxM[0].tolist())


def test_a_table_for_readers(folders, nplm_command):
    shown, progress = nplm_command('adapt', folders / 'counts', '--methods=ngram_cache')
    assert [line.split('|')[1].strip() for line in shown[2:]] == ['counts', 'counts + n-gram cache']
    assert progress == ['counts', 'n-gram cache: tuning', 'counts + n-gram cache']


@pytest.mark.parametrize(
    'flag,message',
    [
        ('--methods=cache', "--methods='cache':"),
        ('--methods=neural_cache,dynamic', "--methods='neural_cache,dynamic':"),
        ('--tune_words=0', '--tune_words=0:'),
        ('--tokens=words', "--tokens='words':"),
    ],
)
def test_one_clear_line_and_exit_code_two(flag, message, folders, nplm_command, lines):
    with pytest.raises(SystemExit) as end:
        nplm_command('adapt', folders / 'counts', flag)
    (line,) = lines()[1]
    assert end.value.code == 2 and line.startswith(message)


def test_the_first_fifth_of_a_text_chooses_and_the_rest_is_measured(folders, tmp_path, nplm_command):
    text = (folders / 'text').read_text()
    (tmp_path / 'mine.txt').write_text(text)
    (folders / 'text').rename(folders / 'moved')  # the corpus is not read
    try:
        runs = [folders / 'network', folders / 'counts']
        (output,), _ = nplm_command('adapt', *runs, f'--text={tmp_path}/mine.txt', '--tune_words=100', '--json')
    finally:
        (folders / 'moved').rename(folders / 'text')
    rows = {row['name']: row for row in json.loads(output)['rows']}
    assert len(rows) == 9 and rows['counts + n-gram cache']['test'] < 0.8 * rows['counts']['test']
    loaded = experiment.load(folders / 'counts')
    ids_T = loaded.vocabulary.encode(text.split()).astype(np.int32)
    tokens_T = np.append(loaded.vocabulary.encode(['<p>']).astype(np.int32), ids_T)
    border = 1 + len(ids_T) // 5
    for split, span in (('valid', Span(1, border)), ('test', Span(border, len(tokens_T)))):
        expected = evaluate(loaded.model, tokens_T, span).perplexity
        assert rows['counts'][split] == pytest.approx(expected, rel=1e-6)


def test_a_text_of_characters_is_measured_as_score_measures_it(folders, tmp_path, monkeypatch, nplm_command):
    config = text_config.get_config()
    config = config_lib.override(config, {'model.family': 'add_delta', 'model.n': 2, 'corpus.tokens': 'characters'})
    config.corpus.path = str(folders / 'text')
    experiment.run(config, tmp_path / 'characters')
    text = '\n\n' + (folders / 'text').read_text()[:1200].rstrip()
    (tmp_path / 'mine.txt').write_text(text)  # begins with empty lines and does not end with a newline
    flags = f'--text={tmp_path}/mine.txt', '--methods=ngram_cache', '--json'
    (output,), _ = nplm_command('adapt', tmp_path / 'characters', *flags)
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
    out, _ = nplm_command('score', tmp_path / 'characters', '--stream', '--json')
    log10_p_T = np.concatenate([line['log10_p'] for line in json.loads('\n'.join(out))['lines']])
    parts = np.split(log10_p_T, [len(log10_p_T) // 5])
    row = json.loads(output)['rows'][0]
    assert [row['valid'], row['test']] == pytest.approx([10 ** -part.mean() for part in parts], rel=1e-6)


def test_an_arpa_file_adapts_to_a_text(folders, tmp_path, nplm_command):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    (output,), _ = nplm_command(
        'adapt', tmp_path / 'lm.arpa', f'--text={folders}/text', '--methods=ngram_cache', '--json'
    )
    before, after = json.loads(output)['rows']
    assert after['test'] < 0.8 * before['test']


def test_a_text_that_is_too_short_is_refused(folders, tmp_path, nplm_command, lines):
    (tmp_path / 'short.txt').write_text('w1 w2 ' * 300)
    with pytest.raises(SystemExit):
        nplm_command('adapt', folders / 'counts', f'--text={tmp_path}/short.txt')
    assert lines()[1][-1].startswith('--text=')
