"""Tests training on eight simulated devices without enough memory for two copies of all parameters."""

import contextlib
import os
import pathlib
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
from helpers import PYTHONPATH, small_settings

from nplm_jax.data import encoding, vocabulary
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.stream import Span
from nplm_jax.data.word_stream import WordStream
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.train import fit, restore_or_init, train

NUM_WORDS, H = 100_000, 512  # U, which contains nearly all parameters, has 205 MB
LIMIT = 12  # in sizes of U: two copies on each device would be 16; the state and the best parameters take 2 in total


def train_within_limit(data: int, model: int, folder: str) -> None:
    """Initializes, makes four updates, validates, saves and restores in a process limited to LIMIT sizes of U."""
    words = [f'w{i}' for i in range(NUM_WORDS)]
    ends = NUM_WORDS - 1000, NUM_WORDS - 500
    corpus = Corpus(Span(0, ends[0]), Span(*ends), Span(ends[1], NUM_WORDS), WordStream.from_words(words))
    changes = {'model.n': 3, 'model.m': 2, 'model.h': H, 'model.direct': False, 'model.dropout': 0.0}
    changes |= {'train.batch_size': 64, 'train.max_steps': 4, 'train.epochs': 1, 'train.steps_per_execution': 2}
    changes |= {'train.valid_words': 64, 'parallel.data': data, 'parallel.model': model}
    run = prepare_run(small_settings(changes), encoding.build_dataset(corpus, vocabulary.build(words)))
    used = int(re.findall(r'VmData:\s+(\d+) kB', pathlib.Path('/proc/self/status').read_text())[0]) * 1024
    limit = used + LIMIT * NUM_WORDS * H * 4
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.closing(CheckpointStore(pathlib.Path(folder))) as store:
        trained = fit(train(run, store, Reporter())).progress
    with contextlib.closing(CheckpointStore(pathlib.Path(folder))) as store:
        state, best, progress = restore_or_init(run, store)
    assert int(state.step) == 4 and progress == trained and np.isfinite(trained.best_valid_nll)
    assert len(best.params['U_VxK'].addressable_data(0)) < -(-2 * NUM_WORDS // model)
    print('restored')


@pytest.mark.nightly
@pytest.mark.eight_devices
@pytest.mark.parametrize('data,model', [(1, 8), (8, 1)])
def test_devices_that_divide_the_words_need_no_memory_for_all_of_them(data, model, tmp_path):
    environment = {**os.environ, 'JAX_NUM_CPU_DEVICES': '8', 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': PYTHONPATH}
    command = [sys.executable, __file__, str(data), str(model), str(tmp_path)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (process.returncode == 0) == (process.stdout == 'restored\n') == (model == 8), process.stderr


if __name__ == '__main__':
    train_within_limit(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
