"""Trains turn by turn for race.py, with the nplm_jax of the checkout that is in PYTHONPATH.

Reads one JSON command per line and answers each with one line of JSON. This module imports no other tool, so that every
checkout can run it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from configs import brown
from nplm_jax.config import settings
from nplm_jax.data import dataset
from nplm_jax.data.stream import Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.runs import experiment
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step

EPOCHS = 1000  # far more updates than a race makes, so that the learning rate stays above zero
Execute = Callable[[], np.ndarray]  # performs some updates in one execution and returns their mean NLLs, nats per word


def make_config(row: str, changes: dict[str, Any]) -> Any:
    """Returns the config of a row of configs/brown.py (`default`: without a preset), with some keys changed."""
    return settings.override(brown.get_config('' if row == 'default' else row), changes)


def make_data(config: Any, V: int, steps: int) -> dataset.Dataset:
    """Returns a data set of words drawn according to Zipf's law. An epoch has `steps` updates."""
    share_V = 1 / np.arange(1, V + 1)
    num_train = steps * config.train.batch_size
    rng = np.random.default_rng(config.seed)
    ids = rng.choice(V, num_train + 2, p=share_V / share_V.sum()).astype(np.int32)
    return dataset.Dataset(
        tokens_T=jnp.asarray(ids),
        train=Span(0, num_train),
        valid=Span(num_train, num_train + 1),
        test=Span(num_train + 1, num_train + 2),
        vocabulary=Vocabulary(tuple(f'w{i}' for i in range(V)), (0,) * V),
    )


def make_execute(config: Any, V: int, steps: int) -> Execute:
    """Returns the updates of a config."""
    run = prepare_run(experiment.load_settings(config), make_data(config, V, steps))
    state = run.program.sharding.shard(run.init_state())

    def execute() -> np.ndarray:
        nonlocal state
        state, nll_S = step.execute_steps(*run.chunk(state, 0))
        return np.asarray(nll_S)

    return execute


def compile_entry(row: str, changes: dict[str, Any], vocabulary: int, steps: int) -> tuple[Execute, dict[str, Any]]:
    """Creates an entry, without previously compiled programs. Returns its updates and the times of its start."""
    jax.clear_caches()
    config = make_config(row, {**changes, 'train.steps_per_execution': steps, 'train.epochs': EPOCHS})
    started, cpu_started = time.perf_counter(), time.process_time()
    execute = make_execute(config, vocabulary, steps)
    prepared = time.perf_counter()
    nll = [execute()]
    first, cpu_first = time.perf_counter(), time.process_time()
    nll += [execute(), execute()]
    steady, cpu_steady = (time.perf_counter() - first) / 2, (time.process_time() - cpu_first) / 2
    start: dict[str, Any] = {'batch_size': config.train.batch_size}
    start |= {'prepare': prepared - started, 'compile': first - prepared - steady, 'steady': steady}
    start['cpu_seconds'] = cpu_first - cpu_started - cpu_steady
    return execute, {**start, 'nll': np.concatenate(nll).tolist()}


def main() -> None:
    """Executes commands until the input ends: `compile` an entry, or time a `turn` of an entry."""
    entries: dict[str, Execute] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command['name']
        if 'compile' in command:
            entries[name], answer = compile_entry(**command['compile'])
        else:
            started, cpu_started = time.perf_counter(), time.process_time()
            for _ in range(command['executions']):
                entries[name]()
            answer = {'seconds': time.perf_counter() - started, 'cpu_seconds': time.process_time() - cpu_started}
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    main()
