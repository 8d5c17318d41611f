"""Tests the tour: the model's numbers, its statements about n-grams, rejected models, and unfinished runs."""

import json
import shutil

import numpy as np
import pytest
from helpers import refuses

from configs import sentences
from nplm_jax.apps.explorer import tour
from nplm_jax.config import settings as config_lib
from nplm_jax.data.stream import RARE
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.outputs.softmax import Softmax
from nplm_jax.runs import experiment
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def shown(folders):
    return tour.Tour.load([str(folders / 'network'), str(folders / 'counts')])


@pytest.mark.parametrize('text', ['i love', 'i hate coffee and i love', 'milk', 'zzz love'])
def test_the_numbers_are_those_of_the_equations_in_float64(shown, text):
    words = shown.encode(text, '')
    answer = shown.show(words)
    params = {name: np.asarray(x, np.float64) for name, x in shown.snapshot.network.params.items()}
    N = shown.snapshot.network.network.body.reach
    ids_N = np.pad(shown.models.encode_prompt(words), (N, 0))[-N:]
    e_NxM = params['C_VxM'][ids_N]
    x_P = e_NxM[::-1].reshape(-1)
    a_K = np.tanh(params['d_K'] + params['H_KxP'] @ x_P)
    y_V = params['b_V'] + params['U_VxK'] @ a_K
    p_V = np.exp(y_V) / np.exp(y_V).sum()
    np.testing.assert_allclose([w['features'] for w in answer['words']], e_NxM, atol=6e-5)
    np.testing.assert_allclose(answer['hidden'], a_K, atol=6e-5)
    np.testing.assert_allclose(np.arctanh(a_K), params['d_K'] + np.sum(answer['drives'], 1), atol=1e-3)
    ids = [shown.models.vocabulary.find(row['word']) for row in answer['next']]
    np.testing.assert_allclose([row['score'] for row in answer['next']], y_V[ids], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([row['p'] for row in answer['next']], p_V[ids], rtol=1e-4)
    assert [row['p'] for row in answer['next']] == sorted((row['p'] for row in answer['next']), reverse=True)


def test_the_probabilities_are_those_of_every_other_command(shown):
    words = ['i', 'hate']
    ids = shown.models.encode_prompt(words)[None]
    for row in shown.show(words)['ngram']['words']:
        i = shown.models.vocabulary.find(row['word'])
        assert row['network'] == pytest.approx(np.exp(shown.snapshot.network.next_word(ids)[0, i]), rel=1e-4)
        assert row['p'] == pytest.approx(np.exp(shown.ngram[1].next_word(ids)[0, i]), rel=1e-4)


def test_an_ngram_that_reads_further_than_the_network_gets_the_whole_prompt(folders, tmp_path):
    config = config_lib.override(sentences.get_config(), {'model.n': 2})
    experiment.run(config, tmp_path / 'network')
    experiment.run(
        config_lib.override(config, {'model.family': 'modified_kneser_ney', 'model.n': 4}), tmp_path / 'counts'
    )
    shown = tour.Tour.load([str(tmp_path / 'network'), str(tmp_path / 'counts')])
    words = ['i', 'love']
    beside = shown.show(words)['ngram']
    p_V = np.exp(shown.ngram[1].next_word(shown.models.encode_prompt(words)[None])[0])
    assert [row['context'] for row in beside['orders'][-2:]] == ['i love', 'love']
    assert max(row['order'] for row in beside['words']) >= 3
    ids = [shown.models.vocabulary.find(row['word']) for row in beside['words']]
    np.testing.assert_allclose([row['p'] for row in beside['words']], p_V[ids], rtol=1e-4)


def test_unknown_words_are_shown_as_the_rare_symbol_and_the_note_names_them(shown):
    answer = shown.show(shown.encode('i zzz', ''))
    assert answer['words'][-1]['word'] == RARE and answer['note'].endswith('zzz')


def test_a_context_that_the_ngram_has_seen_and_one_that_it_has_not(shown):
    seen, unseen = (shown.show(words)['ngram'] for words in (['i', 'love'], ['coffee']))
    assert seen['orders'] == [{'context': 'love', 'followers': 1}]
    assert {row['order'] for row in seen['words']} == {1, 2}
    words_after = {row['word'] for row in seen['words'] if row['order'] == 2}
    assert len(words_after) == 1 and len(unseen['orders']) == 1


def test_a_unit_raises_the_words_of_its_largest_weights(shown):
    U_VxK, units = np.asarray(shown.snapshot.network.params['U_VxK']), shown.units()
    for sign, pick in (('positive', np.argmax), ('negative', np.argmin)):
        assert [words[0] for words in units[sign]] == shown.models.show(pick(U_VxK, 0))


@pytest.mark.parametrize(
    'text,message',
    [
        ('', "text='': must contain at least one word"),
        (' ', "text=' ':"),
        ('a ' * 300, 'must contain at most 500 characters'),
    ],
)
def test_an_impossible_context_is_named(shown, text, message):
    with refuses('text'):
        shown.encode(text, '')


@pytest.mark.parametrize('names', [['counts'], ['network', 'counts', 'counts'], ['network', 'network']])
def test_other_runs_are_refused_and_the_family_is_named(folders, names):
    with refuses('--tour'):
        tour.Tour.load([str(folders / name) for name in names])


def test_an_output_layer_whose_rows_are_not_words_is_refused(tmp_path):
    changes = {'output.kind': 'tree', 'train.epochs': 1, 'train.evaluate_every': 0}
    experiment.run(config_lib.override(sentences.get_config(), changes), tmp_path / 'run')
    with pytest.raises(BadInput) as caught:
        tour.Tour.load([str(tmp_path / 'run')])
    assert (caught.value.key, caught.value.value) == ('output.kind', 'tree')


def test_an_output_layer_with_scores_of_its_own_is_refused(folders, monkeypatch):
    monkeypatch.setattr(FullSoftmax, 'log_probabilities', lambda *args: Softmax.log_probabilities(*args) / 2)
    with refuses('output.kind'):
        tour.Tour.load([str(folders / 'network')])


def test_a_run_in_training_is_watched_and_a_newer_checkpoint_is_taken(folders, tmp_path):
    folder = tmp_path / 'run'
    shutil.copytree(folders / 'network', folder)
    (folder / 'results.json').unlink()
    watched = tour.Tour.load([str(folder)])
    training = watched.training()
    rows = [json.loads(line) for line in (folder / 'metrics.jsonl').read_text().splitlines()]
    assert not training['finished'] and training['step'] == rows[-1]['step']
    assert training['valid'] == [[r['step'], r['valid_perplexity']] for r in rows if 'valid_perplexity' in r]
    first = watched.snapshot
    watched.reload()
    assert watched.snapshot is first  # there is no newer checkpoint
    watched.snapshot = first._replace(step=first.step - 1)
    watched.reload()
    assert watched.snapshot.step == first.step
    assert np.array_equal(watched.snapshot.network.params['C_VxM'], first.network.params['C_VxM'])
    (folder / 'checkpoints' / str(first.step + 1)).mkdir()  # has no parameters yet
    (folder / 'checkpoints' / '²').mkdir()
    watched.reload()
    assert watched.show(['i'])['step'] == first.step


@pytest.mark.parametrize('evaluate_every,best_step', [(60, 0), (21, 21)])
def test_the_step_is_that_of_the_parameters_that_are_shown(tmp_path, evaluate_every, best_step):
    keys = {'train.epochs': 30, 'train.checkpoint_every': 30, 'train.evaluate_every': evaluate_every}
    folder = tmp_path / 'run'
    experiment.run(config_lib.override(sentences.get_config(), keys), folder)
    (folder / 'results.json').unlink()
    kept = folder / 'checkpoints' / '30'
    for path in set(kept.parent.glob('*')) - {kept}:
        shutil.rmtree(path)
    watched = tour.Tour.load([str(folder)])
    answer = watched.show(['i'])
    assert (answer['step'], answer['best_step'], watched.units()['step']) == (30, best_step, 30)


def test_a_long_log_is_thinned_to_its_newest_point(folders, tmp_path):
    folder = tmp_path / 'run'
    shutil.copytree(folders / 'network', folder)
    rows = [{'step': i, 'epoch': i, 'seconds': i, 'train_perplexity': 2.0} for i in range(1, 1001)]
    (folder / 'metrics.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
    watched = tour.Tour.load([str(folder)])
    assert [step for step, _ in watched.training()['train']] == list(range(1, 1001, 3))
