"""Tests mapping a function over items in several processes."""

import functools
import operator
import os
import signal
import subprocess
import sys

import pytest
from helpers import ROOT, refuses

from nplm_jax.executors.processes import map_in_processes


@pytest.mark.parametrize('num_processes', [1, 2])
def test_results_come_in_order_and_items_are_read_as_they_are_needed(num_processes):
    num_read = 0

    def items():
        nonlocal num_read
        for number in range(40):
            num_read += 1
            yield number

    results = map_in_processes(functools.partial(operator.add, 100), items(), num_processes)
    assert next(results) == 100 and num_read <= 2 * num_processes + 1
    assert list(results) == list(range(101, 140))


def test_an_error_of_the_function_is_raised_here():
    with pytest.raises(ZeroDivisionError):
        list(map_in_processes(functools.partial(operator.truediv, 1), [1, 0, 1], 2))


def test_a_killed_process_is_one_line():
    with refuses('out of memory'):
        list(map_in_processes(_kill_self, [1, 2, 3], 2))


def test_a_script_that_starts_processes_runs_once_and_leaves_none_behind(tmp_path):
    (script := tmp_path / 'script.py').write_text(
        'import operator\n'
        'from nplm_jax.executors.processes import map_in_processes\n'
        'print(list(map_in_processes(operator.neg, range(3), 2)))\n'
    )
    env = {**os.environ, 'PYTHONPATH': str(ROOT)}
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
    with subprocess.Popen([sys.executable, script], **pipes, env=env, start_new_session=True) as process:
        process.wait(100)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        assert process.communicate() == ('[0, -1, -2]\n', '')


def test_a_process_of_multiprocessing_can_start_processes(tmp_path):
    (script := tmp_path / 'script.py').write_text(
        'import multiprocessing, operator\n'
        'from nplm_jax.executors.processes import map_in_processes\n'
        'def child():\n'
        '    print(list(map_in_processes(operator.neg, range(3), 2)))\n'
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        '    process.start()\n'
        '    process.join()\n'
    )
    env = {**os.environ, 'PYTHONPATH': str(ROOT)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, timeout=100)
    assert (done.stdout, done.stderr) == ('[0, -1, -2]\n', '')


def _kill_self(item):
    os.kill(os.getpid(), signal.SIGKILL)
