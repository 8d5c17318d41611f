"""Strictness for every test, and small things that many share."""

import functools
import os
import pathlib
import warnings

_SHARED = pathlib.Path(__file__).parents[2] / 'shared' / 'nltk_data'
if _SHARED.is_dir():
    os.environ.setdefault('NLTK_DATA', str(_SHARED))

import jax  # noqa: E402
import pytest  # noqa: E402

from configs import brown, sentences  # noqa: E402
from configs import text as text_config  # noqa: E402
from nplm_jax import config as config_lib  # noqa: E402
from nplm_jax.models.ngram.kneser_ney import DiscountWarning  # noqa: E402
from nplm_jax.runs import experiment, loading  # noqa: E402

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
    return functools.cache(lambda row='': loading.prepare(config_lib.from_config(brown.get_config(row))))


@pytest.fixture(scope='session')
def folders(tmp_path_factory):
    """A network and a model by counting on the same words, and one whose words are others."""
    root = tmp_path_factory.mktemp('runs')
    config = sentences.get_config()
    experiment.run(config, root / 'network')
    config.model.family, config.model.n = 'modified_kneser_ney', 2
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DiscountWarning)  # three sentences are too little text
        experiment.run(config, root / 'counts')
    (root / 'text').write_text('other words here ' * 40)
    config = text_config.get_config()
    config.corpus.path, config.model.family, config.model.n = str(root / 'text'), 'add_delta', 2
    config.corpus.boundary_tokens = False
    experiment.run(config, root / 'other')
    return root
