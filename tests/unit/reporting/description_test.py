"""Tests the one-line description of a model, whose shape is derived from its keys."""

import subprocess
import sys

import pytest

from configs import sentences
from nplm_jax.config import plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.reporting import catalog, description, run_table
from nplm_jax.runs import experiment


def describe(**values):
    return description.describe_model({f'model.{key}': value for key, value in values.items()})


@pytest.mark.parametrize(
    'values, said',
    [
        ({'family': 'nplm', 'n': 5, 'm': 60, 'h': 0, 'direct': True}, 'nplm n=5 m=60 h=0 direct=True'),
        ({'family': 'nplm', 'n': 5, 'm': 60, 'h': 50}, 'nplm n=5 m=60 h=50'),
        ({'family': 'lstm', 'm': 200, 'h': 150, 'layers': 2, 'dropout': 0.1}, 'lstm m=200 h=150 layers=2'),
        ({'family': 'a.b:C', 'm': 200, 'width': 2.5}, 'a.b:C m=200 width=2.5'),
        ({'family': 'modified_kneser_ney', 'n': 4}, 'modified_kneser_ney n=4'),
        ({'family': 'arpa', 'n': 5}, 'arpa n=5'),
        ({'family': 'of_another_version', 'n': 4}, 'of_another_version n=4'),
    ],
)
def test_a_model_is_described_by_the_keys_of_its_shape_and_a_plug_in_by_all_of_its_keys(values, said):
    assert describe(**values) == said


@pytest.mark.parametrize(
    'family,said',
    [('nplm', 'n=6 m=100 h=200'), ('transformer', 'm=100 h=200'), ('kneser_ney', 'n=5'), ('classes', 'n=3')],
)
def test_the_default_of_a_family_is_described_by_its_own_keys(family, said):
    values = config_lib.to_flat(config_lib.from_config({'model.family': family}))
    assert description.describe_model(values) == f'{family} {said}'


def test_the_list_of_runs_imports_neither_jax_nor_a_model(tmp_path):
    experiment.run(config_lib.override(sentences.get_config(), {'model.family': 'add_delta'}), tmp_path / 'run')
    code = (
        'import sys; from nplm_jax.cli.__main__ import main; main(sys.argv[1:]); '
        "print([m for m in sys.modules if m.partition('.')[0] in ('jax', 'flax', 'optax', 'tokenizers')])"
    )
    for words in (['runs', tmp_path], ['runs', tmp_path, '--json']):
        said = subprocess.run([sys.executable, '-c', code, *words], capture_output=True, text=True, check=True).stdout
        assert 'add_delta n=' in said
        assert said.splitlines()[-1] == '[]'


def test_the_first_lines_of_a_plug_in_and_a_listing_name_its_keys_and_the_listing_does_not_import_it(
    tmp_path, lines, monkeypatch
):
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    config = config_lib.override(sentences.get_config(), {'model.family': 'bag_of_features:BagOfFeatures'})
    experiment.run(config, tmp_path / 'run')
    (said,) = [line for line in lines()[0] if line.startswith('Model: ')]
    shape = f'n={config.model.n} m={config.model.m}'
    assert said.startswith(f'Model: bag_of_features:BagOfFeatures {shape}, a window of ')
    assert said.endswith(' free parameters')
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    monkeypatch.delitem(sys.modules, 'bag_of_features')
    assert run_table.describe(catalog.read_run(tmp_path / 'run'))['model'] == f'bag_of_features:BagOfFeatures {shape}'
    assert 'bag_of_features' not in sys.modules


def test_a_value_that_would_act_on_a_terminal_is_escaped():
    shown = describe(family='mine:Net', word='\x1b[31mred', size=0.5)
    assert shown == "mine:Net word='\\x1b[31mred' size=0.5"
