"""Tests that Dask workers compute the same scores as one process, even if workers die."""

import io
import pathlib
import shutil
import sys
import threading

import numpy as np
import pytest
from dask_workers import start_cluster
from dying_workers import kill_workers

pytest.importorskip('distributed.scheduler', reason='pip install "nplm-jax[cluster]"')


from configs import sentences
from nplm_jax.apps.cluster.dask_cluster import DaskCluster
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import settings as config_lib
from nplm_jax.executors import workers
from nplm_jax.inference import scoring
from nplm_jax.runs import experiment, remote_scoring
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore')  # of Dask
RNG = np.random.default_rng(0)
LINES = [RNG.integers(0, 10, size).astype(np.int32) for size in RNG.integers(0, 30, 60)]
TEXT = '\n'.join(' '.join(RNG.choice(['i', 'like', 'dog', 'milk', 'zzz'], 9)) for _ in range(40))
ONE_PROCESS = workers.Processes(1)
JOB = remote_scoring.Job
COMMANDS = [command for command in (('score', '--stream'), ('surprisal',)) if command[0] in all_commands()]
RUNS = [('counts',), ('network',), ('network', 'counts')]


@pytest.fixture(scope='module')
def cluster(tmp_path_factory):
    with start_cluster(2, tmp_path_factory.mktemp('workers')) as (address, _), DaskCluster(address) as made:
        yield made


@pytest.fixture(autouse=True)
def small_pieces(tmp_path, monkeypatch):
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setattr(remote_scoring, '_CHUNK_SIZE', 100)


def score(runs, stream, used):
    """Returns the scores of LINES, which the executor `used` computes in chunks."""
    models = load_models(list(map(str, runs)))
    models = models.on_cluster() if used else models
    with workers.use(used):
        return scoring.score(models.mixture, LINES, models.line_start, stream)


def check_same_bits(found, expected):
    for line, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(line.log10_p_T, other.log10_p_T)
        np.testing.assert_array_equal(line.lengths_T, other.lengths_T)


@pytest.mark.parametrize('stream', [False, True])
@pytest.mark.parametrize('names', RUNS)
def test_scores_are_those_of_one_process_and_of_a_text_that_is_not_cut(folders, cluster, tmp_path, names, stream):
    runs = [folders / name for name in names]
    found = score(runs, stream, cluster)
    check_same_bits(found, score(runs, stream, ONE_PROCESS))
    for line, whole in zip(found, score(runs, stream, None), strict=True):
        np.testing.assert_allclose(line.log10_p_T, whole.log10_p_T, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(line.lengths_T, whole.lengths_T)
    assert not list((tmp_path / 'cache' / 'scores').iterdir())


def test_scores_are_those_of_one_process_although_workers_are_killed(folders, cluster):
    runs, killed = [folders / 'network', folders / 'counts'], []
    expected = score(runs, False, ONE_PROCESS)

    killer = threading.Thread(target=kill_workers, args=(cluster, killed, 2, 0.5))
    killer.start()
    while killer.is_alive():
        check_same_bits(score(runs, False, cluster), expected)
    assert len(killed) == 2


def test_a_command_that_is_started_again_scores_only_what_is_missing(folders, tmp_path, monkeypatch):
    runs, tasks, score_piece = [folders / 'counts'], [], remote_scoring._score

    def score_and_stop(*arguments):
        if len(tasks) == 3:
            raise KeyboardInterrupt
        tasks.append(arguments)
        score_piece(*arguments)

    expected = score(runs, True, ONE_PROCESS)
    monkeypatch.setattr(remote_scoring, '_score', score_and_stop)
    with pytest.raises(KeyboardInterrupt):
        score(runs, True, ONE_PROCESS)
    assert len(list((tmp_path / 'cache' / 'scores').glob('*/*/scoring/0*'))) == 3
    monkeypatch.setattr(remote_scoring, '_score', lambda *x: (tasks.append(x), score_piece(*x)))
    check_same_bits(score(runs, True, ONE_PROCESS), expected)
    files = [arguments[2] for arguments in tasks]
    pieces = sum(map(len, LINES)) // 100 + 1
    assert len(set(files)) == len(files) == 2 * pieces  # the probabilities, and the lengths of the n-grams


def test_a_file_of_scores_has_no_other_arrays(tmp_path, monkeypatch):
    written = {}  # NumPy 2.0 interprets every keyword argument as an array
    monkeypatch.setattr(remote_scoring, '_load', lambda source: None)
    monkeypatch.setattr(remote_scoring, '_unpack', lambda file: [[]])
    monkeypatch.setattr(np, 'savez', lambda file, **arrays: written.update(arrays))
    remote_scoring._score(None, lambda model, lines: [(np.ones(2),), (np.zeros(3),)], tmp_path, tmp_path)
    assert {name: array.tolist() for name, array in written.items()} == {'values_0': [1, 1, 0, 0, 0], 'ends_0': [2, 5]}


def test_another_model_in_the_same_folder_is_another_job(folders, tmp_path):
    runs = [tmp_path / 'run']
    shutil.copytree(folders / 'counts', runs[0])
    before = remote_scoring.Source.of(runs)
    assert before == remote_scoring.Source.of(runs)
    (runs[0] / 'model.safetensors').write_bytes(b'another')
    assert before.digest != remote_scoring.Source.of(runs).digest


@pytest.mark.parametrize(
    'changes',
    [{'folders': (pathlib.Path('/nosuch'),)}, {'digest': 'another'}],
)
def test_a_worker_that_does_not_see_the_run_is_one_line(folders, cluster, changes):
    run = str(folders / 'counts')
    source = remote_scoring.Source.of([run])
    with workers.use(cluster):
        model = load_models([run]).mixture
        remote = remote_scoring.RemoteModel(model, lambda: source._replace(**changes))
        with pytest.raises(BadInput) as error:
            remote.score_lines(LINES)
    assert '\n' not in str(error.value)


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def call(monkeypatch, lines):
    def call(*arguments):
        lines()
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(TEXT.encode())))
        cli.main(list(map(str, arguments)))
        return lines()

    return call


