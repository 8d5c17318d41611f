import gc
import json
import os
import signal
import subprocess
import sys
import types

import pytest
from helpers import LONG_RUN, ROOT, command, job_output, launch, wait_until

from nplm_jax.runs import launchers, workdir
from nplm_jax.utils.errors import BadInput

SENTENCES = '--config=configs/sentences.py'
SWEEP = """
from configs import sentences

def get_config():
    return sentences.get_config()

def sweep():
    yield {'seed': 2, 'train.epochs': 20}
    yield {'train.batch_size': 14}
"""


@pytest.mark.parametrize(
    'flags,message',
    [
        (('--launcher=cloud',), "flag --launcher=cloud: value should be one of <local|slurm>"),
        (('--launcher=slurm', '--distributed'), '--launcher=slurm: cannot be used with --distributed; --proc'),
        (('--launcher=local', '--process_id=1'), '--process_id=1: needs --distributed'),
        (('--launcher=local', '--slurm=time=60'), '--slurm=time=60: needs --launcher=slurm'),
        (('--launcher=local', '--jobs=2'), '--jobs=2: needs --sweep or --grid, and --launcher'),
        (('--launcher=slurm', '--slurm=partition=gpu,tme=60'), "--slurm='tme=60': must be KEY=VALUE, with a key of "),
    ],
)  # fmt: skip
def test_wrong_flags_are_one_line(tmp_path, flags, message):
    done = launch(SENTENCES, f'--workdir={tmp_path / "run"}', *flags)
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count('\n') == 1, done.stderr


def test_what_is_asked_of_slurm():
    options = ('partition=gpu', 'time=60', 'setup=module load cuda', 'mem=8GB')
    expected = {'partition': 'gpu', 'time': 60, 'setup': ['module load cuda'], 'mem': '8GB'}
    assert launchers.parse_slurm_options(options) == expected
    for wrong in ('time', 'time=', 'time=1:00', 'nodes=0', 'job_name=x'):
        with pytest.raises(BadInput, match=f"^--slurm='{wrong}': must be "):
            launchers.parse_slurm_options([wrong])


def run(folder, launcher, **options):
    return launchers.run([], launcher == 'slurm', folder, lambda _: None, options.pop('asked', {}), **options)


def test_without_submitit_or_slurm(tmp_path, monkeypatch):
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, 'submitit', None)
        with pytest.raises(BadInput, match='^--launcher: needs submitit: pip install submitit$'):
            run(tmp_path, 'local')
    pytest.importorskip('submitit')
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(BadInput, match='^--processes=3: must be a multiple of nodes=2'):
        run(tmp_path, 'slurm', processes=3, asked={'nodes': 2})
    with pytest.raises(BadInput, match='^--launcher=slurm: srun not found'):
        run(tmp_path, 'slurm')


def line(cluster, tasks, visible=None):
    task = launchers.Task(('launch.py', SENTENCES), 'localhost:1234', visible)
    words, environment = task.command_line(types.SimpleNamespace(cluster=cluster, num_tasks=tasks, global_rank=1))
    assert words[:3] == [sys.executable, 'launch.py', SENTENCES]
    return words[3:], environment.get('CUDA_VISIBLE_DEVICES')


def test_what_a_task_starts(monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')  # as submitit sets it in a job of this machine
    assert line('slurm', 1) == ([], '')
    assert line('slurm', 2) == (['--distributed'], '')  # the rest is in SLURM's environment
    assert line('local', 1) == ([], None) and line('local', 1, '3') == ([], '3')
    together = ['--distributed', '--coordinator=localhost:1234', '--processes=2', '--process_id=1']
    assert line('local', 2) == (together, None)


@pytest.fixture(params=[True, False], ids=['waitid', 'as macOS before Python 3.13'])
def task(request, monkeypatch):
    """Returns a function that makes a task of Python code, without submitit."""
    if not request.param:
        monkeypatch.delattr(os, 'waitid')
    job = types.SimpleNamespace(cluster='local', num_tasks=1, global_rank=0)
    helpers = types.SimpleNamespace(DelayedSubmission=lambda task: task)
    submitit = types.SimpleNamespace(JobEnvironment=lambda: job, helpers=helpers)
    monkeypatch.setattr(launchers, '_import_submitit', lambda: submitit)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    yield lambda code: launchers.Task(('-S', '-c', code), 'localhost:1')
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_task_ends_with_the_exit_code_of_its_command(task):
    assert task('pass')() is None
    for code, expected in (('import sys; sys.exit(3)', 3), ('import os; os.kill(os.getpid(), 15)', 143)):
        with pytest.raises(SystemExit) as end:
            task(code)()
        assert end.value.code == expected


@pytest.mark.filterwarnings('ignore::ResourceWarning')
def test_a_signal_handler_waits_for_the_command_that_the_task_waits_for(task):
    sleeping, requeued = task('import time; time.sleep(60)'), []

    def ring(*_):  # as submitit's handler does
        requeued.append(sleeping.checkpoint())
        sys.exit(9)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(SystemExit, match='9'):
        sleeping()
    assert requeued[0].child_pid == 0 and sleeping.stopping
    gc.collect()  # reaps what the task left, and warns of it
    with pytest.raises(ProcessLookupError):
        os.kill(sleeping.child_pid, 0)


def test_a_sweep_as_jobs_of_this_machine(tmp_path):
    pytest.importorskip('submitit')
    (tmp_path / 'study.py').write_text(SWEEP)
    runs = tmp_path / 'runs'
    flags = (f'--config={tmp_path / "study.py"}', '--sweep', '--launcher=local', '--jobs=2', f'--workdir={runs}')
    done = launch(*flags, '--config.model.h=3', '--config.seed=5')
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith((runs / 'table.md').read_text()) and '| batch_size=14    | failed |' in done.stdout
    assert 'batch_size=14: ended without a result (train.batch_size=14: must be 13 or' in done.stderr
    results = json.loads((runs / 'seed=2,epochs=20' / 'results.json').read_text())
    assert (results['seed'], results['updates'], results['parameters']) == (2, 60, 10 * (1 + 2 + 3) + 3 * (1 + 2 * 2))
    assert results['command'].endswith(f' --workdir={runs}/seed=2,epochs=20') and '--launcher' not in results['command']


@pytest.mark.slow
def test_ctrl_c_ends_the_jobs_of_this_machine_with_all_saved(tmp_path):
    pytest.importorskip('submitit')
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
