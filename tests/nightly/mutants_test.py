"""Tests the study of mutants: its changes, its exclusions, and the counts in its table."""

import pathlib

import pytest

from tools.mutants import table

SOURCE = '''"""Says a + b."""
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 1 + 1


@functools.cache
def add(a: int | None, b: int) -> int | None:
    if b > 2:
        raise ValueError(f'{b - 1}')
    require(a < b, 'a', a + 1, 'must be below 3')
    return a * b
'''


def test_only_what_the_program_computes_is_changed():
    sites = pytest.importorskip('tools.mutants.sites', exc_type=ImportError)
    changed = {mutant.start for mutant in sites._in_file(SOURCE, 'nplm_jax/room/file.py')}
    lines = SOURCE.splitlines()
    kept = {(number, lines[number - 1][column:].strip()) for number, column in changed}
    assert kept == {(11, 'b > 2:'), (11, '> 2:'), (11, '2:'), (13, "< b, 'a', a + 1, 'must be below 3')"), (14, '* b')}


def test_samples_of_a_seed_are_drawn_once_and_of_every_room(tmp_path):
    sites = pytest.importorskip('tools.mutants.sites', exc_type=ImportError)
    for room in ('one', 'two'):
        (tmp_path / 'nplm_jax' / room).mkdir(parents=True)
        (tmp_path / 'nplm_jax' / room / 'file.py').write_text('\n'.join(f'x{i} = {i} + y' for i in range(40)))
    paths = [f'nplm_jax/{room}/file.py' for room in ('one', 'two')]
    mutants = [m for path in paths for m in sites._in_file((tmp_path / path).read_text(), path)]
    small, places = sites.draw(mutants, tmp_path, 10, seed=1)
    large, _ = sites.draw(mutants, tmp_path, 20, seed=1)
    assert places == {'one': 80, 'two': 80} and len({mutant.site for mutant in large}) == 20
    assert [mutant.room for mutant in small] == ['one'] * 5 + ['two'] * 5
    assert set(small) <= set(large) and small != sites.draw(mutants, tmp_path, 10, seed=2)[0]
    source = (tmp_path / small[0].path).read_text()
    assert sum(a != b for a, b in zip(source.splitlines(), small[0].apply(source).splitlines())) == 1


def test_a_slow_test_is_superfluous_if_others_run_all_its_lines():
    covering = pytest.importorskip('tools.mutants.covering', exc_type=ImportError)
    lines = {'a.py': {'1': ['slow', 'quick'], '2': ['slow', 'other'], '3': ['other'], '4': ['needed']}}
    seconds = {'slow': 9.0, 'quick': 0.1, 'other': 8.0, 'needed': 7.0}
    measured = {'a_test.py': {'seconds': seconds, 'lines': lines}, 'b_test.py': {'seconds': {'b': 5.0}, 'lines': {}}}
    assert covering.superfluous(measured, 5.0) == [(9.0, 'slow'), (5.0, 'b')]


def test_the_table_leaves_out_equivalent_mutants():
    record = {
        'path': 'nplm_jax/data/a.py',
        'before': 'x + 1',
        'after': 'x - 1',
        'first': 'survived',
        'outcome': 'killed',
    }
    others = [{**record, 'after': 'x * 1', 'outcome': 'survived'}, {**record, 'first': 'timeout', 'outcome': 'timeout'}]
    equivalents = {('nplm_jax/data/a.py', 'x + 1', 'x * 1')}
    assert table.summary([record, *others], equivalents) == (3, 1, 1, 2)


def test_an_interval_holds_the_share_and_narrows_with_the_sample():
    assert table._estimate([(1.0, 9, 10)]) == (0.9, '57% to 100%')  # Agresti and Coull: 11 of 14
    assert table._estimate([(1.0, 90, 100)])[1] == '82% to 95%'
    assert table._estimate([(0.5, 45, 50), (0.5, 50, 50)])[0] == pytest.approx(0.95)


def test_each_equivalent_mutant_has_a_reason():
    path = pathlib.Path(table.HERE / 'equivalents.json')
    for entry in table.json.loads(path.read_text()):
        assert set(entry) == {'path', 'before', 'after', 'reason'} and len(entry['reason']) > 10


def test_the_records_of_a_sample_are_those_of_the_package_that_was_changed(tmp_path):
    study = pytest.importorskip('tools.mutants.study', exc_type=ImportError)
    (tmp_path / 'nplm_jax').mkdir()
    files = []
    for code in ('x = 1 + 2', 'y = 3 - 4\nx = 1 + 2'):  # the first occurrence of a number is another one
        (tmp_path / 'nplm_jax' / 'a.py').write_text(code)
        files.append(study._file(tmp_path, 1))
    assert files[0] != files[1] and study._file(tmp_path, 2) not in files
