import pytest

from experiments.frontier import tuning
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.errors import BadInput


@pytest.mark.parametrize('point', [f'{corpus},{name}' for corpus, points in tuning.POINTS.items() for name in points])
def test_a_point_changes_what_the_base_has_and_nothing_else(point):
    corpus, _, name = point.partition(',')
    base, made = (tuning.get_config(f'{corpus},{n}') for n in ('base', name))
    base.name = made.name
    base.update_from_flattened_dict(dict(tuning.POINTS[corpus][name]))
    assert base.to_dict() == made.to_dict()
    assert load_settings(made).train.valid_words == load_settings(made).eval.words


def test_an_unknown_point_is_one_line():
    with pytest.raises(BadInput, match=r'tuning.py:brown,nosuch: must be one of brown,base, brown,batch_256, '):
        tuning.get_config('brown,nosuch')
