"""Tests that updates compile for absent TPUs and an absent H100 and satisfy the checks of the study."""

import importlib.util

import pytest

from experiments.cost.accelerator import chips, compile

INSTALLED = importlib.util.find_spec('libtpu') is not None
pytestmark = pytest.mark.skipif(not INSTALLED, reason='needs experiments/cost/accelerator/requirements.txt')
if INSTALLED:
    # Before conftest.py counts the devices, which loads the compilers: without NVIDIA's libraries the one of CUDA is
    # left out for good unless JAX's platform is the CPU.
    chips.set_environment()

SMALL = {  # by row: programs of the same kind that compile six times as fast, with several blocks on each device
    'mlp1': {'corpus.max_vocabulary': 1000, 'output.block_size': 64},
    'default': {'corpus.max_vocabulary': 1000, 'output.samples': 50},
}


@pytest.mark.parametrize('topology,data,model', [('v5e-2x2', 4, 1), ('v5e-2x2', 2, 2), ('H100', 1, 1)])
@pytest.mark.parametrize('row', SMALL)
def test_an_update_compiles_fits_and_sends_no_more_than_by_hand(row, topology, data, model):
    entry = compile.compile_case(compile.Case(row, topology, data, model, 128 * data * model), SMALL[row])
    checks = entry['checks']
    assert entry['fits']
    assert bool(checks['products']) == (row == 'mlp1')  # a sampled loss has none over |V|
    assert not checks['float32_products'] and not checks['gathered_tables']
    assert bool(entry['collectives']) == (data * model > 1)
    assert checks['sent'] <= checks['by_hand']


def test_an_evaluation_compiles():
    assert compile.compile_case(compile.Case('mlp1', 'H100', 1, 1, 0))['fits']
