import json
import os
import signal
import subprocess
import sys

import pytest
from helpers import LONG_RUN, ROOT, command, job_output, launch, launch_process, refuses, wait_until

from configs import sentences
from nplm_jax.apps.sweeps import launchers
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment, workdir

SENTENCES = '--config=configs/sentences.py'


@pytest.mark.parametrize(
    'flags,message',
    [
        (('--launcher=cloud',), "--launcher='cloud':"),
        (('--launcher=slurm', '--distributed'), "--launcher='slurm':"),
        (('--launcher=local', '--process_id=1'), '--process_id=1:'),
        (('--launcher=local', '--heartbeat=20'), '--heartbeat=20: requires --processes'),
        (('--launcher=local', '--heartbeat=20', '--processes=1'), '--heartbeat=20: requires --processes'),
        (('--launcher=local', '--slurm=time=60'), "--slurm='time=60':"),
        (('--launcher=local', '--jobs=2'), '--jobs=2:'),
        (('--launcher=slurm', '--slurm=partition=gpu,tme=60'), "--slurm='tme=60':"),
    ],
)  # fmt: skip
def test_wrong_flags_are_one_line(tmp_path, flags, message):
    start = launch_process if '--distributed' in flags else launch  # this process ends without Python's exit handlers
    done = start(SENTENCES, f'--workdir={tmp_path / "run"}', *flags)
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count('\n') == 1, done.stderr


def test_what_is_asked_of_slurm():
    options = ('partition=gpu', 'time=60', 'setup=module load cuda', 'mem=8GB')
    expected = {'partition': 'gpu', 'time': 60, 'setup': 'module load cuda', 'mem': '8GB'}
    assert launchers.parse_slurm_options(options) == expected
    for wrong in ('time', 'time=', 'time=1:00', 'nodes=0', 'job_name=x'):
        with refuses('--slurm'):
            launchers.parse_slurm_options([wrong])


def run(folder, launcher, *jobs, finished=lambda _: False, **options):
    return launchers.run(jobs, launcher, folder, finished, options.pop('asked', {}), **options)


