"""Every config and row builds, is complete, and has the number of parameters that its network should have."""

import dataclasses
import pathlib

import jax
import pytest
from flax.traverse_util import flatten_dict

from configs import ap_news, brown, default, rows, sentences, text, wikitext2
from nplm_jax import config as config_lib
from nplm_jax.data.corpora import Span
from nplm_jax.models import nplm
from nplm_jax.training import loop, schedule
from nplm_jax.utils.errors import BadInput

BROWN_V = 16_383
# |V|(1 + nm + h) + h(1 + (n-1)m), less |V|(n-1)m without direct connections, worked out by hand.
PARAMETERS = {'mlp1': 5_762_483, 'mlp3': 4_931_283, 'mlp5': 3_299_033, 'mlp7': 2_313_053, 'mlp9': 2_158_273}


@pytest.mark.parametrize('row', brown.NETWORKS)
def test_brown_rows(row):
    frozen = config_lib.from_config(brown.get_config(row))
    shapes = jax.eval_shape(lambda: nplm.init(jax.random.key(0), frozen.model, BROWN_V))
    assert nplm.count(shapes) == frozen.model.num_parameters(BROWN_V) == PARAMETERS[row]
    assert (
        frozen.paper.row.startswith(f'{row.upper()}: n=')
        and frozen.paper.train < frozen.paper.test < frozen.paper.valid
    )
    assert schedule.make_schedule(frozen, Span(0, 800_000)).steps_per_epoch == 800_000 // frozen.train.batch_size


@pytest.mark.parametrize('row', brown.RECURRENT)
def test_recurrent_rows(row):
    frozen = config_lib.from_config(brown.get_config(row))
    shapes = jax.eval_shape(lambda: loop.init_state(frozen, BROWN_V, None, 10)).params
    m, h = frozen.model.m, frozen.model.h
    gates, biases = {'rnn': (1, 1), 'gru': (3, 4), 'lstm': (4, 4)}[row]  # Flax's gru has a bias more, inside r
    assert nplm.count(shapes) == BROWN_V * (m + h + 1) + gates * h * (m + h) + biases * h
    assert (frozen.model.family, frozen.streams * frozen.train.bptt_length) == (row, frozen.train.batch_size)


def test_the_best_network_and_the_cased_words():
    frozen = config_lib.from_config(brown.get_config())
    assert (frozen.name, frozen.paper.row) == ('brown', '')
    cased = config_lib.from_config(brown.get_config('mlp9,cased'))
    assert cased.name == 'brown-mlp9-cased' and not cased.corpus.lowercase and not cased.corpus.boundary_tokens
    assert cased.model == config_lib.from_config(brown.get_config('mlp9')).model
    paper = config_lib.from_config(brown.get_config('mlp1,paper'))
    assert (paper.optimizer.name, paper.train.batch_size, paper.model.dropout) == ('paper', 1, 0)
    assert paper.optimizer.weight_decay == 1e-4
    for wrong in ('mlp2', 'mlp1,cased,upper', ',x'):
        with pytest.raises(BadInput, match='configs/brown.py:'):
            brown.get_config(wrong)


@pytest.mark.parametrize(
    'module,num_words,parameters', [(ap_news, 17_964, 11_904_264), (wikitext2, 33_279, 22_027_479)]
)
def test_the_network_of_table_2(module, num_words, parameters):
    frozen = config_lib.from_config(module.get_config())
    assert frozen == config_lib.from_config(module.get_config('mlp10'))
    shapes = jax.eval_shape(lambda: nplm.init(jax.random.key(0), frozen.model, num_words))
    assert nplm.count(shapes) == frozen.model.num_parameters(num_words) == parameters
    assert (frozen.optimizer.weight_decay, frozen.train.epochs, frozen.model.family) == (1e-5, 5, 'nplm')


@pytest.mark.parametrize('row', rows.NGRAMS)
def test_the_count_based_rows(row):
    models = [config_lib.from_config(module.get_config(row)).model for module in (brown, ap_news, wikitext2)]
    assert models[0] == models[1] == models[2]
    assert row in (models[0].family, f'{models[0].family}_{models[0].n}')


