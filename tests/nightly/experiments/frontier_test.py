import pytest
from helpers import refuses

from experiments.beyond.frontier import tuning
from nplm_jax.config import settings as config_lib
from nplm_jax.runs.experiment import load_settings


@pytest.mark.parametrize('point', [f'{corpus},{name}' for corpus, points in tuning.POINTS.items() for name in points])
def test_a_point_changes_what_the_base_has_and_nothing_else(point):
    corpus, _, name = point.partition(',')
    base, made = (tuning.get_config(f'{corpus},{n}') for n in ('base', name))
    base = config_lib.override(base, {**tuning.POINTS[corpus][name], 'name': made.name})
    assert base.to_dict() == made.to_dict()
    assert load_settings(made).train.valid_words == load_settings(made).eval.words


def test_an_unknown_point_is_one_line():
    with refuses('experiments/beyond/frontier/tuning.py:brown,nosuch'):
        tuning.get_config('brown,nosuch')
