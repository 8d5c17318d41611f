"""Tests that a model card agrees with results.json and that YAML readers accept its metadata."""

import json

import pytest
from helpers import numbers

from configs import brown, sentences, text
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import read_values, to_record
from nplm_jax.reporting import card, catalog
from nplm_jax.runs import experiment

RESULTS = {
    'name': 'brown-mlp9', 'corpus': 'brown', 'family': 'nplm', 'vocabulary': 16383,
    'words': {'train': 800000, 'valid': 200000, 'test': 183224},
    'perplexity': {'train': 213.6, 'valid': 277.815, 'test': 252.1118}, 'oov': {'valid': 0.0363, 'test': 0.0376},
    'sizes': {'test': {'tokens': 183224, 'words': 179873, 'characters': 871125, 'utf8_bytes': 871125}},
    'parameters': 1664733, 'seconds': 27.1, 'seed': 1, 'commit': 'abc', 'versions': {'jax': '0.10.2'},
    'device': '1 x cpu',
}  # fmt: skip


def make_run(tmp_path, config, **results):
    record = to_record(config_lib.to_dict(experiment.load_settings(config)))
    return catalog.Run(tmp_path, record, read_values(record), RESULTS | results)


def metadata(text):
    _, head, _ = text.split('---\n', 2)
    return {key: json.loads(value) for key, _, value in (line.partition(': ') for line in head.splitlines())}


def test_numbers_their_denominators_and_the_licence(tmp_path):
    made = card.make(make_run(tmp_path, brown.get_config('mlp9')))
    assert {'183,224', '179,873', '871,125', '800,000', '200,000', '3.6', '3.8'} <= set(numbers(made))
    assert '<rare>' in made and 'non-commercial' in made
    rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in made.splitlines() if line.startswith('|')]
    assert ['brown-mlp9', '213.6', '277.8', '252.1'] in rows
    assert all(row in rows for row in (['parameters', '1,664,733'], ['seconds', '27.1'], ['device', '1 x cpu']))
    assert "nplm_jax.load('brown-mlp9.nplm')" in made
    (entry,) = metadata(made)['model-index']
    (result,) = entry['results']
    assert result['metrics'][0] == {'type': 'perplexity', 'value': 252.11, 'name': 'test perplexity per word'}


def test_a_resumed_run_has_the_origins_of_all_its_processes(tmp_path):
    last = {key: RESULTS[key] for key in ('commit', 'versions', 'device')}
    origins = [{'versions': {}}, {**last, 'commit': 'def', 'versions': {'jax': '0.10.1'}}, last]
    made = card.make(make_run(tmp_path, brown.get_config('mlp9'), origins=origins))
    rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in made.splitlines() if line.startswith('|')]
    assert ['commit', 'not recorded; def; abc'] in rows and ['device', 'not recorded; 1 x cpu'] in rows
    assert ['versions', 'not recorded; jax 0.10.1; jax 0.10.2'] in rows


def test_the_card_of_a_folder_of_transformers(tmp_path):
    made = card.make(make_run(tmp_path, sentences.get_config()), hugging_face=True)
    assert 'AutoModelForCausalLM' in made and '.nplm' not in made
    assert metadata(made)['library_name'] == 'transformers'  # which Hugging Face shows as the library to load it with


def test_pieces_have_no_unknown_words_and_bits_per_byte(tmp_path):
    config = config_lib.override(text.get_config(), {'corpus.path': 'x', 'corpus.tokens': 'pieces'})
    bits = {key: {'valid': 1.5, 'test': 1.25} for key in catalog.PER_UNIT}
    made = card.make(make_run(tmp_path, config, oov={}, **bits))
    (line,) = (line for line in made.splitlines() if '1.250' in numbers(line))
    assert {'179,873', '183,224', '1.2', '1.250'} <= set(numbers(line)) and '<rare>' not in made


def test_the_tokens_of_lmplz_are_words(tmp_path):
    made = card.make(make_run(tmp_path, config_lib.override(text.get_config('lmplz'), {'corpus.path': 'x'})))
    (entry,) = metadata(made)['model-index']
    assert entry['results'][0]['metrics'][0]['name'] == 'test perplexity per word'
    assert '16,383 words' in made and 'out-of-vocabulary' in made


def test_an_infinite_perplexity_and_an_imported_model(tmp_path):
    infinite = RESULTS['perplexity'] | {'test': None}
    made = card.make(make_run(tmp_path, brown.get_config('mlp9'), perplexity=infinite))
    assert '| inf  ' in made and 'model-index' not in metadata(made)
    made = card.make(make_run(tmp_path, brown.get_config('kneser_ney_5'), imported='x.arpa', perplexity={}))
    assert '## Results' not in made and '## Training\n' not in made
    assert 'imported' in made and 'trained by' not in made and 'Brown' not in made and 'datasets' not in metadata(made)


@pytest.mark.parametrize('name', ['config.json', 'README.md', 'results.json'])
def test_a_packed_model_has_its_card(tmp_path, monkeypatch, name):
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    changes = {'train.epochs': 1, 'train.evaluate_every': 0}
    experiment.run(config_lib.override(sentences.get_config(), changes), tmp_path / 'run')
    cli.main(['pack', str(tmp_path / 'run'), f'--output={tmp_path}/x.nplm'])
    assert (catalog.expand_run(tmp_path / 'x.nplm') / name).is_file()
    assert card.make(catalog.read_run(tmp_path / 'run')).startswith('---\n')