def test_table_2_has_the_papers_figures_on_ap_news_only():
    assert config_lib.from_config(wikitext2.get_config('kneser_ney_5')).paper == config_lib.PaperRow()
    assert config_lib.from_config(wikitext2.get_config()).paper == config_lib.PaperRow()
    assert config_lib.from_config(ap_news.get_config('modified_kneser_ney_5')).paper == config_lib.PaperRow()
    figures = config_lib.from_config(ap_news.get_config('kneser_ney_5')).paper
    assert figures == config_lib.PaperRow('Kneser-Ney back-off', 0, 112, 117)
    for row in ap_news.PAPER:
        assert config_lib.from_config(ap_news.get_config(row)).paper.valid == ap_news.PAPER[row][1]


def test_the_preparation_of_ap_news_and_the_papers_recipe():
    corpus = config_lib.from_config(ap_news.get_config()).corpus
    assert corpus.lowercase and corpus.numbers and corpus.proper_nouns and corpus.max_vocabulary == 17_964
    assert (corpus.train, corpus.valid) == (13_994_528, 963_138)
    by_paper = config_lib.from_config(ap_news.get_config('mlp10,paper'))
    assert (by_paper.name, by_paper.train.epochs, by_paper.optimizer.weight_decay) == ('ap_news-mlp10-paper', 5, 1e-5)
    assert (by_paper.optimizer.name, by_paper.train.batch_size) == ('paper', 1)


@pytest.mark.parametrize('module', [ap_news, wikitext2])
def test_a_row_that_table_2_has_not(module):
    for wrong in ('mlp9', 'classes_500', 'kneser_ney_5,paper', ''):
        with pytest.raises(BadInput, match=f'{wrong}: no such row; rows are mlp10, interpolated, '):
            module.get_config(wrong)


@pytest.mark.parametrize('module', [default, sentences, text])
def test_the_others(module):
    config_lib.from_config(module.get_config())


def test_every_config_file_is_tested_here():
    assert {p.stem for p in pathlib.Path(brown.__file__).parent.glob('*.py')} == {
        '__init__', 'ap_news', 'brown', 'default', 'rows', 'sentences', 'text', 'wikitext2',
    }  # fmt: skip


@pytest.mark.parametrize('module', [default, brown, ap_news, wikitext2, sentences, text])
def test_configs_are_locked(module):
    with pytest.raises(AttributeError):
        module.get_config().model.hidden = 3


COUNTS = [row for row in brown.ROWS if row not in brown.NETWORKS]


@pytest.mark.parametrize('row', COUNTS)
def test_count_based_rows(row):
    frozen = config_lib.from_config(brown.get_config(row))
    family, *rest = row.removeprefix('modified_').split('_') if 'kneser' not in row else (row[:-2], row[-1])
    assert frozen.model.family == family
    if family == 'classes':
        assert frozen.ngram.classes == int(rest[0]) and frozen.model.n == int(rest[1] if rest[1:] else 3)
    else:
        assert frozen.model.n == int(rest[0] if rest else 3)


def test_the_defaults_of_the_settings_are_those_of_the_default_config():
    frozen = config_lib.from_config(default.get_config())
    assert config_lib.OptimizerSettings() == frozen.optimizer
    assert config_lib.TrainSettings() == frozen.train
    assert config_lib.NgramSettings() == frozen.ngram
    assert config_lib.OutputSettings() == frozen.output
    assert config_lib.CorpusSettings('brown') == frozen.corpus
    assert config_lib.PaperRow() == frozen.paper


def test_default_has_exactly_the_keys_of_the_settings():
    def keys(kind, prefix=''):
        for field in dataclasses.fields(kind):
            section = getattr(config_lib, field.type, None)
            yield from keys(section, f'{prefix}{field.name}.') if section else [prefix + field.name]

    assert sorted(flatten_dict(default.get_config().to_dict(), sep='.')) == sorted(keys(config_lib.Settings))
