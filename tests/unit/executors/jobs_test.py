"""Tests that a task's folder records that the task is done, and that finished tasks are not repeated."""

import functools
import json

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.executors import jobs
from nplm_jax.executors.jobs import Job
from nplm_jax.executors.workers import Processes

HERE = Processes(1)


def square(task, folder):
    (folder / 'square').write_text(str(task**2))


def read(folders):
    return [int((folder / 'square').read_text()) for folder in folders]


def test_a_job_that_is_started_again_does_only_what_is_missing(tmp_path):
    done = []

    def fail_at_3(task, folder):
        (folder / 'half').write_text('')
        if task == 3:
            raise KeyboardInterrupt
        square(task, folder)

    def count(task, folder):
        done.append(task)
        square(task, folder)

    with pytest.raises(KeyboardInterrupt):
        Job(tmp_path / 'job', {'tasks': 6}, HERE).run('squares', fail_at_3, range(6))
    assert sorted(path.name for path in (tmp_path / 'job' / 'squares').iterdir()) == ['000000', '000001', '000002']
    folders = Job(tmp_path / 'job', {'tasks': 6}, HERE).run('squares', count, range(6))
    assert read(folders) == [0, 1, 4, 9, 16, 25] and done == [3, 4, 5]


@pytest.mark.parametrize('change', ['identity', 'package'])
def test_another_job_begins_in_an_empty_folder(tmp_path, monkeypatch, change):
    job = Job(tmp_path / 'job', {'words': 'a'}, HERE)
    job.run('squares', square, [1])
    if change == 'package':
        monkeypatch.setattr(jobs, '_package_digest', lambda: 'another')
    Job(tmp_path / 'job', {'words': 'b' if change == 'identity' else 'a'}, HERE)
    assert [path.name for path in (tmp_path / 'job').iterdir()] == ['job.json']


def test_a_task_that_another_worker_has_done_meanwhile_is_done(tmp_path):
    def late(task, folder):
        square(task, folder)
        (folder.parent / '000000').mkdir()
        square(task, folder.parent / '000000')

    folders = Job(tmp_path / 'job', {}, HERE).run('squares', late, [5])
    assert read(folders) == [25]
    assert [path.name for path in folders[0].parent.iterdir()] == ['000000']


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path):
    def write_too_much(task, folder):
        (folder / 'half').write_text('')
        with open('/dev/full', 'wb', buffering=0) as file:
            file.write(b'words')

    with refuses('job/squares/000000'):
        Job(tmp_path / 'job', {}, HERE).run('squares', write_too_much, [1])
    assert not list((tmp_path / 'job' / 'squares').iterdir())


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / 'file').write_text('')
    with refuses('file/job'):
        Job(tmp_path / 'file' / 'job', {}, HERE)


def analyse(item):
    return {
        'item': item,
        'count': {'array': 2},
        'letters': set(item[0]),
        'codes': np.array([ord(c) for c in item[0]], np.int32),
    }


@pytest.mark.parametrize('num_items', [0, 1, 4, 9])
def test_map_through_files_is_map(tmp_path, num_items):
    items = [(f'word{number}', number) for number in range(num_items)]
    results = list(Job(tmp_path / 'job', {}, HERE).map(analyse, items))
    assert len(results) == num_items
    for result, item in zip(results, items):
        assert result['item'] == list(item) and result['count'] == {'array': 2}
        assert result['letters'] == sorted(set(item[0]))
        np.testing.assert_array_equal(result['codes'], analyse(item)['codes'])


def test_items_are_not_read_again(tmp_path):
    first = list(Job(tmp_path / 'job', {}, HERE).map(json.dumps, 'abcdefg'))
    again = list(Job(tmp_path / 'job', {}, HERE).map(json.dumps, iter(lambda: pytest.fail('read again'), 0)))
    assert first == again == [json.dumps(c) for c in 'abcdefg']


def test_maps_of_one_job_are_apart(tmp_path):
    job = Job(tmp_path / 'job', {}, HERE)
    assert list(job.map(functools.partial(pow, 2), [1, 2])) == [2, 4]
    assert list(job.map(functools.partial(pow, 3), [1, 2])) == [3, 9]


def test_a_worker_that_sees_other_files_or_runs_another_version_is_one_line(tmp_path, monkeypatch):
    job = Job(tmp_path / 'job', {}, HERE)
    digest = jobs._sha256((job.folder / 'job.json').read_text())
    jobs._check_worker(job.folder, digest)
    with refuses('elsewhere'):
        jobs._check_worker(tmp_path / 'elsewhere', digest)
    with refuses('job'):
        jobs._check_worker(job.folder, 'another')
    monkeypatch.setattr(jobs, '_package_digest', lambda: 'another')
    with refuses('vm'):
        jobs._check_worker(job.folder, digest)
