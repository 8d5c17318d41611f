"""Compares learning rates with values calculated by hand, and tests runs with a user's schedule."""

import json

import jax
import jax.numpy as jnp
import pytest
from helpers import check_resumed, default_settings, launch, plugin_folder, refuses, same_bits, small_settings

from nplm_jax.runs.experiment import load_settings
from nplm_jax.training.optimizers import make_optimizer
from nplm_jax.utils.errors import BadInput

TRAPEZOID = {'optimizer.schedule': 'trapezoid', 'optimizer.learning_rate': 2.0}
STEPS = """
import dataclasses
from typing import Annotated

import jax.numpy as jnp

from nplm_jax.training.rate_schedules import RateSchedule
from nplm_jax.config.component import Count, in_range, key

Part = Annotated[float, in_range('must be above 0 and at most 1', above=0, most=1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Staircase(RateSchedule):
    factor: Part = key(0.5, 'what the rate is multiplied by at each stair')
    stairs: Count = 4

    def __call__(self, peak, num_steps):
        return lambda step: peak * self.factor ** jnp.floor(self.stairs * step / num_steps)
"""
STAIRCASE = {'optimizer.schedule': 'my_rates:Staircase'}


def rates(changes, total_steps, steps):
    """Returns the learning rates of some updates, computed in a compiled program."""
    rule = default_settings(changes).optimizer
    rate = jax.jit(make_optimizer(rule, total_steps, 1, ()).learning_rate)
    return [float(rate(rule.hyperparams, jnp.int32(step))) for step in steps]


@pytest.mark.parametrize(
    'changes,expected',
    [
        ({}, {0: 2, 50: 2, 80: 2, 81: 1.9, 90: 1, 99: 0.1, 100: 0}),  # the last 20 of 100 updates
        ({'optimizer.cooldown': 0.5}, {0: 2, 50: 2, 51: 1.96, 75: 1, 99: 0.04, 100: 0}),
        ({'optimizer.cooldown': 1.0}, {0: 2, 25: 1.5, 99: 0.02, 100: 0}),
        ({'optimizer.cooldown': 0.001}, {0: 2, 99: 2, 100: 0}),  # at least one update
        ({'optimizer.warmup': 50}, {0: 0, 25: 1, 50: 2, 90: 2, 95: 1, 99: 0.2, 100: 0}),  # the last 10 of 50
    ],
)
def test_a_trapezoid_stays_at_the_peak_and_falls_to_zero_at_the_end(changes, expected):
    assert rates({**TRAPEZOID, **changes}, 100, expected) == pytest.approx(list(expected.values()), abs=1e-6)


@pytest.mark.parametrize('warmup', [0, 7])
def test_a_trapezoid_that_always_falls_is_linear_bit_for_bit(warmup):
    changes = {**TRAPEZOID, 'optimizer.cooldown': 1.0, 'optimizer.warmup': warmup}
    linear = {'optimizer.schedule': 'linear', 'optimizer.learning_rate': 2.0, 'optimizer.warmup': warmup}
    assert rates(changes, 33, range(34)) == rates(linear, 33, range(34))


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'optimizer.cooldown': 0.0}, 'optimizer.cooldown=0.0: must be above 0'),
        ({'optimizer.cooldown': 1.5}, 'optimizer.cooldown=1.5: must be above 0 and at most 1'),
        (
            {'optimizer.schedule': 'linear', 'optimizer.cooldown': 0.5},
            'optimizer.cooldown=0.5: not read by optimizer.schedule=linear',
        ),
    ],
)
def test_a_cooldown_that_is_impossible_or_not_read_is_refused(changes, message):
    with refuses('optimizer.cooldown'):
        load_settings({**TRAPEZOID, **changes})


@pytest.fixture
def my_rates(tmp_path, monkeypatch):
    """The working folder, with a module that defines a schedule."""
    with plugin_folder(tmp_path, monkeypatch, my_rates=STEPS):
        yield tmp_path


@pytest.mark.usefixtures('my_rates')
def test_a_schedule_of_ones_own_follows_the_warm_up():
    changes = {**STAIRCASE, 'optimizer.learning_rate': 2.0, 'optimizer.factor': 0.1}
    assert rates(changes, 40, (0, 9, 10, 20, 39)) == pytest.approx([2, 2, 0.2, 0.02, 0.002])
    expected = [0, 1, 2, 2, 0.2, 0.002]
    assert rates({**changes, 'optimizer.warmup': 10}, 50, (0, 5, 10, 19, 20, 49)) == pytest.approx(expected)


@pytest.mark.nightly
def test_a_schedule_of_ones_own_resumes_and_its_option_changes_the_result(my_rates):
    settings = [small_settings({**STAIRCASE, 'optimizer.factor': factor}) for factor in (0.5, 0.25)]
    ends = [check_resumed(of_factor, my_rates / str(number)) for number, of_factor in enumerate(settings)]
    assert not same_bits(*ends)


def test_a_schedule_of_ones_own_is_swept_over_its_option(my_rates):
    flags = '--config=configs/sentences.py:my_rates:Staircase', '--config.train.epochs=2'
    done = launch(*flags, '--grid', 'optimizer.factor=0.5,0.25', '--workdir=runs', cwd=my_rates)
    assert done.returncode == 0, done.stderr
    records = [json.loads((my_rates / 'runs' / f'factor_{f}' / 'config.json').read_text()) for f in (0.5, 0.25)]
    assert [(r['optimizer']['factor'], r['optimizer']['stairs']) for r in records] == [(0.5, 4), (0.25, 4)]


@pytest.mark.usefixtures('my_rates')
@pytest.mark.parametrize(
    'key,value,refused',
    [
        ('optimizer.factor', 2.0, 'optimizer.factor=2.0'),
        ('optimizer.fctor', 0.5, 'optimizer.fctor'),
        ('optimizer.name', 'paper', "optimizer.schedule='my_rates:Staircase'"),
        ('optimizer.schedule', 'my_rates:Count', "optimizer.schedule='my_rates:Count'"),
        ('optimizer.schedule', 'my_rates:RateSchedule', "optimizer.schedule='my_rates:RateSchedule'"),
    ],
)
def test_a_mistake_is_one_line(key, value, refused):
    with pytest.raises(BadInput) as caught:
        load_settings({**STAIRCASE, key: value})
    (line,) = str(caught.value).splitlines()
    assert line.startswith(refused)
