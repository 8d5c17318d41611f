"""N-best lists of a language without spaces."""

import pytest
from language_runs import make_runs

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), ['chinese'])


def test_alternatives_are_ranked(runs, monkeypatch, nplm_command):
    lists = '1 ||| 而人生人 ||| 0\n1 ||| 人人生而自由 ||| 0'
    monkeypatch.setattr('nplm_jax.apps.decoding.rescore.read_stdin', lambda: lists)
    rows, stderr = nplm_command('rescore', runs / 'chinese')
    assert stderr == [] and rows[0].startswith('1 ||| 人人生而自由')
