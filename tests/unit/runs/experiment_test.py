"""Tests every family from a config to results.json and a loadable model."""

import json
import math
import shutil
import warnings

import numpy as np
import pytest
from helpers import fitted, numbers, refuses, register

from configs import sentences, text
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import NGRAM_MODELS
from nplm_jax.config.settings import from_config
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture import CachedScores
from nplm_jax.ngram import interpolated, kneser_ney
from nplm_jax.reporting import card, catalog
from nplm_jax.runs import experiment, loading
from nplm_jax.utils.errors import BadInput


def config(family, n=3):
    return fitted(sentences.get_config(), {'model.family': family, 'model.n': n, 'model.classes': 4})


def test_an_experiment_on_the_first_words_is_not_resumed_with_others(tmp_path):
    (tmp_path / 'text').write_text(' '.join(f'w{i * i % 11}' for i in range(200)) + ' late' * 200)
    changes = {
        'corpus.path': str(tmp_path / 'text'),
        'model.family': 'add_delta',
        'model.n': 2,
        'corpus.boundary_tokens': False,
    }
    shorter = config_lib.override(text.get_config(), {**changes, 'corpus.words': 100, 'corpus.train': 320.0})
    results = experiment.run(shorter, tmp_path / 'run')
    assert results['words'] == {'train': 80, 'valid': 0.1 * 100, 'test': 10}
    run = catalog.read_run(tmp_path / 'run')
    assert '100' in numbers(card.make(run))
    assert 'late' not in experiment.load(tmp_path / 'run').vocabulary.ids
    longer = config_lib.override(shorter, {'corpus.words': 200})
    with refuses('--workdir'):
        experiment.run(longer, tmp_path / 'run')


