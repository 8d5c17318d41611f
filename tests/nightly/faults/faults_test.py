"""Tests one or two faults of each kind, or one per phase with `-m ''`; `tools.faults --measure` tests hundreds."""

import random
import subprocess
import sys

import pytest

from tools.faults import damage, disks, kills, many, network, runs
from tools.faults.__main__ import HERE, make_table, recovered
from tools.faults.child import PHASES

needs_mount = pytest.mark.skipif(bool(disks.mounts()), reason=disks.mounts())
rng = random.Random(5)


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    return runs.unbroken(tmp_path_factory.mktemp('unbroken'))


def test_killed_and_stopped_and_started_again(base, tmp_path):
    folder = tmp_path / 'run'
    hurt = [('kill -9', 'files'), ('kill -9', 'checkpoint'), ('SIGTERM', 'step'), ('kill -9', 'result')]
    records = [kills.once(folder, base, fault, phase, rng, imported=True) for fault, phase in hurt]
    same, *_ = runs.finish(folder, base)
    assert same and all(record['kept'] for record in records)
    assert [record['exit'] for record in records] == [-9, -9, 143, -9]
    assert records[2]['said'].count('\n') == 0 and records[2]['redone'] == 0
    assert list(folder.glob('.*.tmp')) == [] and list(folder.glob('checkpoints/*tmp*')) == []


def test_sigterm_where_python_drops_what_it_raises_still_ends():
    code = (
        'import gc, os, signal, time\n'
        'from nplm_jax.cli import launch, launched\n'
        'def run(*_):\n'
        '    launched.raise_on_sigterm()\n'
        '    gc.callbacks.append(lambda *_: gc.callbacks.clear() or os.kill(os.getpid(), signal.SIGTERM))\n'
        '    gc.collect()\n'
        '    time.sleep(60)\n'
        'launched.run = run\n'
        "launch.main(['launch.py'])\n"
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=runs.ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 143 and done.stderr.count('\n') == 1, done.stderr


@needs_mount
@pytest.mark.parametrize('pages', [0, 6])
def test_a_full_disk_is_one_line_and_costs_nothing(base, tmp_path, pages):
    record = disks.full(tmp_path / 'disk', base, 'checkpoint', 3, imported=True, pages=pages)
    assert recovered(record) and record['exit'] == 1 and 'No space left on device' in record['said'], record


@needs_mount
def test_a_folder_that_cannot_be_written_is_one_line(base, tmp_path):
    record = disks.unwritable(tmp_path / 'run', base, 'step', imported=True)
    assert recovered(record) and record['exit'] == 2 and 'Read-only' in record['said'], record


@pytest.mark.parametrize('how', [damage.cut, damage.flip])
def test_a_damaged_checkpoint_is_not_used(base, tmp_path, how):
    record = damage.checkpoint(tmp_path / 'run', base, how, rng, imported=True)
    assert recovered(record), record


def test_half_a_line_of_metrics(base, tmp_path):
    assert recovered(record := damage.metrics(tmp_path / 'run', base, rng, imported=True)), record


def test_two_starts_at_once(base, tmp_path):
    record = kills.two(tmp_path / 'run', base, imported=True)
    assert recovered(record) and record['said'].startswith('--workdir=')


def test_a_clock_that_jumps_back(base, tmp_path):
    assert recovered(record := kills.clock(tmp_path / 'run', base, 'step', imported=True)), record


JAX = (
    'E1127 18:45:18.270714 10429 coordination_service_agent.cc:289] Polled an error.\n'
    'F1127 18:45:18.270861 10429 client.h:80] Terminating process because ... another task died; ...\n'
    'Additional GRPC error information:\n'
)
TRACE = '*** Check failure stack trace: ***\n    @     0x7f6211372104  LogMessage::Flush()\n'
OWN = f'{many.LOST}Gloo); resume all processes with: ...\n'


@pytest.mark.parametrize(
    'stderr,expected',
    [
        ('', ''),
        (OWN, OWN),
        (JAX + TRACE, many.BY_JAX),
        (JAX + OWN, OWN),
        (JAX + OWN + TRACE, OWN),
        (OWN + JAX + TRACE, OWN),
        ('a warning\n' + JAX, f'a warning\n{many.BY_JAX}'),
        (JAX + 'Traceback (most recent call last):\n', JAX + 'Traceback (most recent call last):\n'),
    ],
)
def test_the_message_of_jax_about_a_loss_counts_as_one_line_or_none_next_to_the_programs_own(stderr, expected):
    assert many.in_lines(stderr).strip() == expected.strip()


def serve(folder, fault):
    if (data := network.archive()) is None:
        pytest.skip('needs the Brown Corpus on this machine')
    return network.broken(folder, fault, data)


def test_a_download_that_is_cut_is_tried_again(tmp_path):
    assert recovered(record := serve(tmp_path / 'here', 'download cut')) and record['exit'] == 2, record


def test_the_readmes_table_is_what_was_measured_and_all_came_back():
    table = make_table()
    assert table in (HERE / 'README.md').read_text()
    rows = [[cell.strip() for cell in line.split('|')[1:-1]] for line in table.splitlines()[2:]]
    assert all(tried == recovered for _, _, tried, recovered, *_ in rows)
    assert sum(int(row[2]) for row in rows if row[0] in kills.SIGNALS) >= 200
    assert {row[1] for row in rows} >= set(PHASES)


@pytest.mark.parametrize('fault', kills.SIGNALS)
def test_hurt_once_in_every_phase(base, tmp_path, fault):
    records = kills.chain(tmp_path / 'run', base, fault, rng, imported=True)
    assert [r['phase'] for r in records if not recovered(r)] == [] and len(records) == len(PHASES), records


@needs_mount
@pytest.mark.parametrize('phase', PHASES)
def test_a_disk_that_is_full_from_each_phase_on(base, tmp_path, phase):
    assert recovered(record := disks.full(tmp_path / 'disk', base, phase)), record


@pytest.mark.parametrize('fault', network.FAULTS)
def test_each_fault_of_a_download(tmp_path, fault):
    assert recovered(record := serve(tmp_path / 'here', fault)), record


@pytest.mark.parametrize('damaged', [damage.every_checkpoint, damage.compiled])
def test_damage_to_all_there_is(base, tmp_path, damaged):
    assert recovered(record := damaged(tmp_path / 'run', base, rng, imported=True)), record
