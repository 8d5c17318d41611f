"""Runs eight_devices.py where eight devices are simulated: their number is fixed once JAX has started."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from configs import sentences
from experiments.parallel import counts, program, table
from nplm_jax import config as config_lib
from nplm_jax.runs import workdir
from nplm_jax.utils.errors import BadInput

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize('which', ['not slow', pytest.param('slow', marks=pytest.mark.slow)])
def test_on_eight_simulated_devices(which):
    env = {**os.environ, 'JAX_NUM_CPU_DEVICES': '8', 'JAX_PLATFORMS': 'cpu'}
    command = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', '-x', 'tests/eight_devices.py', '-m', which]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]


def test_a_folder_belongs_to_a_run_on_any_devices(tmp_path):
    ours = config_lib.from_config(sentences.get_config())
    (tmp_path / workdir.CONFIG).write_text(json.dumps(config_lib.to_dict(ours)))
    workdir.check(tmp_path, dataclasses.replace(ours, parallel=config_lib.ParallelSettings(4, 2)))
    with pytest.raises(BadInput, match='seed=1 there, 2 now'):
        workdir.check(tmp_path, dataclasses.replace(ours, seed=2, parallel=config_lib.ParallelSettings(4, 2)))


# --- the cost model --------------------------------------------------------------------------------------


def test_the_papers_counts():
    assert round(counts.share_of_output_layer(table.MODEL, table.VOCABULARY), 3) == 0.997
    assert counts.numbers_a_word(table.MODEL) == 1 + 5 * 100 + 60
    assert counts.sent_over_words(table.MODEL, 1) == 4 * (2 + counts.numbers_a_word(table.MODEL))


def test_bytes_are_read_from_a_programs_text():
    text = """
      %a = f32[16]{0} all-reduce(%x), replica_groups={{0,1}}
      %b = (f32[16,50]{1,0}, /*index=1*/bf16[]) all-reduce-start(%x, %y)
      %c = f32[16,50]{1,0} get-tuple-element(%b), index=0"""
    assert program.all_reduced_bytes(text) == 64 + 3200 + 2
    with pytest.raises(ValueError, match='all-gather too'):
        program.all_reduced_bytes(text + '\n %d = f32[4]{0} all-gather(%x)')


def test_more_devices_never_lower_what_one_alone_would_take_to_compute():
    free = counts.Machine(network=float('inf'), latency=0.0)
    times = [counts.seconds(table.MODEL, table.VOCABULARY, table.BATCH, 1, p, free) for p in table.DEVICES]
    assert times == sorted(times, reverse=True)
    assert counts.best_mesh(table.MODEL, table.VOCABULARY, table.BATCH, 8, counts.Machine()) == (1, 8)


def test_the_readme_is_the_scripts_output():
    assert table.make(counts.Machine()) in (ROOT / 'experiments' / 'parallel' / 'README.md').read_text()
