"""Tests n-best lists and decoders for a language without spaces."""

import pytest
from helpers import refuses
from language_runs import make_runs

from nplm_jax import decoding, kenlm

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), ['chinese'])


def test_alternatives_are_ranked(runs, monkeypatch, nplm_command):
    lists = '1 ||| 而人生人 ||| 0\n1 ||| 人人生而自由 ||| 0'
    monkeypatch.setattr('nplm_jax.apps.decoding.rescore.read_stdin', lambda: lists)
    rows, stderr = nplm_command('rescore', runs / 'chinese')
    assert stderr == [] and rows[0].startswith('1 ||| 人人生而自由')


def test_decoders_refuse_a_run_of_subwords(runs):
    one, mixed = kenlm.Model(runs / 'chinese'), kenlm.Model([runs / 'chinese'] * 2)
    for model in (one, mixed):
        with refuses('model'):
            decoding.build_ctcdecoder(['', ' ', 'a'], model)
        for lexicon in (None, {'a': [['a', '|']]}):
            with refuses('model'):
                decoding.Decoder(model, ['-', '|', 'a'], lexicon)


def test_segmented_alternatives_are_scored_without_their_spaces(runs, monkeypatch, nplm_command):
    scores = []
    for words in ('人人生而自由', '人人 生而 自由'):
        monkeypatch.setattr('nplm_jax.apps.decoding.rescore.read_stdin', lambda words=words: f'1 ||| {words} ||| 0')
        (row,), _ = nplm_command('rescore', runs / 'chinese')
        assert row.split(' ||| ')[1] == words
        scores.append(row.split(' ||| ')[-1])
    assert scores[0] == scores[1]
