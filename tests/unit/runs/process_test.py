"""Tests what every command does before JAX starts."""

import os
import subprocess
import sys

import pytest
from helpers import launch, numbers

PROGRAM = """
import nplm_jax.cli
import jax, jax.numpy as jnp
from nplm_jax.runs import process
process.set_up_process()
print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))[0, 0])
"""


def test_programs_from_the_cache_are_loaded_in_silence(tmp_path):
    kept = dict(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0', JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES='-1')
    environment = {**os.environ, **kept, 'JAX_COMPILATION_CACHE_DIR': str(tmp_path), 'JAX_PLATFORMS': 'cpu'}
    for _ in range(2):
        command = [sys.executable, '-c', PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
        assert done.stderr == '' and list(tmp_path.glob('*-cache'))


@pytest.mark.parametrize('row,discounts', [('kneser_ney_3', ['0.5']), ('modified_kneser_ney_3', ['0.5', '1', '1.5'])])
def test_too_little_text_for_discounts_is_one_line_that_names_the_orders_and_what_is_used(row, discounts, tmp_path):
    done = launch(f'--config=configs/sentences.py:{row}', f'--workdir={tmp_path / "run"}')
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert numbers(line) == ['1', '2', '3', *discounts]
