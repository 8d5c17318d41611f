"""Tests runs of two local processes with two simulated devices each."""

import json
import os
import re
import signal
import subprocess
import time

import jax
import numpy as np
import pytest
from helpers import ROOT, command, one_line, others_nightly, refuses

from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.distributed import multihost
from nplm_jax.executors.processes import free_port
from nplm_jax.outputs import word_codes
from nplm_jax.runs import loading

MESH = ('--config.parallel.data=2', '--config.parallel.model=2')
PRECISION = '--config.output.precision=float32'  # on a busy machine, two runs may measure different fastest precisions
OPTIONS = (
    '--config.train.epochs=20',
    '--config.train.steps_per_execution=3',
    '--config.train.calibrate=True',
    PRECISION,
)
SENTENCES = ('--config=configs/sentences.py', *OPTIONS)


def start(folder, flags, home=None, **distributed):
    """Starts launch.py. With `distributed`, starts it as one of several processes."""
    flags = [*flags, f'--workdir={folder}', *['--distributed'] * bool(distributed)]
    env = {
        **os.environ,
        'PYTHONUNBUFFERED': '',
        'JAX_PLATFORMS': 'cpu',
        **({'HOME': str(home)} if home else {}),
        'JAX_NUM_CPU_DEVICES': '2' if distributed else '1',
    }
    arguments = command(*flags, *(f'--{key}={value}' for key, value in distributed.items()))
    return subprocess.Popen(arguments, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_two(folder, flags, flags_of=lambda i: (), home_of=lambda i: None):
    distributed = {'coordinator': f'localhost:{free_port()}', 'processes': 2}
    return [
        start(folder, (*flags, *MESH, *flags_of(i)), home=home_of(i), process_id=i, **distributed) for i in range(2)
    ]


def finish(*processes):
    ends = [process.communicate(timeout=900) for process in processes]
    for process, (_, stderr) in zip(processes, ends):
        assert process.returncode == 0, stderr[-3000:]
    return ends


def outcome(folder):
    results = json.loads((folder / 'results.json').read_text())
    return [*results['perplexity'].values(), results['updates']]


KINDS = {
    'window': SENTENCES,
    'mapped': (*SENTENCES, '--config.train.input=mapped'),
    'lstm': (
        '--config=configs/sentences.py:lstm',
        *OPTIONS,
        '--config.model.bptt_length=2',
        PRECISION.replace('output', 'model'),
    ),
}


@pytest.mark.parametrize('kind', others_nightly(KINDS, ('window',)))
def test_two_processes_reach_one_processs_numbers(tmp_path, kind):
    flags = KINDS[kind]
    finish(start(tmp_path / 'one', flags))
    (first, _), (second, _) = finish(*start_two(tmp_path / 'two', flags))
    assert outcome(tmp_path / 'two') == pytest.approx(outcome(tmp_path / 'one'), rel=1e-5)
    assert '| sentences' in first and '| sentences' not in second  # only the first process prints and writes
    again, _ = finish(*start_two(tmp_path / 'two', flags))[0]
    assert 'is already finished' in again


def test_a_folder_that_the_first_process_refuses_ends_all_at_once(tmp_path):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'thesis.txt').touch()
    first, second = start_two(tmp_path / 'run', (*SENTENCES, '--heartbeat=100'))
    for process, message in ((first, 'is neither empty nor a run'), (second, 'the first process rejected this run')):
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 2 and len(stderr.splitlines()) == 1 and message in stderr, stderr


@pytest.mark.parametrize(
    'flags,message',
    [
        ((*SENTENCES, '--processes=2'), '--processes=2: requires --distributed'),
        ((*SENTENCES, '--distributed'), '--distributed: '),
        (
            (*SENTENCES, '--distributed', '--coordinator=localhost', '--processes=1', '--process_id=0'),
            "--coordinator='localhost': must be HOST:PORT",
        ),
    ],
)
def test_wrong_flags_are_one_line(tmp_path, flags, message):
    process = start(tmp_path, flags)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 2 and len(stderr.splitlines()) == 1 and stderr.startswith(message), stderr


