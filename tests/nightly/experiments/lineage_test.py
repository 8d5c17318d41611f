"""Tests that each rung of the ladder changes the documented keys, and that the table's values are correct."""

import json

import pytest
from helpers import refuses

from experiments import results
from experiments.beyond.lineage import ladder, table
from nplm_jax.config import settings as config
from nplm_jax.config.registry import is_neural
from nplm_jax.runs import experiment
from nplm_jax.runs.network_from_settings import network_from_settings


def flat(rung, corpus):
    return config.to_flat(experiment.load_settings(ladder.without_budget(rung, corpus)))


@pytest.mark.parametrize('corpus', ladder.CORPORA)
@pytest.mark.parametrize('rung', ladder.RUNGS)
def test_a_rung_is_a_network_and_changes_only_what_it_says(rung, corpus):
    settings = experiment.load_settings(ladder.without_budget(rung, corpus))
    if is_neural(settings.model.name):
        assert network_from_settings(settings, 2000).num_parameters() > 2000
    if parent := ladder.RUNGS[rung].parent:
        before, after = flat(parent, corpus), config.to_flat(settings)
        changed = {key for key in before.keys() & after if key != 'name' and before[key] != after[key]}
        assert changed and changed <= ladder.RUNGS[rung].keys.keys()


def test_a_rung_that_is_not_there_is_one_line():
    for row in ('nosuch', 'lstm,nosuch'):
        with refuses(f'experiments/beyond/lineage/ladder.py:{row}'):
            ladder.get_config(row)


def made_up(rung, seed, test, **more):
    perplexity = {'train': 1.0, 'valid': 2.0, 'test': test}
    return {'perplexity': perplexity, 'seed': seed, 'settings': results.changed_keys(ladder.get_config(rung)), **more}


def test_the_gain_is_over_the_rung_that_is_changed_and_over_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, 'RESULTS', tmp_path)
    (tmp_path / 'brown').mkdir()
    network = {'parameters': 1000, 'updates': 50, 'epochs': 0.25}
    written = {'paper-1': 100.0, 'batches-1': 40.0, 'batches-2': 90.0, 'sampled-1': 30.0}
    for name, test in written.items():
        rung, seed = name.split('-')
        (tmp_path / 'brown' / f'{name}.json').write_text(json.dumps(made_up(rung, int(seed), test, **network)))
    with refuses('brown'):
        table.draw()
    (tmp_path / 'brown' / 'counts-1.json').write_text(json.dumps(made_up('counts', 1, 50.0)))
    rows = {row[0]: row for row in table.rows('brown')}
    assert rows['paper'][-2:] == ['-', 1] and rows['counts'][3:6] == ['-', '-', '-']
    assert rows['batches'][-3:] == [pytest.approx(60.0), '60.0%', 2]  # the root of 40 * 90; only seed 1 has both
    assert rows['sampled'][-2:] == ['25.0%', 1]
    monkeypatch.setattr(table, 'FIGURE', tmp_path / 'drawn.png')
    pytest.importorskip('matplotlib')
    table.draw()
    assert (tmp_path / 'drawn.png').stat().st_size > 10_000


def test_a_result_of_other_settings_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, 'RESULTS', tmp_path)
    (tmp_path / 'brown').mkdir()
    other = made_up('lstm', 1, 5.0)
    other['settings']['model.dropout'] = 0.1
    (tmp_path / 'brown' / 'lstm-1.json').write_text(json.dumps(other))
    with refuses('brown/lstm-1.json'):
        table.rows('brown')


def test_updates_that_are_not_counted_are_one_line(monkeypatch):
    monkeypatch.setattr(ladder, 'read_json', lambda path: {})
    with refuses('experiments/beyond/lineage/ladder.py'):
        ladder.get_config('lstm')
    assert ladder.get_config('counts').model.family == 'modified_kneser_ney'
