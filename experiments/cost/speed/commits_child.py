"""Trains in turns for commits.py, by the nplm_jax of the checkout that PYTHONPATH names, of either API.

Reads one JSON command a line and answers with one JSON line. Stands alone, so that every checkout can run it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.runs.training_from_settings import prepare_run

EPOCHS = 1000  # far more updates than a race makes, so that the learning rate stays above zero
OLD_KEYS = {'output.num_shortlist': 'output.head', 'train.steps_per_execution': 'train.steps_per_dispatch'}
OLD_VALUES = {('output.kind', 'two_level'): 'classes'}
Execute = Callable[[], np.ndarray]  # makes some updates in one execution; returns their mean NLLs, nats a word


def is_old() -> bool:
    """Returns whether the checkout has the flat package of before."""
    return importlib.util.find_spec('nplm_jax.settings') is not None


def make_config(row: str, changes: dict[str, Any]) -> Any:
    """Returns a row of configs/brown.py, whose own is `default`, with some flattened keys changed, by today's names."""
    from configs import brown  # noqa: PLC0415 (of the checkout)

    if is_old():
        changes = {OLD_KEYS.get(key, key): OLD_VALUES.get((key, value), value) for key, value in changes.items()}
    config = brown.get_config('' if row == 'default' else row)
    if importlib.util.find_spec('nplm_jax.config.compose') is not None:  # exactly the keys of its components
        from nplm_jax.config.settings import override  # noqa: PLC0415 (of the checkout)

        return override(config, changes)
    config.update_from_flattened_dict(changes)
    return config


def make_data(config: Any, V: int, steps: int, dataset: type, span: type, vocabulary: type) -> Any:
    """Returns words drawn by Zipf's law as a data set, with the checkout's classes. An epoch has `steps` updates."""
    share_V = 1 / np.arange(1, V + 1)
    num_train = steps * config.train.batch_size
    rng = np.random.default_rng(config.seed)
    ids = rng.choice(V, num_train + 2, p=share_V / share_V.sum()).astype(np.int32)
    words = vocabulary(tuple(f'w{i}' for i in range(V)), (0,) * V)
    return dataset(  # by name: the order of the fields is another in each version
        tokens_T=jnp.asarray(ids),
        train=span(0, num_train),
        valid=span(num_train, num_train + 1),
        test=span(num_train + 1, num_train + 2),
        vocabulary=words,
    )


def old_execute(config: Any, V: int, steps: int) -> Execute:
    """Returns the updates of the flat package."""
    modules = 'dataset', 'parallel', 'plan', 'sampling', 'settings', 'training', 'corpora', 'vocabulary'
    imported = (importlib.import_module(f'nplm_jax.{name}') for name in modules)
    dataset, parallel, plan, sampling, settings, training, corpora, vocabulary = imported
    frozen = settings.from_config(config)
    data = make_data(config, V, steps, dataset.Dataset, corpora.Span, vocabulary.Vocabulary)
    schedule, layout = plan.make_plan(frozen, data.train), parallel.build(frozen)
    bias_V = unigram_log_probabilities(data)
    state = layout.put(training.init_state(frozen, V, bias_V, schedule.total_steps))
    noise = layout.everywhere(sampling.for_data(data, frozen.output))
    tokens_T = layout.everywhere(data.tokens_T)
    positions_T = layout.everywhere(plan.order(frozen, 0, data.train))

    def execute() -> np.ndarray:
        nonlocal state
        constants = frozen, schedule.total_steps, steps, noise, layout
        state, nll_S = training.train_steps(state, tokens_T, positions_T, 0, *constants)
        return np.asarray(nll_S)

    return execute


def new_execute(config: Any, V: int, steps: int) -> Execute:
    """Returns the updates of the package in rooms."""
    from nplm_jax.data import dataset  # noqa: PLC0415
    from nplm_jax.data.stream import Span  # noqa: PLC0415
    from nplm_jax.data.vocabulary import Vocabulary  # noqa: PLC0415
    from nplm_jax.runs import experiment  # noqa: PLC0415
    from nplm_jax.training import step  # noqa: PLC0415

    data = make_data(config, V, steps, dataset.Dataset, Span, Vocabulary)
    run = prepare_run(experiment.load_settings(config), data)
    state = run.program.sharding.shard(run.init_state())

    def execute() -> np.ndarray:
        nonlocal state
        state, nll_S = step.execute_steps(*run.chunk(state, 0))
        return np.asarray(nll_S)

    return execute


def compile_entry(row: str, changes: dict[str, Any], vocabulary: int, steps: int) -> tuple[Execute, dict[str, Any]]:
    """Makes an entry with nothing compiled before. Returns: its updates, and how long its start took."""
    jax.clear_caches()
    config = make_config(row, {**changes, 'train.steps_per_execution': steps, 'train.epochs': EPOCHS})
    started, cpu_started = time.perf_counter(), time.process_time()
    execute = (old_execute if is_old() else new_execute)(config, vocabulary, steps)
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
    """Obeys commands until the input ends: `compile` an entry, or time a `turn` of one."""
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
