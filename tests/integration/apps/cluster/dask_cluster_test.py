"""Tests that text preparation and counting give the same results on Dask workers, even if workers die."""

import concurrent.futures
import importlib
import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest
from dask_workers import start_cluster
from dying_workers import kill_workers
from helpers import PYTHONPATH, corpus_settings, one_line, refuses

pytest.importorskip('distributed.scheduler', reason='pip install "nplm-jax[cluster]"')

import cloudpickle
from distributed.comm import CommClosedError

from nplm_jax.apps.cluster import dask_cluster
from nplm_jax.apps.cluster.dask_cluster import DaskCluster
from nplm_jax.data import corpora, preparation
from nplm_jax.data.stream import Span
from nplm_jax.executors import jobs, workers
from nplm_jax.executors.jobs import Job
from nplm_jax.ngram import counts
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore')  # of Dask
WORDS = np.minimum(np.random.default_rng(0).zipf(1.3, 100_000), 999).astype(np.int32)
SIZE = 1000


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
    with start_cluster(2, tmp_path_factory.mktemp('workers')) as (address, _), DaskCluster(address) as made:
        yield made


def arrays(counted):
    return [*counted.table.keys, *counted.counts, *counted.suffix_nodes]


def check_counts(folder, block=3_000):
    counted = counts.count(WORDS, Span(100, len(WORDS)), 4, SIZE, SharedScratch(folder, block=block))
    for found, expected in zip(
        arrays(counted), arrays(counts.count(WORDS, Span(100, len(WORDS)), 4, SIZE)), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.nightly
def test_counts_are_those_of_one_process(cluster, tmp_path):
    with workers.use(cluster):
        check_counts(tmp_path)
    assert not list(tmp_path.iterdir())


def test_prepared_texts_are_those_of_one_process(cluster, tmp_path, monkeypatch):
    names = ' '.join(f'Mr. Smith{number} knows word{number % 97}, and Anna.\n\n' for number in range(60_000))
    (tmp_path / 'text.txt').write_text(names)
    settings = corpus_settings('text', path=str(tmp_path / 'text.txt'), proper_nouns=True)
    monkeypatch.setattr(preparation, 'MIN_CACHED_BYTES', 0)
    made = []
    for used in (cluster, None):
        monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / f'cache_{len(made)}'))
        with workers.use(used):
            made.append(corpora.load(settings))
    by_cluster, here = made
    assert by_cluster.stream.types == here.stream.types and by_cluster.tokenizer == here.tokenizer
    assert by_cluster.splits == here.splits
    np.testing.assert_array_equal(by_cluster.stream.type_ids_L, here.stream.type_ids_L)
    assert not list((tmp_path / 'cache_0' / 'texts').glob('*/.job'))


def test_counts_are_those_of_one_process_although_workers_are_killed(cluster, tmp_path):
    killed = []

    killer = threading.Thread(target=kill_workers, args=(cluster, killed, 3, 0.3))
    killer.start()
    with workers.use(cluster):
        while killer.is_alive():
            check_counts(tmp_path)
    assert len(killed) == 3


@pytest.mark.nightly
def test_a_lost_scheduler_is_one_line_and_the_next_one_does_only_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', PYTHONPATH)  # for the tasks, which are in this file
    job_folder, tasks = tmp_path / 'job', [str(number) for number in range(40)]
    with start_cluster(1, tmp_path) as (address, scheduler), DaskCluster(address) as cluster:
        job = Job(job_folder, {}, cluster)
        threading.Thread(target=kill_after, args=(scheduler, job_folder / 'sleeps')).start()
        with refuses(f'--scheduler={address}'):
            job.run('sleeps', sleep_and_write, tasks)
    done = {path.name: path.stat().st_mtime_ns for path in (job_folder / 'sleeps').glob('0*')}
    assert 0 < len(done) < len(tasks)
    with start_cluster(1, tmp_path) as (address, _), DaskCluster(address) as cluster:
        folders = Job(job_folder, {}, cluster).run('sleeps', sleep_and_write, tasks)
    assert [(folder / 'task').read_text() for folder in folders] == tasks
    assert done == {name: (job_folder / 'sleeps' / name).stat().st_mtime_ns for name in done}


def kill_after(scheduler, folder):
    """Kills the scheduler when some tasks have finished."""
    while len(list(folder.glob('0*'))) < 3:
        time.sleep(0.1)
    scheduler.kill()


def sleep_and_write(task, folder):
    time.sleep(0.1)
    (folder / 'task').write_text(task)


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import this file


def test_a_worker_of_another_version_is_one_line_before_anything_starts(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, '_package_digest', lambda: 'another')
    with workers.use(cluster), refuses('vm'):
        check_counts(tmp_path)
    assert not (tmp_path / '.counting' / 'dividing n-grams').exists()


def test_workers_that_have_all_just_died_are_waited_for(cluster):
    pids = set(cluster.on_each(os.getpid))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while cluster._num_threads():  # wait until the scheduler has noticed
        assert time.monotonic() < deadline
    restarted = set(cluster.on_each(os.getpid))
    assert restarted and not restarted & pids


def test_a_scheduler_without_workers_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, '_RESTART', 0.1)
    with start_cluster(0, tmp_path) as (address, _), DaskCluster(address) as cluster:
        with refuses(f'--scheduler={address}'):
            Job(tmp_path / 'job', {}, cluster)


def test_a_task_whose_workers_have_all_ended_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, '_SILENCE', 1)
    monkeypatch.setattr(dask_cluster, '_MAX_SILENT', 2)
    with start_cluster(1, tmp_path) as (address, _), DaskCluster(address) as cluster:
        cluster._client.retire_workers()
        with refuses(f'--scheduler={address}'):
            list(cluster.map(str, [1]))


@pytest.mark.parametrize('error', [concurrent.futures.CancelledError(), CommClosedError()])
def test_a_connection_that_was_closed_is_one_line_although_a_scheduler_answers_again(cluster, error):
    with refuses(cluster._flag), cluster._connected():
        raise error


def test_without_dask_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, 'distributed', None)
    monkeypatch.delitem(sys.modules, dask_cluster.__name__)
    with refuses('--scheduler'):
        importlib.import_module(dask_cluster.__name__)


def test_an_error_of_a_task_is_not_a_lost_scheduler(cluster):
    with pytest.raises(FileNotFoundError) as caught:
        list(cluster.map(os.stat, ['/nosuch']))
    assert caught.value.filename == '/nosuch'


@pytest.mark.nightly
def test_a_server_that_is_no_scheduler_is_one_line_within_seconds(monkeypatch):
    monkeypatch.setattr(dask_cluster, '_TIMEOUT', 0.5)
    with socket.create_server(('127.0.0.1', 0)) as silent:  # an HTTP server also waits for the end of the request
        address = f'tcp://127.0.0.1:{silent.getsockname()[1]}'
        before = time.monotonic()
        with pytest.raises(BadInput) as caught:
            DaskCluster(address)
    assert time.monotonic() - before < 10 and str(caught.value).startswith(f'--scheduler={address}: ')


@pytest.mark.nightly
@pytest.mark.parametrize('address', ['tcp://127.0.0.1:9', 'elsewhere', 'tls://127.0.0.1:9'])
def test_a_scheduler_that_does_not_answer_is_one_line(address, monkeypatch):
    monkeypatch.setattr(dask_cluster, '_TIMEOUT', 1)
    with pytest.raises(BadInput) as caught:
        DaskCluster(address)
    one_line(str(caught.value), f'--scheduler={address}')
