"""Tests that commands set the JAX settings that affect results, and that functions reject other values."""

import contextlib
import json
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
from helpers import ROOT, one_line, refuses
from packaging.requirements import Requirement

from configs import sentences
from nplm_jax.distributed import jax_settings
from nplm_jax.inference import generation
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, loading

REQUIREMENTS = [line for line in (ROOT / 'requirements.txt').read_text().splitlines() if line[0] != '#']
OTHERS = {
    'JAX_ENABLE_X64': '1',
    'JAX_NUMPY_DTYPE_PROMOTION': 'strict',
    'JAX_DEFAULT_PRNG_IMPL': 'rbg',
    'JAX_THREEFRY_PARTITIONABLE': '0',
    'JAX_RANDOM_SEED_OFFSET': '7',
    'JAX_HIGH_DYNAMIC_RANGE_GUMBEL': '1',
}


def start(*arguments, **variables):
    command = [sys.executable, *map(str, arguments)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.nightly
def test_a_run_and_a_command_give_the_same_in_every_environment(folders, tmp_path, nplm_command):
    done = start('launch.py', '--config=configs/sentences.py', f'--workdir={tmp_path}/run', **OTHERS)
    assert done.returncode == 0, done.stderr
    for name in OTHERS:
        assert f'{name}=' in done.stderr and f' {name.lower()}=' in done.stderr
    perplexities = [catalog.finished(folder)['perplexity'] for folder in (folders / 'network', tmp_path / 'run')]
    assert perplexities[0] == perplexities[1]
    flags = ['generate', tmp_path / 'run', '--words=9', '--seed=3', '--json']
    expected, _ = nplm_command(*flags)
    done = start('-m', 'nplm_jax.cli', *flags, **OTHERS)
    assert json.loads(done.stdout) == json.loads(*expected) and len(done.stderr.splitlines()) == len(OTHERS)


@contextlib.contextmanager
def seed_offset(value):
    jax.config.update('jax_random_seed_offset', value)
    try:
        yield
    finally:
        jax.config.update('jax_random_seed_offset', 0)


@pytest.mark.parametrize(
    'setting, key',
    [
        (lambda: jax.enable_x64(True), 'jax_enable_x64'),
        (lambda: jax.numpy_dtype_promotion('strict'), 'jax_numpy_dtype_promotion'),
        (lambda: jax.default_prng_impl('rbg'), 'jax_default_prng_impl'),
        (lambda: jax.threefry_partitionable(False), 'jax_threefry_partitionable'),
        (lambda: seed_offset(5), 'jax_random_seed_offset'),
    ],
)
def test_functions_name_a_setting_that_does_not_work_and_leave_it(folders, tmp_path, setting, key):
    model = loading.load(folders / 'counts').model
    calls = [
        lambda: experiment.run(sentences.get_config(), tmp_path / 'run'),
        lambda: loading.load(folders / 'network'),
        lambda: generation.sample(model, [], 2, 1),
    ]
    with setting():
        before = {name: getattr(jax.config, name) for name in jax_settings.REQUIRED}
        for call in calls:
            with refuses(key):
                call()
        assert before == {name: getattr(jax.config, name) for name in jax_settings.REQUIRED}
    assert not (tmp_path / 'run').exists()


def test_a_platform_that_jax_cannot_use_is_one_line(folders, tmp_path):
    for arguments in (
        ['launch.py', '--config=configs/sentences.py', f'--workdir={tmp_path}/run'],
        ['-m', 'nplm_jax.cli', 'generate', folders / 'network'],
    ):
        done = start(*arguments, JAX_PLATFORMS='nonsense')
        assert done.returncode == 2
        one_line(done.stderr, "JAX_PLATFORMS='nonsense'")


def test_the_installed_jaxlib_computes_a_product_in_a_mapped_sum_as_without_compilation():
    """jaxlib 0.10.2 miscompiles this program on CPUs for more than 32,768 rows (jax #39103)."""
    x_BxD = jnp.zeros((32_769, 3)).at[:, 0].set(jnp.arange(32_769))
    matrix_DxD = jnp.eye(3)

    def squares(x_BxD):
        return jax.vmap(lambda x_D: jnp.sum(jnp.square(matrix_DxD @ x_D)))(x_BxD)

    expected_B = np.square(np.arange(32_769, dtype=np.float64))
    np.testing.assert_allclose(jax.jit(squares)(x_BxD), expected_B, rtol=1e-6)
    np.testing.assert_allclose(squares(x_BxD), expected_B, rtol=1e-6)


@pytest.mark.parametrize('version', ['0.10.2', '0.11.1'])
def test_a_jaxlib_that_is_excluded_is_refused_in_one_line(
    folders, tmp_path, nplm_command, monkeypatch, capsys, version
):
    excluded = [r.specifier for r in map(Requirement, REQUIREMENTS) if r.name in ('jax', 'jaxlib')]
    assert len(excluded) == 2 and not any(version in specifier for specifier in excluded)
    monkeypatch.setattr(jaxlib, '__version__', version)
    message = f"^jaxlib='{version}': .*; install another version: pip install .*!={version}.*$"
    for call in (
        lambda: experiment.run(sentences.get_config(), tmp_path / 'run'),
        lambda: loading.load(folders / 'network'),
    ):
        with refuses('jaxlib'):
            call()
    with pytest.raises(SystemExit):
        nplm_command('generate', folders / 'network')
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(message, line)
