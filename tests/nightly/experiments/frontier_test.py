import json
import pathlib

import pytest
from helpers import refuses

from experiments import study
from experiments.frontier import minutes, train, tuning
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
    with refuses('experiments/frontier/tuning.py:brown,nosuch'):
        tuning.get_config('brown,nosuch')


def test_a_row_with_teachers_trains_them_first_and_counts_their_seconds(tmp_path, monkeypatch):
    launched = []

    def launch(config, folder, *flags):
        launched.append((config, folder.name, *flags))
        return {'seconds': 10.0 * len(launched)}

    monkeypatch.setattr(train, 'launch', launch)
    monkeypatch.setitem(train.CORPORA, 'brown', tmp_path / 'results')
    flags = ['--rows=five_minutes_taught', f'--runs={tmp_path}']
    for _ in range(2):  # the second time nothing is missing
        study.run('', define=train.define, measure=train.measure, argv=flags)
    teachers = f'{tmp_path}/brown-five_minutes,{tmp_path}/brown-five_minutes-2'
    assert launched == [
        ('configs/brown.py:five_minutes', 'brown-five_minutes', '--config.seed=1'),
        ('configs/brown.py:five_minutes', 'brown-five_minutes-2', '--config.seed=2'),
        ('configs/brown.py:five_minutes', 'brown-five_minutes_taught', f'--config.output.teacher={teachers}'),
    ]
    recorded = json.loads((tmp_path / 'results' / 'five_minutes_taught.json').read_text())
    assert (recorded['seconds'], recorded['teacher_seconds']) == (60.0, 30.0)


def test_a_row_that_mixes_runs_adds_their_seconds(tmp_path, monkeypatch):
    launched = []

    def launch(config, folder, *flags):
        launched.append((config, *flags))
        shared = {'corpus': 'wikitext2', 'vocabulary': 33_278, 'calibration_words': 20_000}
        return {**shared, 'parameters': 100 * len(launched), 'seconds': 10.0 * len(launched)}

    def mix(command, **_):
        *_, first, second, output = command
        models = [
            {'name': folder, 'valid': 90.0, 'test': 80.0, 'weight': 0.5, 'digest': ''} for folder in (first, second)
        ]
        mixtures = {'learned': {'valid': 85.0, 'test': 75.0}, 'equal': {'valid': 86.0, 'test': 76.0}}
        path = pathlib.Path(output.removeprefix('--output='))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({'models': models, 'mixtures': mixtures}))

    monkeypatch.setattr(train, 'launch', launch)
    monkeypatch.setattr(train.subprocess, 'run', mix)
    monkeypatch.setitem(train.CORPORA, 'wikitext2', tmp_path / 'results')
    argv = ['--rows=twenty_minutes_one_hour', f'--runs={tmp_path}']
    study.run('', define=train.define, measure=train.measure, argv=[*argv, '--corpora=brown'])
    assert not launched  # a mixture of another corpus
    study.run('', define=train.define, measure=train.measure, argv=argv)
    rows = 'configs/wikitext2.py:twenty_minutes', 'configs/wikitext2.py:one_hour'
    assert launched == [(row, '--config.seed=1') for row in rows]
    recorded = json.loads((tmp_path / 'results' / 'twenty_minutes_one_hour.json').read_text())
    assert (recorded['seconds'], recorded['parameters']) == (30.0, 300)
    assert recorded['perplexity'] == {'valid': 85.0, 'test': 75.0}
    assert [model['name'] for model in recorded['models']] == [
        f'{tmp_path}/wikitext2-twenty_minutes',
        f'{tmp_path}/wikitext2-one_hour',
    ]


@pytest.mark.parametrize('name', ['2k', '16k', '0.2M'])
def test_a_text_of_the_dial_has_about_so_many_words(name, tmp_path):
    path = tmp_path / 'text.txt'
    minutes.write_text(name, path)
    words = len(path.read_text().split())
    wanted = minutes.TEXTS[name].words
    assert wanted <= words < wanted + 3_000  # whole texts of Brown
    minutes.write_text('4k', path)  # is there
    assert len(path.read_text().split()) == words
