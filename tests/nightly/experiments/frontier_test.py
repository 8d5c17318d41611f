import pytest
from helpers import refuses

from experiments.beyond.frontier import minutes, tuning
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


@pytest.mark.parametrize('name', ['2k', '16k', '0.2M'])
def test_a_text_of_the_dial_has_about_so_many_words(name, tmp_path):
    path = tmp_path / 'text.txt'
    minutes.write_text(name, path)
    words = len(path.read_text().split())
    wanted = minutes.TEXTS[name].words
    assert wanted <= words < wanted + 3_000  # whole texts of Brown
    minutes.write_text('4k', path)  # exists, so it is not written again
    assert len(path.read_text().split()) == words
