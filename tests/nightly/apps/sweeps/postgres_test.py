"""Tests searches by several processes that share a PostgreSQL database."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
from helpers import ROOT, launch, wait_until
from search_studies import ROW, STUDY, TrialState, opened

from nplm_jax.executors.processes import free_port

pytest.importorskip('submitit')
pytest.importorskip('psycopg')
PROGRAMS = f'{os.environ["PATH"]}:{":".join(map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin")))}'
# A worker of launch.py that is considered lost after a few seconds without a heartbeat.
WORKER = """
import functools, sys
from absl import app
from nplm_jax.cli import launch
from nplm_jax.apps.sweeps import search_storage
search_storage.HEARTBEAT = 1
app.run(functools.partial(launch.main, program=(__file__,)), flags_parser=launch.parse_flags)
"""
# The first four trials wait for the file GO; the others take longer than a heartbeat.
WAIT = """
    import pathlib, time
    while trial.study.study_name == 'sentences' and trial.number < 4 and not pathlib.Path('GO').exists():
        time.sleep(0.1)
    time.sleep(1.5 * (trial.number > 3))
"""


@pytest.fixture
def postgres():
    """The URL of an empty PostgreSQL database. The server must not run as root."""
    initdb, control = (shutil.which(name, path=PROGRAMS) for name in ('initdb', 'pg_ctl'))
    if not (initdb and control):
        pytest.skip('PostgreSQL is not installed')
    as_nobody = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory(dir='/tmp') as folder:  # the server's user must be able to read it
        if as_nobody:
            os.chown(folder, 65534, 65534)

        def run(*words):
            # The server inherits the streams, so a pipe would never be closed.
            subprocess.run([*as_nobody, *words], check=True, cwd=folder, stdout=subprocess.DEVNULL)

        run(initdb, '--username=me', '--auth=trust', '--no-sync', f'--pgdata={folder}/data')
        options = f'-p {(port := free_port())} -k {folder} -c fsync=off -c listen_addresses=localhost'
        server = (control, f'--pgdata={folder}/data', '--wait')
        run(*server, f'--log={folder}/log', f'--options={options}', 'start')
        try:
            yield f'postgresql+psycopg://me:secret@localhost:{port}/postgres'
        finally:
            run(*server, '--mode=fast', 'stop')


def num_of(url, *states):
    with contextlib.suppress(KeyError), opened(url) as shared:  # the study does not exist yet
        return len(shared.get_trials(states=states))


def worker(program, number):
    """Returns the process id of a worker."""
    for process in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            words = (process / 'cmdline').read_bytes().decode().split('\0')
            if words[1:2] == [str(program)] and f'--process_id={number}' in words:
                return int(process.name)
    raise AssertionError(f'worker {number} does not run')


def test_killed_and_suspended_workers_cost_no_trial_and_the_search_is_completed(tmp_path, postgres):
    go, study, program, runs = (tmp_path / name for name in ('go', 'study.py', 'worker.py', 'runs'))
    head, define, body = STUDY.partition('def search(trial):')
    study.write_text(head + define + WAIT.replace('GO', str(go)) + body.replace("'model.h', 2, 9", "'model.h', 5, 5"))
    program.write_text(WORKER)
    words = [sys.executable, program, f'--config={study}', '--search=8', f'--workdir={runs}', f'--storage={postgres}']
    env, log = {**os.environ, 'PYTHONPATH': str(ROOT)}, tmp_path / 'log'
    with log.open('wb') as file:
        parent = subprocess.Popen([*words, '--launcher=local', '--jobs=4'], env=env, stdout=file, stderr=file)
    try:
        wait_until(lambda: num_of(postgres, TrialState.RUNNING) == 4, 120, log.read_text)
        *killed, suspended = (worker(program, number) for number in range(3))
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        os.kill(suspended, signal.SIGSTOP)
        go.touch()
        wait_until(lambda: num_of(postgres, TrialState.FAIL) == 3, 60, log.read_text)
        os.kill(suspended, signal.SIGCONT)
        assert parent.wait(120) == 0, log.read_text()
    finally:
        parent.terminate()
        parent.wait()
    with opened(postgres) as shared:
        made = shared.get_trials()
    num_finished = num_of(postgres, TrialState.COMPLETE, TrialState.PRUNED)
    assert num_finished in (8, 9)  # a trial that the other of the last two workers had started
    lost = [trial.number for trial in made if trial.state == TrialState.FAIL]
    assert len(lost) == 3 and {t.system_attrs.get('failed_trial') for t in made} == {None, *lost}
    assert len(ROW.findall((runs / 'table.md').read_text())) == num_finished
    written = b''.join(path.read_bytes() for path in tmp_path.rglob('*') if path.is_file())
    assert b'secret' not in written and b'Traceback' not in written
    again = launch(*words[2:])
    assert again.returncode == 0 and 'Output directory' not in again.stdout, again.stderr
