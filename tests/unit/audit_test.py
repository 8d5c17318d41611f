"""The audit of committed results."""

import json

import pytest

from experiments import audit

KNOWN = frozenset({'a1b2c3d4e5f6' + '0' * 28})


@pytest.mark.parametrize(
    'recorded, faults',
    [
        ({'commit': 'a1b2c3d4e5f6', 'versions': {'jaxlib': '0.10.1'}}, []),
        ({'rows': [{'commit': 'a1b2c3d4e5f6', 'versions': {'jaxlib': '0.10.1'}}]}, []),
        ({'commit': 'a1b2c3d4e5f6-dirty', 'versions': {'jaxlib': '0.10.1'}}, ['local changes']),
        ({'commit': 'f00', 'versions': {'jaxlib': '0.10.2'}}, ['excluded jaxlib', 'unknown commit']),
        ({'commit': 'a1b2c3d4e5f6'}, ['no versions']),
        ({'perplexity': 1.0}, ['no versions']),
    ],
)
def test_a_result_has_the_faults_of_what_it_records(recorded, faults, tmp_path):
    path = tmp_path / 'study' / 'results' / 'seeds' / 'row.json'
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(recorded))
    [result] = audit.read_all(tmp_path)
    assert str(result.path) == 'study/results/seeds/row.json' and result.faults(KNOWN) == faults
