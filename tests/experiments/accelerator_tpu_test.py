"""Updates compile for TPUs and for an H100 that are not here, and do what they should."""

import importlib.util

import pytest

from experiments.accelerator import compile

pytestmark = [
    pytest.mark.tpu,
    pytest.mark.skipif(
        importlib.util.find_spec('libtpu') is None, reason='needs experiments/accelerator/requirements.txt'
    ),
]


@pytest.mark.parametrize('topology,data,model', [('v5e-2x2', 4, 1), ('v5e-2x2', 2, 2), ('H100', 1, 1)])
@pytest.mark.parametrize('row', ['mlp1', 'default'])
def test_an_update_compiles_fits_and_sends_no_more_than_by_hand(row, topology, data, model):
    entry = compile.compile_case(compile.Case(row, topology, data, model, 1024 * data * model))
    checks = entry['checks']
    assert entry['fits'] and entry['flops'] > 0 and entry['bytes'] > 0
    assert not checks['float32_products'] and not checks['gathered_tables']
    assert bool(entry['collectives']) == (data * model > 1)
    assert checks['sent'] <= checks['by_hand']


def test_an_evaluation_compiles():
    assert compile.compile_case(compile.Case('mlp1', 'H100', 1, 1, 0))['fits']
