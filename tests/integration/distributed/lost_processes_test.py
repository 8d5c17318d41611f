"""Tests the error message of a process after another process of the same run is lost."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import jax
import pytest
from helpers import ROOT, wait_until

from nplm_jax.distributed import multihost
from nplm_jax.executors.processes import free_port
from nplm_jax.utils.errors import BadInput


@pytest.mark.parametrize(
    'error,expected',
    [
        (RuntimeError('anything'), False),
        (RuntimeError('UNAVAILABLE: Gloo, of a plug-in'), False),
        (jax.errors.JaxRuntimeError('UNAVAILABLE: connection lost'), True),
        (jax.errors.JaxRuntimeError('INTERNAL: Gloo all-reduce failed: Connection reset by peer'), True),
        (jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory'), False),
        (jax.errors.JaxRuntimeError('INVALID_ARGUMENT: shapes'), False),
        (OSError('Gloo'), False),
        (BadInput('UNAVAILABLE', 'Gloo'), False),
        (ValueError('UNKNOWN: Gloo AllGather failed: [pair.cc:547] Connection closed by peer'), True),
        (ValueError('operands could not be broadcast together'), False),
        (ValueError('Gloo'), False),
    ],
)
def test_a_status_of_a_collective_is_a_lost_process_and_a_mistake_in_python_is_not(error, expected):
    assert multihost.is_lost_process(error) is expected


@pytest.mark.parametrize('lost', [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_loss_ends_the_other_process_outside_collectives_too(lost, tmp_path):
    port = free_port()
    code = (
        'import os, pathlib, signal, sys, time\n'
        'from nplm_jax.distributed import multihost\n'
        'number, lost = map(int, sys.argv[1:])\n'
        f'multihost.start("localhost:{port}", 2, number, 5, exit)\n'
        'pathlib.Path(str(number)).touch()\n'
        'while number == lost:\n'
        '    if os.path.exists(str(1 - lost)):  # it has connected\n'
        '        os.kill(os.getpid(), signal.SIGKILL)\n'
        '    time.sleep(0.01)\n'
        'time.sleep(60)\n'
    )
    place = {'cwd': tmp_path, 'env': {**os.environ, 'PYTHONPATH': str(ROOT)}}
    both = [
        subprocess.Popen([sys.executable, '-c', code, str(i), str(lost)], stderr=subprocess.PIPE, text=True, **place)
        for i in range(2)
    ]
    _, stderr = both[1 - lost].communicate(timeout=50)
    assert both[1 - lost].returncode and 'another task died' in stderr, stderr
    both[lost].communicate()
    assert both[lost].returncode == -signal.SIGKILL


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(('localhost', port), timeout=1):
        return True
    return False


@pytest.mark.nightly
def test_a_process_that_waits_for_others_hears_sigterm_at_once(tmp_path):
    port = free_port()
    flags = (f'--coordinator=localhost:{port}', '--processes=2', '--process_id=0', f'--workdir={tmp_path}/run')
    command = [sys.executable, 'launch.py', '--config=configs/sentences.py', '--distributed', *flags]
    waiting = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: listens(port), 60)  # for the others
    waiting.send_signal(signal.SIGTERM)
    _, stderr = waiting.communicate(timeout=20)
    assert waiting.returncode == 143 and 'Traceback' not in stderr, stderr
