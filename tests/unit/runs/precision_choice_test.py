"""Tests how the fast precision of a processor is chosen, and when it is measured."""

import itertools

import pytest

from nplm_jax.runs import precision_choice
from nplm_jax.runs.precision_choice import measure  # conftest.py replaces the attribute of the module


@pytest.mark.parametrize(
    'float32,bfloat16,expected',
    [
        ([2.0], [1.0], 'bfloat16'),
        ([1.2], [1.0], 'float32'),  # not clearly faster
        ([1.0], [2.0], 'float32'),
        ([2.0, 2.5, 2.0], [9.0, 1.0, 1.0], 'bfloat16'),  # with disturbances in some rounds
        ([9.0, 1.0, 1.0], [1.0, 1.5, 1.0], 'float32'),
        ([7.0] * 7, [8.0] * 6 + [4.0], 'float32'),  # another thread is busy until the last product
        ([3.0] + [6.0] * 6, [2.8] * 7, 'bfloat16'),  # or from the first product on
    ],
)
def test_bfloat16_is_chosen_only_if_it_is_clearly_faster(monkeypatch, float32, bfloat16, expected):
    now = 0.0
    seconds = {'float32': itertools.cycle(float32), 'bfloat16': itertools.cycle(bfloat16)}

    def product(precision):
        def multiply():
            nonlocal now
            now += next(seconds[precision])

        return multiply

    monkeypatch.setattr(precision_choice, '_product', product)
    assert measure(lambda: now) == expected


def test_a_processor_is_measured_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(precision_choice, '_product', lambda precision: compiled.append(precision) or (lambda: None))
    monkeypatch.setattr(precision_choice, 'measure', measure)
    measure.cache_clear()
    assert len({precision_choice.native_precision('cpu') for _ in range(3)}) == 1
    assert compiled == ['float32', 'bfloat16']
    measure.cache_clear()


def test_accelerators_are_not_measured(monkeypatch):
    monkeypatch.setattr(precision_choice, 'measure', None)
    assert precision_choice.native_precision('tpu') == precision_choice.native_precision('gpu') == 'bfloat16'
