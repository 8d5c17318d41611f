"""Tests that small training runs of every kind reproduce the golden record up to rounding.

`python -m tools.golden.record --compare=tools/golden/golden.json` compares the results bit for bit.
"""

import copy
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import jax
import pytest
from helpers import numbers, others_nightly

from tools.golden import record

GOLDEN = json.loads(record.RECORD.read_text(encoding='utf-8'))
PERPLEXITY = {'float32': 1e-3, 'bfloat16': 2e-2}  # relative
WEIGHT = {'float32': 5e-3, 'bfloat16': 2e-2}  # absolute; the first also for log P


@pytest.fixture(autouse=True)
def _on_a_cpu() -> None:
    if jax.default_backend() != 'cpu':
        pytest.skip('the record was made on a CPU; float32 products on other devices may have fewer bits')


def near(values: Any, weight: float = WEIGHT['float32'], **within: float) -> Any:
    """Adds a tolerance to every float in nested values.

    Args:
        values: JSON values.
        weight: The absolute tolerance for the weights of a mixture.
        **within: The arguments `rel` and `abs` of pytest.approx.

    Returns:
        Nested values that compare equal to values within the tolerances.
    """
    if isinstance(values, dict):
        own = {'weights': {'rel': 0, 'abs': weight}}
        return {key: near(value, weight, **own.get(key, within)) for key, value in values.items()}
    if isinstance(values, list):
        return [near(value, weight, **within) for value in values]
    return pytest.approx(values, **within) if isinstance(values, float) else values


def check(found: Mapping[str, Any], recorded: Mapping[str, Any], precision: str = 'float32') -> None:
    """Checks that the new record of a case is close to the earlier record.

    Args:
        found: The new record.
        recorded: The earlier record.
        precision: The precision of products over |V| in training.
    """
    exact = ('vocabulary', 'words', 'impossible_words', 'updates')
    assert {key: found.get(key) for key in exact} == {key: recorded.get(key) for key in exact}
    assert found.keys() == recorded.keys()
    for key in ('perplexity', 'mixture', 'metrics'):
        assert found.get(key) == near(recorded.get(key), WEIGHT[precision], rel=PERPLEXITY[precision], abs=0)
    assert [a[:2] for a in found.get('arrays', [])] == [a[:2] for a in recorded.get('arrays', [])]
    if 'next_word' in recorded:
        now, then = found['next_word'], recorded['next_word']
        assert now['all'][:2] == then['all'][:2]
        assert now['first'] == near(then['first'], rel=0, abs=WEIGHT['float32'])


def test_the_record_is_of_these_cases_and_this_text() -> None:
    assert list(GOLDEN['cases']) == list(record.CASES)
    assert GOLDEN[record.BROWN]['updates'] == 6250
    assert GOLDEN['text_sha256'] == hashlib.sha256(record.make_text().encode()).hexdigest()
    assert {c['updates'] for c in GOLDEN['cases'].values() if 'updates' in c} == {record.UPDATES}


QUICK = {name for name, case in GOLDEN['cases'].items() if 'updates' not in case}  # count-based models
QUICK |= {'direct', 'sampled_direct', 'lstm', 'rowwise_adam'}


@pytest.mark.parametrize('case', others_nightly(record.CASES, QUICK))
def test_it_ends_where_it_did(case: str) -> None:
    recorded = copy.deepcopy(GOLDEN['cases'][case])
    del recorded['samples']
    found, _ = record.record(case, sampling=False)
    check(found, recorded, record.CASES[case].get('output.precision', 'float32'))


@pytest.mark.usefixtures('optimized')
@pytest.mark.parametrize('case', others_nightly(['direct', 'sampled_direct', 'lstm'], ()))
def test_it_ends_where_it_did_when_compiled_as_a_users_program_is(case: str) -> None:
    test_it_ends_where_it_did(case)


WRONG = {
    'a perplexity': ('direct', lambda c: c['perplexity'].update(test=c['perplexity']['test'] * 1.002)),
    'an infinite perplexity': ('backoff', lambda c: c['perplexity'].update(test=100.0)),
    'a line of metrics': ('lstm', lambda c: c['metrics'][2].update(valid_perplexity=1.0)),
    'no line of metrics': ('lstm', lambda c: c['metrics'].pop()),
    'a small weight': ('direct', lambda c: c['mixture']['by_frequency']['weights'].__setitem__(4, 0.011)),
    'a weight': ('direct', lambda c: c['mixture']['by_frequency']['weights'].__setitem__(0, 0.99)),
    'a shape': ('gru', lambda c: c['arrays'][0].__setitem__(0, [9])),
    'a dtype': ('gru', lambda c: c['arrays'][0].__setitem__(1, 'float16')),
    'an array': ('gru', lambda c: c['arrays'].pop()),
    'a log-probability': ('kneser_ney', lambda c: c['next_word']['first'][0].__setitem__(1, -3.0)),
    'impossible words': ('backoff', lambda c: c['impossible_words'].update(test=0)),
}


@pytest.mark.parametrize('what', WRONG)
def test_a_wrong_number_is_noticed(what: str) -> None:
    case, change = WRONG[what]
    recorded = GOLDEN['cases'][case]
    check(recorded, recorded)
    assert record.differences(recorded, recorded) == []
    change(changed := copy.deepcopy(recorded))
    with pytest.raises(AssertionError):
        check(changed, recorded)
    assert len(record.differences(changed, recorded)) == 1


def test_the_last_bit_is_noticed() -> None:
    recorded = GOLDEN['cases']['direct']
    changed = copy.deepcopy(recorded)
    changed['perplexity']['test'] = math.nextafter(recorded['perplexity']['test'], math.inf)
    changed['arrays'][0][2] = changed['arrays'][0][2][::-1]
    check(changed, recorded)
    arrays, perplexity = record.differences(changed, recorded)
    assert arrays.startswith('arrays: ') and arrays.endswith(': float32[8]')
    assert numbers(perplexity)[-3:] == ['1', '3', '1.5e-16']  # 1 of 3 values, by this relative difference