@pytest.fixture
def joined(monkeypatch):
    """Records the arguments with which JAX would join other processes."""
    calls = []
    monkeypatch.setattr(jax.distributed, 'initialize', lambda *args, **kwargs: calls.append((args, kwargs)))
    monkeypatch.setattr(multihost.atexit, 'register', lambda *_: None)
    before = {name: getattr(jax.config, name) for name in ('jax_enable_preemption_service', 'jax_logging_level')}
    yield calls
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize('wrong', ['', 'host', ':1234', 'host:', 'host:12x', 'host:\u0661', 'host:0', 'host:65536'])
def test_a_coordinator_is_a_host_and_a_port(joined, wrong):
    with refuses('--coordinator'):
        multihost.start(wrong, 1, 0, 100, list)
    assert not joined


@pytest.mark.parametrize('coordinator', ['host:1', '[::1]:65535', None])
def test_jax_joins_the_processes_and_leaves_sigterm_to_the_run(joined, coordinator):
    jax.config.update('jax_enable_preemption_service', True)
    multihost.start(coordinator, 3, 2, 77, list)
    ((arguments, options),) = joined
    assert arguments == (coordinator, 3, 2) and options['heartbeat_timeout_seconds'] == 77
    assert options['shutdown_timeout_seconds'] >= 3600  # the first process waits for unfinished files of others
    assert not jax.config.jax_enable_preemption_service


def test_alone_a_process_is_the_first_and_needs_no_collective():
    assert multihost.is_primary() and multihost.allgather(np.array([7])).tolist() == [[7]]
    tree = {'b_V': np.arange(3)}
    assert multihost.broadcast_from_primary(tree) is tree


def test_a_mesh_that_leaves_a_process_out_is_refused(tmp_path):
    distributed = {'coordinator': f'localhost:{free_port()}', 'processes': 1, 'process_id': 0}
    process = start(tmp_path, (*SENTENCES, '--config.parallel.data=3'), **distributed)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 2
    assert re.search(r'^parallel\.data=3: .*\b2\b', stderr, re.MULTILINE), stderr


def test_another_text_in_one_process_is_reported_there(tmp_path):
    for i, text in enumerate(('a b c d a c b d ' * 20, 'a b c d a c d b ' * 20)):
        (tmp_path / f'{i}.txt').write_text(text)
    flags = ('--config=configs/text.py', '--config.train.batch_size=8', '--config.corpus.min_count=1')
    first, second = start_two(tmp_path / 'run', flags, lambda i: (f'--config.corpus.path={tmp_path / f"{i}.txt"}',))
    _, stderr = second.communicate(timeout=300)
    assert second.returncode == 2 and stderr.startswith('--distributed: '), stderr
    stdout, stderr = first.communicate(timeout=300)
    assert first.returncode == 1 and 'launch.py ' in stderr.splitlines()[-1], stderr
    assert str(tmp_path / 'run') in stdout, 'what was printed before is there, though it went into a pipe'


def test_another_tree_in_one_process_is_reported_there_with_its_file(tmp_path):
    settings = config_lib.from_config(sentences.get_config())
    words = loading.load_dataset(settings).vocabulary.words
    flags = ('--config=configs/sentences.py:tree', '--config.output.tree=~/codes.tsv')
    for i, order in enumerate((words, words[::-1])):
        (tmp_path / str(i)).mkdir()
        codes = ''.join(f'{word}\t{code}\n' for word, code in zip(order, word_codes.balanced(len(words))))
        (tmp_path / str(i) / 'codes.tsv').write_text(codes)
    first, second = start_two(tmp_path / 'run', flags, home_of=lambda i: tmp_path / str(i))
    _, stderr = second.communicate(timeout=300)
    expected = r'--distributed: output.tree=.~/codes.tsv. differs from the file .* \(sha256 \w{12}, not \w{12}\)'
    assert second.returncode == 2 and re.match(expected, stderr), stderr
    first.communicate(timeout=300)
    assert first.returncode == 1 and not (tmp_path / 'run' / 'config.json').exists()


