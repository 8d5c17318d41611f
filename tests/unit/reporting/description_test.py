"""What the first lines of a run and `nplm compare` say of a model: only what its family reads."""

import subprocess
import sys

import pytest

from configs import sentences
from nplm_jax.config import parts, plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import PARTS
from nplm_jax.reporting import catalog, description, run_table
from nplm_jax.runs import experiment


def describe(**values):
    return description.describe_model(config_lib.from_config({f'model.{key}': x for key, x in values.items()}).model)


@pytest.mark.parametrize(
    'values, said',
    [
        ({'family': 'nplm', 'n': 5, 'm': 60, 'h': 0, 'direct': True}, 'nplm n=5 m=60 h=0 direct=True'),
        ({'family': 'nplm', 'n': 5, 'm': 60, 'h': 50}, 'nplm n=5 m=60 h=50'),
        ({'family': 'lstm', 'm': 200, 'layers': 2}, 'lstm m=200 h=200 layers=2'),
        ({'family': 'modified_kneser_ney', 'n': 4}, 'modified_kneser_ney n=4'),
        ({'family': 'arpa', 'n': 5}, 'arpa n=5'),
        ({'family': 'of_another_version', 'n': 4}, 'of_another_version n=4'),
    ],
)
def test_a_model_is_described_by_the_keys_that_its_family_reads(values, said):
    assert describe(**values) == said


@pytest.mark.parametrize('family', PARTS['model.family'].paths)
def test_a_listing_knows_which_keys_of_the_shape_a_family_reads(family):
    settings = config_lib.from_config({'model.family': family, 'model.n': 4, 'model.layers': 3, 'model.direct': True})
    read = parts.readers(settings)['model.family']
    assert description.describe_model(settings.model) == description.describe_model(settings.model, read)


def test_the_list_of_runs_imports_neither_jax_nor_a_model(tmp_path):
    experiment.run(parts.override(sentences.get_config(), {'model.family': 'add_delta'}), tmp_path / 'run')
    code = (
        'import sys; from nplm_jax.cli.__main__ import main; main(sys.argv[1:]); '
        "print([m for m in sys.modules if m.partition('.')[0] in ('jax', 'flax', 'optax', 'tokenizers')])"
    )
    for words in (['runs', tmp_path], ['runs', tmp_path, '--json'], ['compare', tmp_path / 'run', tmp_path / 'run']):
        said = subprocess.run([sys.executable, '-c', code, *words], capture_output=True, text=True, check=True).stdout
        assert 'add_delta n=' in said
        assert said.splitlines()[-1] == '[]'


def test_the_first_lines_of_a_plug_in_name_what_it_reads_and_a_listing_does_not_import_it(tmp_path, lines, monkeypatch):
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    config = parts.override(sentences.get_config(), {'model.family': 'bag_of_features:BagOfFeatures'})
    experiment.run(config, tmp_path / 'run')
    (said,) = [line for line in lines()[0] if line.startswith('Model: ')]
    shape = f'n={config.model.n} m={config.model.m}'
    assert said.startswith(f'Model: bag_of_features:BagOfFeatures {shape}, a window of ')
    assert said.endswith(' free parameters')
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    monkeypatch.delitem(sys.modules, 'bag_of_features')
    assert run_table.describe(catalog.read_run(tmp_path / 'run'))['model'] == 'bag_of_features:BagOfFeatures'
    assert 'bag_of_features' not in sys.modules