def test_without_submitit(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'submitit', None)
    with refuses('--launcher') as caught:
        run(tmp_path, 'local')
    assert 'pip install' in caught.value.problem


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A simulated SLURM: sbatch stores the script, and the file `queue` contains the queue."""
    pytest.importorskip('submitit')
    texts = {'sbatch': 'cp "$1" "$0.script"; echo job 17', 'squeue': f'cat {tmp_path}/queue', 'srun': ''}
    for name, text in texts.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{text}\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / 'queue').touch()
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(launchers.time, 'sleep', lambda _: None)
    return tmp_path


def test_without_slurm_or_with_processes_that_its_nodes_do_not_divide(programs, monkeypatch):
    with refuses('--processes'):
        run(programs, 'slurm', processes=3, asked={'nodes': 2})
    (programs / 'srun').unlink()
    monkeypatch.setenv('PATH', str(programs))
    with refuses('--launcher'):
        run(programs, 'slurm')


def test_what_slurm_is_told(programs):
    asked = {'gpus_per_node': 2, 'nodes': 2, 'signal_delay_s': 30, 'setup': 'module load cuda', 'mem': '8GB'}
    job = launchers.Job('a b', programs / 'run', ('launch.py', '--workdir=a b'))
    assert run(programs / 'logs', 'slurm', job, finished=lambda _: True, asked=asked, processes=4) == []
    script = (programs / 'sbatch.script').read_text().splitlines()
    expected = {'--gpus-per-node=2', '--nodes=2', '--ntasks-per-node=2', '--signal=USR2@30', '--time=1440', '--mem=8GB'}
    expected |= {'--requeue', "--job-name='a b'", f'--comment={programs}/run'}
    assert {f'#SBATCH {flag}' for flag in expected} | {'module load cuda'} <= set(script)
    import submitit  # noqa: PLC0415 (it may be missing)

    submitted = submitit.SlurmJob(programs / 'logs', '17').submission()
    assert submitted.function._words == [sys.executable, 'launch.py', '--workdir=a b', '--distributed']


def test_a_job_in_the_queue_is_not_submitted_again(programs, capsys):
    (programs / 'queue').write_text(f'5 {programs}/run\n')
    (programs / 'logs').mkdir()
    job = launchers.Job('a', programs / 'run', ('launch.py',))
    polls = []

    def leave_queue(_):
        polls.append((programs / 'queue').write_text(''))
        said = 'train.batch_size=14: too many\nsrun: error: node: task 0: Exited with exit code 2\n'
        (programs / 'logs' / '5_0_log.err').write_text(said)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launchers.time, 'sleep', leave_queue)
        assert run(programs / 'logs', 'slurm', job) == ['a']
    assert len(polls) == 1 and not (programs / 'sbatch.script').exists()
    submitted, ended = capsys.readouterr().err.splitlines()
    assert ' job 5;' in submitted and '(train.batch_size=14: too many)' in ended


def test_the_result_of_a_queued_job_with_another_config_is_refused(tmp_path, monkeypatch):
    other = config_lib.override(sentences.get_config(), {'model.family': 'add_delta'})

    def wait(jobs, *_):
        for job in jobs:
            experiment.run(other, job.folder)
        return []

    monkeypatch.setattr(launchers, 'run', wait)
    done = launch(SENTENCES, '--launcher=local', f'--workdir={tmp_path / "run"}')
    assert done.returncode == 2 and done.stderr.startswith('--workdir='), done.stderr


def test_nothing_is_submitted_while_squeue_does_not_tell_what_is_queued(programs):
    (programs / 'queue').unlink()
    with refuses('--launcher'):
        run(programs / 'logs', 'slurm', launchers.Job('a', programs / 'run', ('launch.py',)))
    assert not (programs / 'sbatch.script').exists()


def test_a_job_that_slurm_refuses_is_one_line(programs, capsys):
    (programs / 'sbatch').write_text('#!/bin/sh\necho sbatch: error: Invalid partition >&2\nexit 1\n')
    with refuses('--launcher') as caught:
        run(programs / 'logs', 'slurm', launchers.Job('a', programs / 'run', ('launch.py',)))
    assert caught.value.problem == 'sbatch: error: Invalid partition' and not capsys.readouterr().err


def local(tmp_path, code):
    """Returns a local job that runs the given code."""
    pytest.importorskip('submitit')
    (tmp_path / 'job.py').write_text(code)
    return launchers.Job('a', tmp_path / 'run', (str(tmp_path / 'job.py'), 'x'))


def test_what_two_processes_of_this_machine_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '7')
    job = local(tmp_path, 'import os, sys\nprint(os.environ["CUDA_VISIBLE_DEVICES"], *sys.argv[1:])')
    assert run(tmp_path / 'logs', 'local', job, processes=2) == ['a']
    said = [file.read_text().splitlines() for file in sorted((tmp_path / 'logs').glob('*_log.out'))]
    assert len(said) == 2
    for number, lines in enumerate(said):
        (words,) = [line.split() for line in lines if line.startswith('7 ')]
        assert words[1:3] == ['x', '--distributed'] and words[3].startswith('--coordinator=localhost:')
        assert words[4:] == ['--processes=2', f'--process_id={number}']


def test_a_job_whose_time_is_over_saves_and_goes_on(tmp_path):
    """SLURM and submitit's local executor send SIGUSR2 before the time limit."""
    job = local(
        tmp_path,
        'import os, pathlib, signal, sys, time\n'
        'state = pathlib.Path(__file__).with_name("state")\n'
        'if state.exists(): sys.exit(pathlib.Path(__file__).with_name("result").touch())\n'
        'signal.signal(signal.SIGTERM, lambda *_: (state.touch(), sys.exit(143)))\n'
        'os.kill(os.getppid(), signal.SIGUSR2)\n'
        'time.sleep(60)\n',
    )
    assert run(tmp_path / 'logs', 'local', job, finished=lambda _: (tmp_path / 'result').exists()) == []


@pytest.mark.nightly
def test_ctrl_c_ends_the_jobs_of_this_machine_with_all_saved(tmp_path):
    pytest.importorskip('submitit')
    folder = tmp_path / 'run'
    flags = (*LONG_RUN, '--launcher=local', f'--workdir={folder}')
    waiting = subprocess.Popen(
        command(*flags), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(lambda: any(folder.glob('checkpoints/[0-9]*')), 120)
    os.killpg(waiting.pid, signal.SIGINT)  # to all processes, like a terminal
    _, stderr = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and 'Traceback' not in stderr
    assert '(saved)' in job_output(folder, 'err')
    with workdir.locked(folder):  # no process uses it any more
        pass
    assert launch(*flags).returncode == 0
    assert json.loads((folder / 'results.json').read_text())['updates'] == 12_000
