"""Runs that differ only in numbers, trained as one: `jax.vmap` over their updates, shared out over the devices.

Everything but the updates is done run by run, as alone: reading, validating, saving, stopping, evaluating.
Dims: R runs, B batch, S steps.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import pathlib
import signal
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.outputs import sampled
from nplm_jax.runs import experiment
from nplm_jax.training import dispatching, loop
from nplm_jax.utils import finite
from nplm_jax.utils.errors import BadInput

Section = TypeVar('Section')
# What may differ between runs that train together: these are arguments of the compiled program, all else is in it.
NUMBERS = (
    'seed',
    'optimizer.learning_rate',
    'optimizer.decay',
    'optimizer.paper.epsilon_0',
    'optimizer.paper.r',
    'optimizer.paper.decay',
)
RUNS = 'runs'  # the axis of the mesh over which runs are shared out
Outcome = dict[str, Any] | Exception


def groups(configs: Iterable[ConfigDict]) -> list[list[ConfigDict]]:
    """The configs whose runs can train together, in the order of their first ones; several devices train one run."""
    found: dict[Any, list[ConfigDict]] = {}
    for config in configs:
        wanted = config_lib.from_config(config)
        one_device = wanted.parallel.data == wanted.parallel.model == 1
        found.setdefault(_common(wanted) if one_device else wanted, []).append(config)
    return list(found.values())


def run(configs: Sequence[ConfigDict], folders: Sequence[pathlib.Path], command: str) -> list[Outcome]:
    """`experiment.run` of configs that one of `groups` holds, each with the results that it has alone.

    Returns: what each returns, or the BadInput or NonFiniteError that ended it.
    Raises: training.Interrupted after SIGINT or SIGTERM, once all have saved.
    """
    if len(configs) == 1:
        try:
            return [experiment.run(configs[0], folders[0], command)]
        except (BadInput, finite.NonFiniteError) as error:
            return [error]
    data = functools.cache(lambda: experiment.prepare(config_lib.from_config(configs[0])))
    with experiment.interruptible() as interrupted:
        trigram = functools.cache(lambda: experiment.fit_trigram(data()))
        together = experiment.Together(
            len(configs), lambda _: data(), lambda _: trigram(), lambda: contextlib.nullcontext(interrupted)
        )
        runs = [experiment.dispatches(c, f, command, together) for c, f in zip(configs, folders)]
        outcomes = drive(runs)
    for outcome in outcomes:
        if isinstance(outcome, loop.Interrupted):
            raise outcome
    if signal_number := interrupted():  # after the last update
        signal.raise_signal(signal_number)
    return outcomes


def drive(runs: Sequence[Generator[Callable, Any, Any]]) -> list[Any]:
    """Makes the dispatches that the generators ask for, those at the same update as one.

    A run that stands behind, as a kill may leave it, first catches up with the others.
    Returns: what each returns, or the BadInput, NonFiniteError or Interrupted that ended it.
    """
    outcomes, waiting = [None] * len(runs), {}
    answers = dict.fromkeys(range(len(runs)))
    with dispatching.memory_told(), contextlib.ExitStack() as stack:
        for one in runs:
            stack.callback(one.close)
        while answers:
            for r, answer in answers.items():
                try:
                    waiting[r] = runs[r].send(answer)
                except StopIteration as end:
                    outcomes[r] = end.value
                except (BadInput, finite.NonFiniteError, loop.Interrupted) as error:
                    outcomes[r] = error
            steps = {r: int(dispatch.args[0].step) for r, dispatch in waiting.items()}
            now = {r: waiting.pop(r) for r, step in steps.items() if step == min(steps.values())}
            answers = dict(zip(now, _make(list(now.values()), len(runs))))
    return outcomes


def _make(dispatches: list[functools.partial], most: int) -> list[tuple[loop.TrainState, np.ndarray, float]]:
    """The answers to dispatches of runs at the same update.

    most: as many runs there were. Only 1, 2, 4 ... times fewer are compiled for; the last one fills what is missing.
    """
    if len(dispatches) <= 1:
        return [dispatching.timed(dispatch) for dispatch in dispatches]
    size = most
    while size // 2 >= len(dispatches):
        size //= 2
    filled = dispatches + dispatches[-1:] * (size - len(dispatches))
    states, (tokens_T, *_), orders, (first, *_), wanted, (total, *_), (length, *_), (noise, *_), _ = zip(
        *(d.args for d in filled)
    )
    B = wanted[0].train.batch_size
    numbers = {key: np.array([operator.attrgetter(key)(w) for w in wanted]) for key in NUMBERS}
    numbers = {key: value.astype(np.int32 if key == 'seed' else np.float32) for key, value in numbers.items()}
    orders_RxT = np.stack([np.asarray(order_T)[first * B : (first + length) * B] for order_T in orders])
    mesh = _mesh(size)
    of_each, of_all = (NamedSharding(mesh, spec) for spec in (PartitionSpec(RUNS), PartitionSpec()))
    runs = jax.device_put((jax.tree.map(lambda *x: np.stack(x), *states), orders_RxT, numbers), of_each)
    same = jax.device_put(jax.tree.map(np.asarray, (tokens_T, noise)), of_all)
    call = functools.partial(train_steps, *runs, *same, _common(wanted[0]), total, length, mesh)
    after, nll_RxS, seconds = dispatching.timed(call)
    after = jax.tree.map(np.asarray, after)  # of no device in particular, as a run has them alone
    return [(jax.tree.map(operator.itemgetter(r), after), nll_RxS[r], seconds) for r in range(len(dispatches))]


@functools.partial(jax.jit, static_argnames=('common', 'total_steps', 'num_steps', 'mesh'), donate_argnames='states')
def train_steps(
    states: loop.TrainState,
    orders_RxT: jax.Array,
    numbers: dict[str, jax.Array],
    tokens_T: jax.Array,
    noise: sampled.Noise | None,
    common: config_lib.Settings,
    total_steps: int,
    num_steps: int,
    mesh: Mesh,
) -> tuple[loop.TrainState, jax.Array]:
    """`training.train_steps` of R runs in one dispatch; the first axis of all that differs is that of the runs.

    orders_RxT: the positions of these updates alone. numbers: of each of NUMBERS, R of them. common: all other
    settings. mesh: of one axis, RUNS, that shares them out. Returns: the new states, and the mean NLLs, R x S.
    """

    def one(state, order_T, numbers, tokens_T, noise):
        wanted = _replaced(common, numbers)
        return loop.train_steps.__wrapped__(state, tokens_T, order_T, 0, wanted, total_steps, num_steps, noise)

    runs, everywhere = PartitionSpec(RUNS), PartitionSpec()
    mapped = jax.shard_map(
        jax.vmap(one, (0, 0, 0, None, None)),
        mesh=mesh,
        in_specs=(runs, runs, runs, everywhere, everywhere),
        out_specs=runs,
        check_vma=False,  # nothing crosses the devices
    )
    return mapped(states, orders_RxT, numbers, tokens_T, noise)


def _mesh(runs: int) -> Mesh:
    """As many of the devices as share the runs out evenly."""
    there = jax.local_devices()
    size = max(d for d in range(1, len(there) + 1) if runs % d == 0)
    return jax.make_mesh((size,), (RUNS,), axis_types=(AxisType.Auto,), devices=there[:size])


def _common(wanted: config_lib.Settings) -> config_lib.Settings:
    """The settings less those that may differ; these are the same for all runs of a group."""
    return _replaced(wanted, {**dict.fromkeys(NUMBERS, 0), 'name': '', 'paper': config_lib.PaperRow()})


def _replaced(section: Section, values: Mapping[str, Any]) -> Section:
    """A copy with other values of some flattened keys, unchecked: they may be traced."""
    changed = copy.copy(section)
    for key, value in values.items():
        head, _, rest = key.partition('.')
        value = _replaced(getattr(changed, head), {rest: value}) if rest else value
        object.__setattr__(changed, head, value)
    return changed
