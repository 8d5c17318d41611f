"""Neighbours of pieces, for texts in any language."""

import pytest
from language_runs import make_runs


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), ['network'])


def test_neighbours_of_a_piece_are_asked_for_by_its_text(runs, nplm_command):
    rows, stderr = nplm_command('features', runs / 'network', '--words=hat ␣hat qqq')
    assert [row.split()[1] for row in rows[2:]] == ['hat', '␣hat']
    assert len(stderr) == 1 and 'qqq' in stderr[0]
    assert rows[2].split('|')[2] == rows[3].split('|')[2]  # no piece is `hat` without a space
