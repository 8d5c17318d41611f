"""End-to-end tests of the command line; tests with signals, kills or time limits run in separate processes."""

import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types

import numpy as np
import pytest
from helpers import (
    ROOT,
    command,
    launch,
    launch_process,
    one_line,
    outcome,
    usual_environment,
)

from nplm_jax.cli import launch as launch_lib
from nplm_jax.cli import launched
from nplm_jax.runs import experiment
from nplm_jax.training.checkpoints import CheckpointStore

# --- three sentences -------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def sentences(tmp_path_factory):
    folder = tmp_path_factory.mktemp('sentences') / 'run'
    return folder, launch('--config=configs/sentences.py', f'--workdir={folder}')


def test_sentences_predicts_dog_coffee_milk_within_thirty_seconds(tmp_path):
    folder, before = tmp_path / 'run', resource.getrusage(resource.RUSAGE_CHILDREN)
    done = launch_process('--config=configs/sentences.py', f'--workdir={folder}', env=usual_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    assert done.returncode == 0, done.stderr
    assert seconds < 30  # CPU time of one process, because wall time is meaningless on a busy machine
    loaded = experiment.load(folder)
    vocabulary, model = loaded.vocabulary, loaded.model
    contexts = vocabulary.encode('i like i love i hate'.split()).reshape(3, 2)
    log_p = model.next_word(contexts)
    assert vocabulary.decode(log_p.argmax(1)) == ['dog', 'coffee', 'milk']
    assert np.exp(log_p.max(1)).min() > 0.9


def test_the_predicted_last_words_are_printed(sentences):
    rows = [[c.strip() for c in line.split('|')[1:-1]] for line in sentences[1].stdout.splitlines() if '| i ' in line]
    assert [row[:2] for row in rows] == [['i like', 'dog'], ['i love', 'coffee'], ['i hate', 'milk']]
    assert all(predicted.startswith(f'{word} 0.9') for _, word, predicted in rows)


def test_a_foreign_or_unwritable_folder(tmp_path):
    (tmp_path / 'thesis.tex').write_text('years of work')
    done = launch_process('--config=configs/sentences.py', f'--workdir={tmp_path}')
    assert done.returncode == 2
    one_line(done.stderr, f"--workdir='{tmp_path}'")
    done = launch('--config=configs/sentences.py', f'--workdir={tmp_path}/thesis.tex/run')
    assert done.returncode == 2
    one_line(done.stderr, f"--workdir='{tmp_path}/thesis.tex/run'")
    assert [p.name for p in tmp_path.iterdir()] == ['thesis.tex']


def test_an_error_in_the_program_is_no_lost_process(monkeypatch):
    """An error in a multi-process run keeps its traceback, even if its message resembles an error of a collective."""
    said = []
    monkeypatch.setattr(launch_lib, 'DISTRIBUTED', types.SimpleNamespace(value=True))
    monkeypatch.setattr(launch_lib, 'exit_with', lambda *words: said.append(words))
    monkeypatch.setattr(launched, 'run', lambda *words: raise_(RuntimeError('UNAVAILABLE: Gloo')))
    launch_lib.main(['launch.py'])
    [(code, message)] = said
    assert code == 1 and message.startswith('Traceback') and message.endswith('RuntimeError: UNAVAILABLE: Gloo')


def raise_(error):
    raise error


# --- killed, stopped, gone on ----------------------------------------------------------------------------


@pytest.fixture(scope='module')
def novel(tmp_path_factory):
    """A generated text for interrupted trainings, the flags for training on it, and the folder of a complete run."""
    folder = tmp_path_factory.mktemp('novel')
    rng = random.Random(0)
    words = [f'w{int(rng.paretovariate(0.7)) % 400}' for _ in range(40_000)]
    (folder / 'novel.txt').write_text(' '.join(words))
    flags = [
        '--config=configs/text.py', f'--config.corpus.path={folder / "novel.txt"}', '--config.model.h=20',
        '--config.train.epochs=10', '--config.train.patience=10', '--config.train.checkpoint_every=50',
        '--config.train.log_every=50',
    ]  # fmt: skip
    done = launch(*flags, f'--workdir={folder / "whole"}')
    assert done.returncode == 0, done.stderr
    return flags, folder / 'whole'


def _start(flags, folder):
    return subprocess.Popen(
        command(*flags, f'--workdir={folder}'), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _lines(folder):
    path = folder / 'metrics.jsonl'
    return path.read_text().count('\n') if path.exists() else 0


def _wait_for_updates(process, folder, more):
    """Waits until the process has written `more` lines of metrics."""
    target = _lines(folder) + more
    while process.poll() is None and _lines(folder) < target:
        time.sleep(0.01)


@pytest.mark.nightly  # tools/faults kills in chosen phases
def test_killed_at_random_moments_ends_the_same(novel, tmp_path):
    flags, whole = novel
    rng = random.Random(7)
    folder = tmp_path / 'run'
    saved = []
    for more in (0, 2, 2, 2):  # the first process dies anywhere, the others during training or a save
        process = _start(flags, folder)
        _wait_for_updates(process, folder, more)
        time.sleep(rng.uniform(0, 3 if more == 0 else 0.3))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        saved.append(max((int(p.name) for p in (folder / 'checkpoints').glob('[0-9]*') if p.name.isdigit()), default=0))
    assert saved == sorted(saved) and saved[-1] > saved[1] > 0  # each start resumed the previous one
    done = launch(*flags, f'--workdir={folder}')
    assert done.returncode == 0, done.stderr
    assert outcome(folder) == outcome(whole)


@pytest.mark.nightly
@pytest.mark.parametrize('number,code', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_by_a_signal_saves_and_says_how_to_go_on(novel, tmp_path, number, code):
    flags, whole = novel
    process = _start(flags, tmp_path / 'run')
    _wait_for_updates(process, tmp_path / 'run', 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == code, stderr
    last = stderr.splitlines()[-1]
    assert last.startswith('stopped after update ') and '; resume with: ' in last and '--config.model.h=20' in last
    interpreter, *words = shlex.split(last.partition('; resume with: ')[2])
    assert os.path.samefile(shutil.which(interpreter), sys.executable)
    assert words == command(*flags, f'--workdir={tmp_path / "run"}')[1:]
    store = CheckpointStore(tmp_path / 'run' / 'checkpoints')
    assert f'update {store.latest_step():,} (saved)' in last
    store.close()
    assert not (tmp_path / 'run' / 'results.json').exists()
    done = launch(*flags, f'--workdir={tmp_path / "run"}')
    assert done.returncode == 0 and 'resumed at epoch ' in done.stdout
    assert outcome(tmp_path / 'run') == outcome(whole)


@pytest.mark.nightly
def test_numbers_that_are_not_finite_stop_a_run_in_one_line(novel, tmp_path):
    flags, _ = novel
    done = launch(*flags, f'--workdir={tmp_path / "run"}', '--config.optimizer.learning_rate=1e30')
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert ' optimizer.learning_rate' in line
    assert not (tmp_path / 'run' / 'results.json').exists()
