"""Strictness for every test, and small things that many share."""

import functools
import os
import pathlib

_SHARED = pathlib.Path(__file__).parents[2] / 'shared' / 'nltk_data'
if _SHARED.is_dir():
    os.environ.setdefault('NLTK_DATA', str(_SHARED))

import jax  # noqa: E402
import pytest  # noqa: E402

from configs import brown  # noqa: E402
from nplm_jax import experiment, settings  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')


def pytest_collection_modifyitems(config, items):
    if 'slurm' not in config.option.markexpr:
        skip = pytest.mark.skip(reason='installs SLURM and starts it, as root; run with -m slurm')
        for item in items:
            if item.get_closest_marker('slurm'):
                item.add_marker(skip)


@pytest.fixture
def lines(capsys):
    """What was printed since, as (stdout lines, stderr lines)."""
    return lambda: tuple(text.splitlines() for text in capsys.readouterr())


@pytest.fixture(scope='session')
def brown_data():
    """Brown as ids, by row of its config, each read once: '' is closest to the paper, ',cased' as printed."""
    return functools.cache(lambda row='': experiment.prepare(settings.from_config(brown.get_config(row))))
