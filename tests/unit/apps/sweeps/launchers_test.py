import json
import os
import signal
import subprocess
import sys

import pytest
from helpers import LONG_RUN, ROOT, command, job_output, launch, launch_process, refuses, wait_until

from nplm_jax.apps.sweeps import launchers
from nplm_jax.runs import workdir

SENTENCES = '--config=configs/sentences.py'


@pytest.mark.parametrize(
    'flags,message',
    [
        (('--launcher=cloud',), "--launcher='cloud':"),
        (('--launcher=slurm', '--distributed'), "--launcher='slurm':"),
        (('--launcher=local', '--process_id=1'), '--process_id=1:'),
        (('--launcher=local', '--slurm=time=60'), "--slurm='time=60':"),
        (('--launcher=local', '--jobs=2'), '--jobs=2:'),
        (('--launcher=slurm', '--slurm=partition=gpu,tme=60'), "--slurm='tme=60':"),
    ],
)  # fmt: skip
def test_wrong_flags_are_one_line(tmp_path, flags, message):
    start = launch_process if '--distributed' in flags else launch  # such a process leaves without Python's exit
    done = start(SENTENCES, f'--workdir={tmp_path / "run"}', *flags)
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count('\n') == 1, done.stderr


def test_what_is_asked_of_slurm():
    options = ('partition=gpu', 'time=60', 'setup=module load cuda', 'mem=8GB')
    expected = {'partition': 'gpu', 'time': '60', 'setup': 'module load cuda', 'mem': '8GB'}
    assert launchers.parse_slurm_options(options) == expected
    for wrong in ('time', 'time=', 'time=1:00', 'nodes=0', 'job_name=x'):
        with refuses('--slurm'):
            launchers.parse_slurm_options([wrong])


def run(folder, launcher, **options):
    return launchers.run([], launcher == 'slurm', folder, lambda _: None, options.pop('asked', {}), **options)


def test_without_slurm_or_with_processes_that_its_nodes_do_not_divide(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    with refuses('--launcher'):
        run(tmp_path, 'slurm')
    (tmp_path / 'sbatch').touch(mode=0o755)
    with refuses('--processes'):
        run(tmp_path, 'slurm', processes=3, asked={'nodes': '2'})


SBATCH = """#!/bin/sh
printf '%s\\n' "$@" >"$0.flags"
cat >"$0.script"
echo 17
"""


def test_what_slurm_is_told(tmp_path, monkeypatch):
    for name, text in (('sbatch', SBATCH), ('squeue', '#!/bin/sh\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(launchers._Slurm, 'poll_seconds', 0)
    asked = {'gpus_per_node': '2', 'nodes': '2', 'signal_delay_s': '30', 'setup': 'module load cuda'}
    job = launchers.Job('a b', tmp_path / 'run', ('launch.py', '--workdir=a b'))
    assert launchers.run([job], True, tmp_path / 'logs', lambda _: True, asked, processes=4) == []
    flags = (tmp_path / 'sbatch.flags').read_text().splitlines()
    expected = {'--gpus-per-node=2', '--nodes=2', '--ntasks-per-node=2', '--signal=B:USR2@30', '--time=1440'}
    assert expected | {'--requeue', '--job-name=a b', f'--comment={tmp_path}/run'} <= set(flags)
    script = (tmp_path / 'sbatch.script').read_text()
    assert script.startswith('#!/bin/bash\nmodule load cuda\n')
    assert f" {sys.executable} launch.py '--workdir=a b' --distributed &\n" in script


def test_nothing_is_submitted_while_squeue_does_not_tell_what_is_queued(tmp_path, monkeypatch):
    for name, text in (('sbatch', SBATCH), ('squeue', '#!/bin/sh\nexit 1\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    job = launchers.Job('a', tmp_path / 'run', ('launch.py',))
    with refuses('--launcher'):
        launchers.run([job], True, tmp_path / 'logs', lambda _: True, {})
    assert not (tmp_path / 'sbatch.flags').exists()


def test_what_two_processes_of_this_machine_are_told(tmp_path):
    (tmp_path / 'say.py').write_text('import sys\nprint(*sys.argv[1:])')
    job = launchers.Job('a', tmp_path / 'run', (str(tmp_path / 'say.py'), 'x'))
    assert launchers.run([job], False, tmp_path / 'logs', lambda _: None, {}, processes=2) == ['a']
    said = [file.read_text() for file in sorted((tmp_path / 'logs').glob('*_log.out'))]
    assert len(said) == 2
    for number, words in enumerate(map(str.split, said)):
        assert words[:2] == ['x', '--distributed'] and words[2].startswith('--coordinator=localhost:')
        assert words[3:] == ['--processes=2', f'--process_id={number}']


@pytest.mark.nightly
def test_ctrl_c_ends_the_jobs_of_this_machine_with_all_saved(tmp_path):
    folder = tmp_path / 'run'
    flags = (*LONG_RUN, '--launcher=local', f'--workdir={folder}')
    waiting = subprocess.Popen(
        command(*flags), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(lambda: any(folder.glob('checkpoints/[0-9]*')), 120)
    os.killpg(waiting.pid, signal.SIGINT)  # as a terminal does: all processes get it
    _, stderr = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and 'Traceback' not in stderr
    assert '(saved)' in job_output(folder, 'err')
    with workdir.locked(folder):  # nobody is left that uses it
        pass
    assert launch(*flags).returncode == 0
    assert json.loads((folder / 'results.json').read_text())['updates'] == 12_000
