"""Tests jobs on a real one-node SLURM cluster, which the tests set up; run them as root on Debian or Ubuntu."""

import json
import shutil
import signal
import subprocess

import pytest
from helpers import LONG_RUN, ROOT, command, job_output, launch_process, outcome, wait_until

pytest.importorskip('submitit')
pytestmark = pytest.mark.skipif(
    not shutil.which('slurmctld'), reason='needs SLURM, which `tools/slurm_node.sh start DIR` installs as root'
)
SHORT = ('--config=configs/sentences.py', '--config.train.epochs=20')
SWEEP = """
from configs import sentences

def get_config():
    return sentences.get_config()

def sweep():
    for h in (3, 5):
        for seed in (1, 2):
            yield {'model.h': h, 'seed': seed}
"""


@pytest.fixture(scope='module', autouse=True)
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp('slurm')
    script = str(ROOT / 'tools' / 'slurm_node.sh')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SLURM_CONF', str(folder / 'slurm.conf'))
        patch.setenv('JAX_PLATFORMS', 'cpu')
        patch.setenv('JAX_NUM_CPU_DEVICES', '1')
        try:
            subprocess.run([script, 'start', folder], check=True)
            yield
        finally:
            subprocess.run([script, 'stop', folder], check=True)


@pytest.fixture(scope='module')
def unbroken(tmp_path_factory):
    """The folder of the long run, without interruption and without SLURM."""
    folder = tmp_path_factory.mktemp('unbroken') / 'run'
    done = launch_process(*LONG_RUN, f'--workdir={folder}')
    assert done.returncode == 0, done.stderr
    return folder


def test_two_tasks_train_together_to_one_processs_numbers(tmp_path):
    two = ('--launcher=slurm', '--processes=2', '--config.parallel.data=2', f'--workdir={tmp_path / "two"}')
    done = launch_process(*SHORT, *two)
    assert done.returncode == 0, done.stderr + job_output(tmp_path / 'two', 'err')
    assert 'submitted as job ' in done.stderr
    assert launch_process(*SHORT, f'--workdir={tmp_path / "one"}').returncode == 0
    one, two = (json.loads((tmp_path / name / 'results.json').read_text()) for name in ('one', 'two'))
    assert two['perplexity'] == pytest.approx(one['perplexity'], rel=1e-5)
    assert two['command'].endswith(' --distributed') and 'Rank 1 is connected' in job_output(tmp_path / 'two', 'out')


def test_a_sweep_of_four_points(tmp_path):
    (tmp_path / 'study.py').write_text(SWEEP)
    flags = (f'--config={tmp_path / "study.py"}', '--config.train.epochs=20', '--sweep')
    done = launch_process(
        *flags, '--launcher=slurm', '--slurm=time=10,cpus_per_task=1', f'--workdir={tmp_path / "jobs"}'
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count('submitted as job ') == 4 and '0 to go' in done.stderr
    here = launch_process(*flags, f'--workdir={tmp_path / "here"}')
    tables = (
        d.stdout[d.stdout.index('| point') :].splitlines() for d in (done, here)
    )  # the runs print their tables earlier
    jobs, here = ([line.split('|')[1:5] for line in table if line[:1] == '|'] for table in tables)
    assert jobs == here and jobs[2][0].strip() == 'h_3__seed_1'


@pytest.mark.parametrize('ask', [('scontrol', 'requeue'), ('scancel', '--signal=USR2')])
def test_a_requeued_job_goes_on(unbroken, tmp_path, ask):
    """scontrol acts like a preemption. Before the time limit, SLURM sends SIGUSR2, and the job asks to be requeued."""
    folder = tmp_path / 'run'
    flags = (*LONG_RUN, '--launcher=slurm', f'--workdir={folder}')
    first = subprocess.Popen(command(*flags), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(folder.glob('checkpoints/[0-9]*')), 120, _queue)
    first.send_signal(signal.SIGINT)
    _, stderr = first.communicate(timeout=60)
    assert first.returncode == 130 and 'jobs still running: ' in stderr and 'resume with: ' in stderr.splitlines()[-1]
    (number,) = _jobs()
    subprocess.run([*ask, number], check=True)
    wait_until(lambda: '(saved)' in job_output(folder, 'err'), 60, _queue)
    again = launch_process(*flags)  # finds the job in the queue and waits for it
    assert again.returncode == 0, again.stderr
    assert f'submitted as job {number};' in again.stderr
    assert job_output(folder, 'out').count('free parameters') == 2
    assert outcome(folder) == outcome(unbroken)


def test_two_tasks_whose_time_is_over_go_on_together(tmp_path):
    folder = tmp_path / 'two'
    short = ('--config=configs/sentences.py', '--config.train.epochs=100', '--config.train.checkpoint_every=30')
    flags = (*short, '--config.parallel.data=2', '--launcher=slurm', '--processes=2', f'--workdir={folder}')
    waiting = subprocess.Popen(command(*flags), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: any(folder.glob('checkpoints/[0-9]*')), 120, _queue)
    subprocess.run(['scancel', '--signal=USR2', *_jobs()], check=True)
    assert waiting.wait(timeout=300) == 0
    assert job_output(folder, 'err').count('(saved)') == 2 and job_output(folder, 'out').count('free parameters') == 2
    assert launch_process(*short, f'--workdir={tmp_path / "one"}').returncode == 0
    one, two = (json.loads((tmp_path / name / 'results.json').read_text()) for name in ('one', 'two'))
    assert two['perplexity'] == pytest.approx(one['perplexity'], rel=1e-4) and two['updates'] == 300


def test_a_job_that_was_cancelled_and_one_that_is_refused(tmp_path):
    flags = (*LONG_RUN, '--launcher=slurm', f'--workdir={tmp_path / "run"}')
    waiting = subprocess.Popen(command(*flags), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(_jobs, 60, _queue)
    subprocess.run(['scancel', *_jobs()], check=True)
    _, stderr = waiting.communicate(timeout=120)
    assert waiting.returncode == 1 and 'sentences: ' in stderr
    done = launch_process(*flags, '--slurm=partition=none')
    assert done.returncode == 2 and done.stderr.startswith("--launcher='slurm': sbatch: error: "), done.stderr
    assert len(done.stderr.splitlines()) == 1 and 'Invalid partition' in done.stderr


def _jobs():
    return subprocess.run(['squeue', '-h', '-o', '%i'], capture_output=True, text=True, check=True).stdout.split()


def _queue():
    return subprocess.run(['squeue'], capture_output=True, text=True).stdout
