"""Tests that training on eight simulated devices that divide the words needs less memory than two copies on each."""

import contextlib
import os
import pathlib
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
from nplm_jax.training import train as train_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.train import fit, restore_or_init

NUM_WORDS, H = 100_000, 512  # U, which contains nearly all parameters, has 205 MB
COPIES = 16  # two on each device: the parameters and the best parameters


def train(data: int, model: int, folder: str) -> None:
    """Initializes, makes four updates, validates, saves and restores, and prints the peak memory in sizes of U."""
    words = [f'w{i}' for i in range(NUM_WORDS)]
    ends = NUM_WORDS - 1000, NUM_WORDS - 500
    corpus = Corpus(Span(0, ends[0]), Span(*ends), Span(ends[1], NUM_WORDS), WordStream.from_words(words))
    changes = {'model.n': 3, 'model.m': 2, 'model.h': H, 'model.direct': False, 'model.dropout': 0.0}
    changes |= {'train.batch_size': 64, 'train.max_steps': 4, 'train.epochs': 1, 'train.steps_per_execution': 2}
    changes |= {'train.valid_words': 1, 'parallel.data': data, 'parallel.model': model}
    run = prepare_run(small_settings(changes), encoding.build_dataset(corpus, vocabulary.build(words)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.closing(CheckpointStore(pathlib.Path(folder))) as store:
        trained = fit(train_lib.train(run, store, Reporter())).progress
    with contextlib.closing(CheckpointStore(pathlib.Path(folder))) as store:
        state, best, progress = restore_or_init(run, store)
    assert int(state.step) == 4 and progress == trained and np.isfinite(trained.best_valid_nll)
    assert len(best.params['U_VxK'].addressable_data(0)) < -(-2 * NUM_WORDS // model)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (NUM_WORDS * H * 4))


@pytest.mark.nightly
@pytest.mark.eight_devices
@pytest.mark.parametrize('data,model', [(1, 8), (8, 1)])
def test_devices_that_divide_the_words_need_no_memory_for_all_of_them(data, model, tmp_path):
    environment = {**os.environ, 'JAX_NUM_CPU_DEVICES': '8', 'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': PYTHONPATH}
    command = [sys.executable, __file__, str(data), str(model), str(tmp_path)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert (float(process.stdout) < COPIES) == (model == 8)


if __name__ == '__main__':
    train(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
