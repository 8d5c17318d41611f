"""What the first lines of a run and `nplm compare` say of a model: only what its family reads."""

import sys

import pytest

from configs import sentences
from nplm_jax import config as config_lib
from nplm_jax.cli import run_table
from nplm_jax.models.registry import BODIES
from nplm_jax.runs import catalog, experiment, keys
from nplm_jax.utils import plugins


def describe(**values):
    return keys.describe_model(config_lib.from_config({f'model.{key}': x for key, x in values.items()}).model)


@pytest.mark.quick
@pytest.mark.parametrize(
    'values, said',
    [
        ({'family': 'nplm', 'n': 5, 'm': 60, 'h': 0, 'direct': True}, 'nplm n=5 m=60 h=0 direct=True'),
        ({'family': 'nplm', 'n': 5, 'm': 60, 'h': 50}, 'nplm n=5 m=60 h=50'),
        ({'family': 'lstm', 'm': 200, 'layers': 2}, 'lstm m=200 h=200 layers=2'),
        ({'family': 'modified_kneser_ney', 'n': 4}, 'modified_kneser_ney n=4'),
        ({'family': 'of_another_version'}, 'of_another_version'),
    ],
)
def test_a_model_is_described_by_the_keys_that_its_family_reads(values, said):
    assert describe(**values) == said


@pytest.mark.parametrize('family', BODIES)
def test_no_network_is_described_by_a_key_that_it_does_not_read(family):
    shown = describe(family=family, n=4, layers=3, direct=True).split()[1:]
    assert {f'model.{pair.partition("=")[0]}' for pair in shown} <= BODIES[family].keys


def test_the_first_lines_of_a_plug_in_name_what_it_reads_and_a_listing_does_not_import_it(tmp_path, lines, monkeypatch):
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    config = keys.override(sentences.get_config(), {'model.family': 'bag_of_features:BagOfFeatures'})
    experiment.run(config, tmp_path / 'run')
    (said,) = [line for line in lines()[0] if line.startswith('Model: ')]
    shape = f'n={config.model.n} m={config.model.m}'
    assert said.startswith(f'Model: bag_of_features:BagOfFeatures {shape}, a window of ')
    assert said.endswith(' free parameters')
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    monkeypatch.delitem(sys.modules, 'bag_of_features')
    assert run_table.describe(catalog.read_run(tmp_path / 'run'))['model'] == 'bag_of_features:BagOfFeatures'
    assert 'bag_of_features' not in sys.modules
