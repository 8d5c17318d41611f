"""The committed table of runs of several processes; with `-m ''` some of its rows are made again."""

import random
import shutil
import signal

import pytest

from tools.faults import disks, groups, job_faults, many, many_table, sweep_faults
from tools.faults.group_plans import chain

GOOD = dict(exit=[-9], others=[1, 1], lines=1, same=True)
rng = random.Random(7)


def test_a_hang_a_traceback_a_lost_checkpoint_and_other_bits_are_no_recovery():
    assert many_table.recovered(GOOD)
    for bad in (dict(others=[1, None]), dict(exit=[-6]), dict(lines=2), dict(kept=False), dict(same=False)):
        assert not many_table.recovered({**GOOD, **bad}), bad


def test_the_readmes_table_is_what_was_measured_and_all_came_back():
    table, records = many_table.make_table(), many_table.records()
    assert table in (many_table.RESULTS.parent / 'README.md').read_text()
    assert [record for record in records if not many_table.recovered(record)] == []
    assert len(records) >= 150


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
    return groups.unbroken(tmp_path_factory.mktemp('pair'), 2)


def check(records, number):
    assert len(records) == number and all(map(many_table.recovered, records)), records


def test_kill_and_sigterm_of_the_first_another_and_all(pair, tmp_path):
    hurts = [
        lambda *a: many.signalled(*a[:2], 'another', 'checkpoint', a[2], signal.SIGKILL),
        lambda *a: many.signalled(*a[:2], 'first', 'evaluation', a[2], signal.SIGKILL),
        lambda *a: many.signalled(*a[:2], 'another', 'step', a[2], signal.SIGTERM),
        lambda *a: many.signalled(*a[:2], 'all', 'step', a[2], signal.SIGTERM, 0.1),
        lambda *a: many.signalled(*a[:2], 'first', 'figure', a[2], signal.SIGKILL),
    ]
    records = chain(tmp_path / 'run', pair, hurts, rng)
    check(records, 5)
    assert records[0]['others_said'].startswith(many.LOST) and records[2]['exit'] == records[2]['others'] == [143]


def test_a_process_that_hangs_and_one_that_goes_on(pair, tmp_path):
    hurts = [
        lambda *a: many.stopped(*a[:2], 'another', 'step', a[2], 'hangs'),
        lambda *a: many.stopped(*a[:2], 'first', 'evaluation', a[2], 'goes on late'),
        lambda *a: many.stopped(*a[:2], 'another', 'step', a[2], 'goes on'),
    ]
    check(records := chain(tmp_path / 'run', pair, hurts, rng), 3)
    assert records[0]['others'] == [1] and records[2]['exit'] == records[2]['others'] == [0]


@pytest.mark.skipif(bool(disks.mounts()) or not shutil.which('ip'), reason='makes networks: needs root and iproute2')
def test_a_network_that_is_cut(pair, tmp_path):
    hurts = [
        lambda *a: many.cable(*a[:2], 'another', 'step', a[2], 'for good'),
        lambda *a: many.coordinator_cut(*a[:2], 'another', 'step', a[2], 'closed'),
        lambda *a: many.coordinator_cut(*a[:2], 'another', 'step', a[2], 'silent'),
    ]
    check(chain(tmp_path / 'run', pair, hurts, rng), 3)


@pytest.mark.parametrize('same_port', [False, True])
def test_two_groups_in_one_folder(pair, tmp_path, same_port):
    check(chain(tmp_path / 'run', pair, [lambda *a: many.two_groups(*a[:2], same_port, a[2])], rng), 1)


@pytest.mark.parametrize('how', ['text', 'config'])
def test_one_process_with_another_input(pair, tmp_path, how):
    check(records := chain(tmp_path / 'run', pair, [lambda *a: many.another_input(*a, how)], rng), 1)
    assert records[0]['exit'] == [2]


@pytest.mark.parametrize('fault,phase', [('kill -9', 'checkpoint'), ('SIGTERM', 'step')])
def test_a_vectorized_sweep(tmp_path, fault, phase):
    base = sweep_faults.unbroken(tmp_path / 'base')
    folder = tmp_path / 'sweep'
    assert sweep_faults.hurt(folder, base, fault, phase, rng)['exit'] == [-9 if fault == 'kill -9' else 143]
    assert sweep_faults.finished(folder, base)


def test_a_job_of_this_machine_whose_training_is_killed(tmp_path):
    base = job_faults.unbroken(tmp_path / 'base', 1)
    record = job_faults.hurt(tmp_path / 'run', base, 'local.1.0', 'kill -9', 'first')
    assert record['exit'] == [1] and record['lines'] == 1
    assert job_faults.finished(tmp_path / 'run', base, 'local.1.0')