@pytest.mark.parametrize('family', [family for family in NGRAM_MODELS if family != 'arpa'])
def test_a_count_based_run_writes_its_results_and_is_loaded_with_the_same_perplexity(family, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', kneser_ney.DiscountWarning)  # too little text
        results = experiment.run(config(family), tmp_path / 'run')
        loaded = experiment.load(tmp_path / 'run')
        vocabulary, model = loaded.vocabulary, loaded.model
    assert results == json.loads((tmp_path / 'run' / 'results.json').read_text())
    assert results['family'] == family and results['words_per_second'] > 0 and 'mixture' not in results
    assert results['impossible_words'] == {'train': 0, 'valid': 0, 'test': 0}
    assert 1 < results['perplexity']['test'] < 10  # below |V|, the perplexity of the uniform distribution
    data = loading.load_dataset(from_config(config(family)))
    assert evaluate(model, data.tokens_T, data.test).perplexity == pytest.approx(
        results['perplexity']['test'], rel=1e-6
    )
    log_p = model.next_word(vocabulary.encode(['i', 'love'])[None])[0]
    assert np.exp(log_p.astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)
    assert (tmp_path / 'run' / 'classes.txt').exists() == (family == 'classes')


def test_a_run_of_a_family_that_is_not_installed_names_it_and_those_that_are(tmp_path, monkeypatch):
    register(monkeypatch, 'model.family', 'bag', 'bag_of_features:BagOfFeatures')
    experiment.run(config('bag'), tmp_path / 'run')
    monkeypatch.undo()
    with refuses('run/config.json') as caught:
        experiment.load(tmp_path / 'run')
    assert "'bag'" in caught.value.problem and 'mogrifier' in caught.value.problem


def test_a_count_based_run_is_loaded_without_its_text_but_not_without_its_model_which_training_makes_again(tmp_path):
    (tmp_path / 'text').write_text('a b c a b c a b c a b c a c b')
    c = config('add_delta', 2)
    c.corpus.name, c.corpus.path = 'text', str(tmp_path / 'text')
    experiment.run(c, tmp_path / 'run')
    (tmp_path / 'text').rename(tmp_path / 'gone')
    loaded = experiment.load(tmp_path / 'run')
    words, model = loaded.vocabulary, loaded.model
    (tmp_path / 'run' / 'model.safetensors').unlink()
    (tmp_path / 'gone').rename(tmp_path / 'text')
    with refuses('run/model.safetensors'):
        experiment.load(tmp_path / 'run')
    experiment.run(c, tmp_path / 'run')
    contexts = np.arange(len(words))[:, None]
    again = experiment.load(tmp_path / 'run').model
    np.testing.assert_array_equal(model.next_word(contexts), again.next_word(contexts))
    (tmp_path / 'run' / 'model.safetensors').unlink()
    (tmp_path / 'text').write_text('a b c a b c a b c a b c a c d')
    with refuses('--workdir'):
        experiment.run(c, tmp_path / 'run')


def test_the_interpolated_model_is_a_trigram():
    with refuses('model.n'):
        experiment.load_settings(config('interpolated', 4))


def test_an_order_that_no_text_needs_is_refused():
    with refuses('model.n'):
        experiment.load_settings(config('kneser_ney', 101))


def test_an_infinite_perplexity_says_how_many_words_were_hit(tmp_path, lines):
    (tmp_path / 'text').write_text('a b c a b c a b c a b c a c b')
    c = config('maximum_likelihood', 2)
    c.corpus.name, c.corpus.path, c.corpus.boundary_tokens = 'text', str(tmp_path / 'text'), False
    c.corpus.train, c.corpus.valid = 12.0, 2.0
    results = experiment.run(c, tmp_path / 'run')
    assert results['perplexity'] == {'train': pytest.approx(1), 'valid': None, 'test': None}  # null: infinite
    assert results['impossible_words'] == {'train': 0, 'valid': 1, 'test': 1}
    said = lines()[0]
    assert [line.split()[:2] for line in said[-2:]] == [['1', 'valid'], ['1', 'test']]
    assert '| inf' in said[-3]


def test_the_mixtures_of_a_network_are_the_papers_and_none_is_worse_on_validation(tmp_path):
    results = experiment.run(sentences.get_config(), tmp_path / 'run')
    loaded = experiment.load(tmp_path / 'run')
    settings, vocabulary, network = loaded.settings, loaded.vocabulary, loaded.model
    data = loading.load_dataset(settings)
    trigram = interpolated.fit(data.tokens_T, data.train, data.valid, len(vocabulary))
    half = -np.mean(
        np.logaddexp(*(m.score(data.tokens_T, data.test).astype(np.float64) for m in (network, trigram))) - math.log(2)
    )
    assert results['mixture']['fixed']['test'] == pytest.approx(math.exp(half), rel=1e-5)
    assert results['mixture']['fixed']['weights'] == [0.5]
    learned, by_frequency = results['mixture']['learned'], results['mixture']['by_frequency']
    assert learned['valid'] <= min(results['mixture']['fixed']['valid'], results['perplexity']['valid']) + 1e-3
    assert by_frequency['valid'] <= learned['valid'] + 1e-3
    assert len(by_frequency['weights']) == trigram.bins.num_bins


def test_a_network_is_not_loaded_before_its_first_validation(tmp_path):
    folder = tmp_path / 'run'
    keys = {'train.epochs': 30, 'train.checkpoint_every': 30, 'train.evaluate_every': 60}
    experiment.run(config_lib.override(sentences.get_config(), keys), folder)
    (folder / 'results.json').unlink()
    for path in set((folder / 'checkpoints').glob('*')) - {folder / 'checkpoints' / '30'}:
        shutil.rmtree(path)
    with refuses('run'):
        loading.load(folder)


def test_a_finished_network_is_not_read_from_an_earlier_checkpoint(tmp_path):
    folder = tmp_path / 'run'
    keys = {'train.epochs': 30, 'train.checkpoint_every': 30, 'train.evaluate_every': 30}
    results = experiment.run(config_lib.override(sentences.get_config(), keys), folder)
    next((folder / 'checkpoints' / '90' / 'progress').iterdir()).write_text('{"seconds": ')
    with refuses('checkpoints'):
        loading.load(folder)
    (folder / 'results.json').unlink()  # as the message says
    again = experiment.run(config_lib.override(sentences.get_config(), keys), folder)
    assert again['perplexity'] == results['perplexity']
    loading.load(folder)


def test_cached_scores_ask_the_model_once(tmp_path):
    class Counting(LanguageModel):
        calls, n, vocabulary_size, vocabulary, next_word = 0, None, 13, None, None

        def score_span(self, tokens_T, span):
            self.calls += 1
            return np.arange(len(span), dtype=np.float32)

    model = Counting()
    cached = CachedScores(model)
    data = loading.load_dataset(from_config(sentences.get_config()))
    for _ in range(3):
        np.testing.assert_array_equal(cached.score(data.tokens_T, data.test), np.arange(13))
    assert model.calls == 1


@pytest.mark.parametrize(
    'folder, message',
    [
        ('x' * 256, f"--workdir='{'x' * 256}': is too long for a path"),
        ('a\0b', r"--workdir='a\\x00b': embedded null byte"),
        ('gs://bucket/run', "--workdir='gs:/bucket/run': must be a local folder, not a URL"),
    ],
)
def test_a_path_that_cannot_be_a_folder_is_one_line(folder, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses('--workdir'):
        experiment.run(config('nplm'), folder)
    with pytest.raises(BadInput):
        loading.load(folder)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize('path', ['x' * 256, '~nosuchuser/run', 'a\0b'])
def test_a_path_that_cannot_be_a_run_is_named_as_one(path):
    with refuses('RUN'):
        loading.load(path)


def test_a_folder_whose_name_begins_like_a_bucket_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = experiment.run(config('nplm'), 'gs:x')
    assert catalog.finished(tmp_path / 'gs:x') == results and any((tmp_path / 'gs:x' / 'tensorboard').iterdir())
    loading.load('gs:x')


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
def test_words_of_the_test_text_alone_are_unknown_words_of_an_own_text(tmp_path, capsys):
    (tmp_path / 'text').write_text('the dog ran . ' * 40 + 'the cat ran . ' * 5)
    config = text.get_config('modified_kneser_ney_3')
    config.corpus.path, config.corpus.min_count = str(tmp_path / 'text'), 1
    results = experiment.run(config, tmp_path / 'run')
    assert results['vocabulary'] == 7 and results['oov']['test'] > 0.2
    assert math.isfinite(results['perplexity']['test'])
    assert any(
        '<rare>' in line and 'increase corpus.min_count' in line for line in capsys.readouterr().out.splitlines()
    )