def test_another_config_in_one_process_is_reported_there_with_the_keys(tmp_path):
    other = ('--config.optimizer.learning_rate=0.25', '--config.parallel.data=4', '--config.parallel.model=1')
    flags = ('--config=configs/sentences.py', '--config.train.epochs=20')
    first, second = start_two(tmp_path / 'run', flags, lambda i: other[: 3 * i])
    _, stderr = second.communicate(timeout=300)
    assert second.returncode == 2, stderr
    differences = dict(re.findall(r'([a-z_.]+)=([\w.]+)', one_line(stderr, '--distributed')))
    assert list(differences) == ['optimizer.learning_rate', 'parallel.data', 'parallel.model']
    assert (differences['optimizer.learning_rate'], differences['parallel.data']) == ('0.25', '4')
    _, stderr = first.communicate(timeout=300)
    assert first.returncode == 1 and 'launch.py ' in stderr.splitlines()[-1], stderr
    assert not (tmp_path / 'run' / 'results.json').exists()


# --- a part of Brown, and a lost process -----------------------------------------------------------------


@pytest.fixture(scope='module')
def brown_part(brown_data, tmp_path_factory):
    """Flags that train on Brown's first 8,000 words."""
    data = brown_data()
    file = tmp_path_factory.mktemp('brown') / 'words.txt'
    file.write_text(' '.join(data.vocabulary.words[i] for i in data.tokens_T[:8_000].tolist()))
    return (
        '--config=configs/text.py:whitespace', f'--config.corpus.path={file}',
        '--config.corpus.min_count=3', '--config.model.n=4', '--config.model.m=10', '--config.model.h=15',
        '--config.train.batch_size=32', '--config.train.epochs=4', '--config.train.patience=4',
        '--config.optimizer.learning_rate=0.3', '--config.train.checkpoint_every=100', '--config.train.log_every=50',
    )  # fmt: skip


@pytest.fixture(scope='module')
def unbroken(brown_part, tmp_path_factory):
    """The result of two processes when none is lost."""
    folder = tmp_path_factory.mktemp('unbroken') / 'run'
    finish(*start_two(folder, brown_part))
    return outcome(folder)


@pytest.mark.nightly
def test_a_part_of_brown_by_two_processes(brown_part, unbroken, tmp_path):
    finish(start(tmp_path / 'one', brown_part))
    assert unbroken == pytest.approx(outcome(tmp_path / 'one'), rel=1e-4)


@pytest.mark.nightly
def test_a_lost_process_ends_the_other_and_the_next_start_goes_on(brown_part, unbroken, tmp_path):
    folder = tmp_path / 'run'
    for lost in (1, 0):  # first the worker, then the coordinator
        processes = start_two(folder, brown_part)
        _wait_for_a_checkpoint(folder, processes)
        processes[lost].kill()
        killed = time.monotonic()
        _, stderr = processes[1 - lost].communicate(timeout=120)
        assert time.monotonic() - killed < 30
        code = processes[1 - lost].returncode
        if lost == 0 and code == -signal.SIGABRT:  # JAX's service may end before the update is seen to fail
            assert 'another task died' in stderr, stderr[-3000:]
        else:
            line = r'(?m)^another process was lost \(.*\); resume all processes with: \S*python\S* \S*launch\.py '
            assert code == 1 and re.search(line, stderr), (code, stderr[-3000:])
        processes[lost].communicate()
        assert processes[lost].returncode == -signal.SIGKILL and not (folder / 'results.json').exists()
    finish(*start_two(folder, brown_part))
    assert outcome(folder) == unbroken


@pytest.mark.nightly
def test_sigterm_to_one_process_stops_all(brown_part, unbroken, tmp_path):
    processes = start_two(tmp_path / 'run', brown_part)
    _wait_for_a_checkpoint(tmp_path / 'run', processes)
    processes[1].terminate()
    for process in processes:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 143 and '(saved)' in stderr, stderr[-3000:]
    finish(*start_two(tmp_path / 'run', brown_part))
    assert outcome(tmp_path / 'run') == unbroken


def _wait_for_a_checkpoint(folder, processes):
    """Waits until another checkpoint exists."""

    def saved():
        return max((int(p.name) for p in (folder / 'checkpoints').glob('*') if p.name.isdigit()), default=0)

    before, until = saved(), time.monotonic() + 300
    while saved() == before and time.monotonic() < until and all(p.poll() is None for p in processes):
        time.sleep(0.05)
    assert saved() > before, [p.communicate()[1][-2000:] for p in processes if p.poll() is not None]
