"""Strictness for every test, and small things that many share."""

import os
import pathlib

_SHARED = pathlib.Path(__file__).parents[2] / 'shared' / 'nltk_data'
if _SHARED.is_dir():
    os.environ.setdefault('NLTK_DATA', str(_SHARED))

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture
def lines(capsys):
    """What was printed since, as (stdout lines, stderr lines)."""
    return lambda: tuple(text.splitlines() for text in capsys.readouterr())
