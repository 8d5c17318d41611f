"""One or two of each fault, and with -m faults one in every phase; `python -m tests.faults --measure` does hundreds."""

import random

import pytest

from tests.faults import damage, disks, kills, network, runs
from tests.faults.__main__ import recovered

needs_mount = pytest.mark.skipif(bool(disks.mounts()), reason=disks.mounts())
rng = random.Random(5)


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    return runs.unbroken(tmp_path_factory.mktemp('unbroken'))


def test_killed_and_stopped_and_started_again(base, tmp_path):
    folder = tmp_path / 'run'
    hurt = [('kill -9', 'files'), ('kill -9', 'checkpoint'), ('SIGTERM', 'step'), ('kill -9', 'result')]
    records = [kills.once(folder, base, fault, phase, rng, imported=True) for fault, phase in hurt]
    same, _ = runs.finish(folder, base)
    assert same and all(record['kept'] for record in records)
    assert [record['exit'] for record in records] == [-9, -9, 143, -9]
    assert records[2]['said'].startswith('stopped after update ') and records[2]['redone'] == 0
    assert list(folder.glob('.*.tmp')) == [] and list(folder.glob('checkpoints/*tmp*')) == []


@needs_mount
@pytest.mark.parametrize('phase,visit', [('checkpoint', 4)])
def test_a_full_disk_is_one_line_and_costs_nothing(base, tmp_path, phase, visit):
    record = disks.full(tmp_path / 'disk', base, phase, visit)
    assert recovered(record) and record['exit'] == 1 and 'No space left on device' in record['said'], record


@needs_mount
def test_a_folder_that_cannot_be_written_is_one_line(base, tmp_path):
    record = disks.unwritable(tmp_path / 'run', base, 'step', imported=True)
    assert recovered(record) and record['exit'] == 2 and 'cannot be written (Read-only' in record['said'], record


@pytest.mark.parametrize('how', [damage.cut, damage.flip])
def test_a_damaged_checkpoint_is_not_used(base, tmp_path, how):
    record = damage.checkpoint(tmp_path / 'run', base, how, rng, imported=True)
    assert recovered(record), record


def test_half_a_line_of_metrics(base, tmp_path):
    assert recovered(record := damage.metrics(tmp_path / 'run', base, rng, imported=True)), record


def test_two_starts_at_once(base, tmp_path):
    record = kills.two(tmp_path / 'run', base, imported=True)
    assert recovered(record) and record['said'].endswith('another process is using it; wait, or give another folder')


def test_a_clock_that_jumps_back(base, tmp_path):
    assert recovered(record := kills.clock(tmp_path / 'run', base, 'step', imported=True)), record


@pytest.mark.parametrize('fault', ['download cut'])
def test_a_download_that_fails_is_tried_again(tmp_path, fault):
    if (data := network.archive()) is None:
        pytest.skip('serves Brown from this machine, which has none')
    record = network.broken(tmp_path / 'here', fault, data)
    assert recovered(record) and record['exit'] == 2, record