def numbers(text):
    cells = (word.rpartition('=')[2] for line in text for word in line.split())
    return [float(cell.rstrip('%')) for cell in cells if cell[:1] in '-0123456789']


@pytest.mark.parametrize('command', [*COMMANDS, ('score', '--end')])
@pytest.mark.parametrize('names', RUNS)
def test_a_command_prints_what_it_prints_without_the_scheduler(folders, cluster, call, command, names, monkeypatch):
    runs = [folders / name for name in names]
    weights = ['--weights=0.5,0.5'] if len(names) > 1 else []
    jobs = []
    monkeypatch.setattr(remote_scoring, 'Job', lambda *x: jobs.append(job := JOB(*x)) or job)
    address = cluster._client.scheduler.address
    found, expected = (
        call(command[0], *runs, *command[1:], *weights, *scheduler)[0] for scheduler in ([f'--scheduler={address}'], [])
    )
    assert jobs and len(found) == len(expected)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=2e-5, atol=2e-5)


def test_a_short_text_is_scored_here(folders, cluster, call, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(remote_scoring, 'Job', None)
    flag = f'--scheduler={cluster._client.scheduler.address}'
    assert call('score', folders / 'counts', flag) == call('score', folders / 'counts')


def test_a_state_that_runs_through_a_stream_is_not_cut(cluster, call, tmp_path, monkeypatch):
    changes = {'model.family': 'gru', 'train.batch_size': 4, 'model.bptt_length': 4, 'train.epochs': 2}
    experiment.run(config_lib.override(sentences.get_config(), changes), tmp_path / 'gru')
    monkeypatch.setattr(remote_scoring, 'Job', None)
    arguments = ['score', tmp_path / 'gru', '--stream']
    found, note = call(*arguments, f'--scheduler={cluster._client.scheduler.address}')
    assert found == call(*arguments)[0]
    assert any(line.startswith('--stream: ') for line in note)


@pytest.mark.parametrize('command', [command for command, *_ in COMMANDS])
def test_a_wrong_scheduler_is_one_line(folders, call, command, lines):
    with pytest.raises(SystemExit) as stopped:
        call(command, folders / 'counts', '--scheduler=elsewhere')
    assert stopped.value.code == 2
    (line,) = lines()[1]
    assert line.startswith('--scheduler=elsewhere: ')
