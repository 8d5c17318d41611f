"""Tests the neighbours of pieces, for texts in any language."""

import dataclasses

import pytest
from language_runs import make_runs

from nplm_jax.apps.features import brown_tags
from nplm_jax.apps.features import command as features


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), ['network'])


def test_neighbours_of_a_piece_are_asked_for_by_its_text(runs, nplm_command):
    rows, stderr = nplm_command('features', runs / 'network', '--words=hat ␣hat qqq')
    assert [row.split()[1] for row in rows[2:]] == ['hat', '␣hat']
    assert len(stderr) == 1 and 'qqq' in stderr[0]
    assert rows[2].split('|')[2] == rows[3].split('|')[2]  # no piece is `hat` without a space


def test_pieces_of_brown_have_no_parts_of_speech(runs, monkeypatch, nplm_command):
    def load_as_brown(folders, load=features.load_models):
        models = load(folders)
        corpus = dataclasses.replace(models.settings[0].corpus, name='brown')
        return dataclasses.replace(models, settings=[dataclasses.replace(models.settings[0], corpus=corpus)])

    monkeypatch.setattr(features, 'load_models', load_as_brown)
    monkeypatch.setattr(brown_tags, 'parts_of_speech', lambda: {'e': 'noun', 'n': 'verb', 'en': 'adverb'})
    rows, _ = nplm_command('features', runs / 'network')
    assert len(rows) == 2 + 20 and all(row.startswith('|') for row in rows)


def test_the_tokens_of_a_model_of_pieces_cannot_be_changed(runs, lines, nplm_command):
    with pytest.raises(SystemExit):
        nplm_command('features', runs / 'network', '--tokens=words')
    assert lines()[1][-1].startswith("tokens='words': ")
