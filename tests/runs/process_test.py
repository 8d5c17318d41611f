"""What every command does before JAX starts."""

import os
import subprocess
import sys

import jax
import pytest
from helpers import launch

from nplm_jax.runs import process

PROGRAM = """
import nplm_jax.cli  # before JAX: it sets what XLA logs of programs in the cache
import sys, jax, jax.numpy as jnp
from nplm_jax.runs import process
process.set_up_process()
print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))[0, 0])
"""


def test_only_programs_of_the_function_that_is_named_are_deleted(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    names = ['jit_step-0a-cache', 'jit_step-0b-cache', 'jit_step-0a-atime', 'jit_step2-0a-cache', 'jit_f[1]-0a-cache']
    for name in names:
        (tmp_path / name).touch()
    try:
        jax.config.update('jax_compilation_cache_dir', str(tmp_path))
        process.forget_unreadable_program('another warning')
        assert len(list(tmp_path.iterdir())) == 5
        process.forget_unreadable_program(
            "Error reading persistent compilation cache entry for 'jit_step': EOFError: x"
        )
    finally:
        jax.config.update('jax_compilation_cache_dir', before)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[2:])


def test_a_compiled_program_that_was_cut_short_is_compiled_once_more_and_no_more(tmp_path):
    kept = dict(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0', JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES='-1')
    environment = {**os.environ, **kept, 'JAX_COMPILATION_CACHE_DIR': str(tmp_path), 'JAX_PLATFORMS': 'cpu'}

    def start():
        command = [sys.executable, '-c', PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
        return done.stdout, done.stderr

    printed, _ = start()
    programs = list(tmp_path.glob('*-cache'))
    assert programs
    for path in programs:
        os.truncate(path, path.stat().st_size // 2)
    again, warning = start()
    assert again == printed and 'Error reading persistent compilation cache entry' in warning
    assert start() == (printed, '')


@pytest.mark.parametrize(
    'row,discounts', [('kneser_ney_3', 'discount 0.5'), ('modified_kneser_ney_3', 'discounts 0.5, 1 and 1.5')]
)
def test_too_little_text_for_discounts_is_one_line_that_names_the_orders_and_what_is_used(row, discounts, tmp_path):
    done = launch(f'--config=configs/sentences.py:{row}', f'--workdir={tmp_path / "run"}')
    assert done.returncode == 0
    assert done.stderr == (
        f'too little text to estimate the Kneser-Ney discounts of orders 1, 2, 3: using the fixed {discounts}\n'
    )
