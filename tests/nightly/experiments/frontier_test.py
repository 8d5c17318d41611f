import pytest
from helpers import no_app_missing, refuses

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
    minutes.write_text('4k', path)  # is there
    assert len(path.read_text().split()) == words


def test_a_calibrated_network_is_compared_with_the_calibrated_5_gram_of_its_corpus():
    with no_app_missing():
        from experiments.beyond.frontier import table  # noqa: PLC0415 (needs the app of adaptive models)

    found = {'family': 'lstm', 'perplexity': {'valid': 110.0, 'test': 100.0}}
    counts = table.Point(table.KN5, {**found, 'perplexity': {'valid': 220.0, 'test': 200.0}})
    runs = [counts, table.Point('plain', found), table.Point('calibrated', {**found, 'calibration_words': 5})]
    column = table.HEADER.index('/ KN5')
    assert [row[column] for row in table.rows(runs, 125.0)] == ['1.00', '0.50', '0.80']
    assert [row[column] for row in table.rows(runs)] == ['1.00', '0.50', '-']  # of a corpus without that 5-gram
