"""The precision that a processor is fast in: how it is chosen, and when it is measured."""

import itertools

import pytest

from nplm_jax.runs import precision_choice


@pytest.fixture(autouse=True)
def fresh_process():
    """Forgets what this process has read or measured."""
    precision_choice._of_processor.cache_clear()
    yield
    precision_choice._of_processor.cache_clear()


@pytest.mark.parametrize(
    'float32,bfloat16,expected',
    [
        ([2.0], [1.0], 'bfloat16'),
        ([1.2], [1.0], 'float32'),  # not clearly faster
        ([1.0], [2.0], 'float32'),
        ([2.0, 2.5], [9.0, 1.0], 'bfloat16'),  # disturbed in some rounds
        ([9.0, 1.0], [1.0, 1.5], 'float32'),
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
    assert precision_choice.measure(lambda: now) == expected


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Has the first measurement find bfloat16 faster and the later ones float32. Returns what was measured."""
    found = []

    def measure():
        found.append('float32' if found else 'bfloat16')
        return found[-1]

    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setattr(precision_choice, 'measure', measure)
    return found


def choose_in_another_process():
    precision_choice._of_processor.cache_clear()
    return precision_choice.native_precision('cpu')


def test_a_processor_is_measured_once_and_later_processes_have_the_same_precision(measured):
    assert [choose_in_another_process() for _ in range(3)] == ['bfloat16'] * 3
    assert measured == ['bfloat16']


def test_another_version_of_jaxlib_is_measured_anew(measured, monkeypatch):
    choose_in_another_process()
    monkeypatch.setattr(precision_choice.metadata, 'version', lambda package: '0.0.1')
    assert choose_in_another_process() == 'float32'


@pytest.mark.parametrize('content', [b'', b'auto', b'\xff', b'bfloat16 or not'])
def test_a_damaged_cache_is_written_anew(measured, tmp_path, content):
    choose_in_another_process()
    (path,) = (path for path in (tmp_path / 'cache' / 'precision').iterdir() if path.suffix != '.lock')
    path.write_bytes(content)
    assert choose_in_another_process() == 'float32' and path.read_text() == 'float32'


def test_a_cache_that_cannot_be_written_is_no_error(measured, tmp_path):
    (tmp_path / 'cache').write_text('a file')
    assert choose_in_another_process() == 'bfloat16'


def test_accelerators_are_not_measured(monkeypatch):
    monkeypatch.setattr(precision_choice, 'measure', None)
    assert precision_choice.native_precision('tpu') == precision_choice.native_precision('gpu') == 'bfloat16'
