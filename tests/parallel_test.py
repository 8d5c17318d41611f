"""Runs eight_devices.py where eight devices are simulated: their number is fixed once JAX has started."""

import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parent


def test_on_eight_simulated_devices():
    env = {**os.environ, 'JAX_NUM_CPU_DEVICES': '8', 'JAX_PLATFORMS': 'cpu'}
    command = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', '-x', str(TESTS / 'eight_devices.py')]
    done = subprocess.run(command, cwd=TESTS.parent, env=env, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
