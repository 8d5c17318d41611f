"""Tests that every config and preset can be built, is complete, and has the expected number of parameters."""

import pathlib
import re

import pytest
from flax.traverse_util import flatten_dict
from helpers import refuses

from configs import ap_news, babylm, brown, default, gutenberg, presets, sentences, text, wikitext2, wikitext103
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.sections import PaperRow
from nplm_jax.data.stream import Span
from nplm_jax.models import nplm
from nplm_jax.outputs.output_layer import SparseOutputLayer
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_schedule

BROWN_V = 16_383
# |V|(1 + nm + h) + h(1 + (n-1)m), minus |V|(n-1)m without direct connections, computed by hand.
PARAMETERS = {'mlp1': 5_762_483, 'mlp3': 4_931_283, 'mlp5': 3_299_033, 'mlp7': 2_313_053, 'mlp9': 2_158_273}


NO_FIGURES = PaperRow('', 0, 0, 0)


def test_every_config_file_is_tested_here():
    assert {p.stem for p in pathlib.Path(brown.__file__).parent.glob('*.py')} == {
        '__init__', 'ap_news', 'babylm', 'brown', 'default', 'gutenberg', 'presets', 'sentences', 'text', 'wikitext103',
        'wikitext2',
    }  # fmt: skip


@pytest.mark.parametrize(
    'module', [default, brown, ap_news, wikitext2, sentences, text, babylm, gutenberg, wikitext103]
)
def test_a_config_builds_has_the_keys_of_its_components_and_is_locked(module):
    config = module.get_config()
    assert flatten(config) == config_lib.to_flat(load_settings(config))
    with pytest.raises(AttributeError):
        config.model.hidden = 3


@pytest.mark.parametrize('row', brown.NETWORKS)
def test_a_network_of_table_1_has_the_papers_number_of_parameters(row):
    settings = load_settings(brown.get_config(row))
    shape = settings.model
    by_formula = nplm.num_parameters(shape.n, shape.m, shape.h, shape.direct, BROWN_V)
    assert network_from_settings(settings, BROWN_V).num_parameters() == by_formula == PARAMETERS[row]
    assert make_schedule(settings, Span(0, 800_000)).steps_per_epoch == 800_000 // settings.train.batch_size
    figures = settings.paper
    assert figures.row.startswith(f'{row.upper()}: n={shape.n} h={shape.h} m={shape.m}, ')
    assert figures.train < figures.test < figures.valid


@pytest.mark.parametrize('row', brown.MINUTES)
def test_a_row_of_minutes_trains_a_text_as_it_trains_brown(row):
    ours, browns = (flatten_dict(module.get_config(row).to_dict(), sep='.') for module in (text, brown))
    differences = {key for key in browns if ours[key] != browns[key]}
    assert {key for key in differences if not key.startswith('corpus.')} == {'name'}
    assert ours['name'] == f'text-{row}'


@pytest.mark.parametrize('row', brown.RECURRENT)
def test_a_recurrent_row_has_the_number_of_parameters_of_its_cell(row):
    settings = load_settings(brown.get_config(row))
    network = network_from_settings(settings, BROWN_V)
    m, h, train = settings.model.m, settings.model.h, settings.train
    gates, biases = {'rnn': (1, 1), 'gru': (3, 4), 'lstm': (4, 4)}[row]  # Flax's GRU has an additional bias, inside r
    assert network.num_parameters() == BROWN_V * (m + h + 1) + gates * h * (m + h) + biases * h
    assert settings.model.name == row and settings.paper == NO_FIGURES
    assert network.layout.num_streams(train.batch_size) * settings.model.bptt_length == train.batch_size


def test_a_tied_lstm_has_no_output_matrix_beside_its_word_features():
    m, h = 320, 400
    config = config_lib.override(brown.get_config('one_minute,lstm'), {'model.tied': True, 'model.m': m, 'model.h': h})
    network = network_from_settings(load_settings(config), BROWN_V)
    assert network.num_parameters() == BROWN_V * (m + 1) + 4 * h * (m + h) + 4 * h + h * m
    assert isinstance(network.output, SparseOutputLayer)


def test_presets_of_brown_change_the_words_or_the_recipe():
    settings = load_settings(brown.get_config())
    assert (settings.name, settings.paper.row) == ('brown', '')
    cased = load_settings(brown.get_config('mlp9,cased'))
    assert (
        cased.name == 'brown-mlp9-cased'
        and not cased.corpus.tokenizer.lowercase
        and not cased.corpus.tokenizer.boundary_tokens
    )
    assert cased.model == load_settings(brown.get_config('mlp9')).model
    paper = load_settings(brown.get_config('mlp1,paper'))
    assert (paper.optimizer.name, paper.train.batch_size, paper.model.dropout) == ('paper', 1, 0)
    assert paper.optimizer.decay == 1e-4
    for wrong in ('mlp2', 'mlp1,cased,upper', ',x'):
        with refuses(f'configs/brown.py:{wrong}'):
            brown.get_config(wrong)


@pytest.mark.parametrize(
    'module,num_words,parameters', [(ap_news, 17_964, 11_904_264), (wikitext2, 33_278, 22_026_818)]
)
def test_the_network_of_table_2(module, num_words, parameters):
    settings = load_settings(module.get_config())
    assert settings == load_settings(module.get_config('mlp10'))
    shape = settings.model
    by_formula = nplm.num_parameters(shape.n, shape.m, shape.h, shape.direct, num_words)
    assert network_from_settings(settings, num_words).num_parameters() == by_formula == parameters
    assert (settings.optimizer.decay, settings.train.epochs, shape.name) == (1e-5, 5, 'nplm')


@pytest.mark.parametrize('row', presets.NGRAMS)
def test_a_count_based_row_is_the_same_model_on_every_corpus(row):
    every = [load_settings(module.get_config(row)) for module in (brown, ap_news, wikitext2, sentences, text)]
    assert len({(settings.model.name, settings.model.n) for settings in every}) == 1
    assert row in (every[0].model.name, f'{every[0].model.name}_{every[0].model.n}')
    assert every[-1].name == f'text-{row}'


def test_the_quick_row_is_a_cheap_network_whose_train_perplexity_is_of_a_sample():
    settings = load_settings(brown.get_config('quick'))
    assert settings.model.name == 'nplm' and settings.output.name == 'nce' and 0 < settings.eval.train_words < 10**5
    assert settings.corpus == load_settings(brown.get_config()).corpus


@pytest.mark.parametrize('row,mixed', [('mlp2', 'mlp1'), ('mlp8', 'mlp7'), ('mlp10', 'mlp9'), ('mlp2,cased', 'mlp1')])
def test_a_mixture_row_of_table_1_names_the_network_that_prints_it(row, mixed):
    with refuses(f'configs/brown.py:{row}') as caught:
        brown.get_config(row)
    assert mixed in re.findall(r'\w+', caught.value.problem)


def test_table_2_has_the_papers_figures_on_ap_news_only():
    assert load_settings(wikitext2.get_config('kneser_ney_5')).paper == NO_FIGURES
    assert load_settings(wikitext2.get_config()).paper == NO_FIGURES
    assert load_settings(ap_news.get_config('modified_kneser_ney_5')).paper == NO_FIGURES
    figures = load_settings(ap_news.get_config('kneser_ney_5')).paper
    assert figures == PaperRow('Kneser-Ney back-off', 0, 112, 117)
    for row in ap_news.PAPER:
        assert load_settings(ap_news.get_config(row)).paper.valid == ap_news.PAPER[row][1]


def test_ap_news_is_prepared_as_in_the_paper():
    corpus = load_settings(ap_news.get_config()).corpus
    assert (
        corpus.tokenizer.lowercase
        and corpus.tokenizer.numbers
        and corpus.tokenizer.proper_nouns
        and corpus.max_vocabulary == 17_964
    )
    assert (corpus.train, corpus.valid) == (13_994_528, 963_138)
    by_paper = load_settings(ap_news.get_config('mlp10,paper'))
    assert (by_paper.name, by_paper.train.epochs, by_paper.optimizer.decay) == (
        'ap_news-mlp10-paper',
        5,
        1e-5,
    )
    assert (by_paper.optimizer.name, by_paper.train.batch_size) == ('paper', 1)


@pytest.mark.parametrize('module', [ap_news, wikitext2])
def test_a_row_that_table_2_does_not_have_is_refused(module):
    for wrong in ('mlp9', 'classes_500', 'kneser_ney_5,papers', ''):
        with refuses(f'{module.__name__.replace(".", "/")}.py:{wrong}') as caught:
            module.get_config(wrong)
        assert 'mlp10, interpolated, ' in caught.value.problem


COUNTS = [row for row in brown.TABLE1 if row not in brown.NETWORKS]


@pytest.mark.parametrize('row', COUNTS)
def test_the_name_of_a_count_based_row_says_its_model(row):
    settings = load_settings(brown.get_config(row))
    family, *rest = row.removeprefix('modified_').split('_') if 'kneser' not in row else (row[:-2], row[-1])
    assert settings.model.name == family
    if family == 'classes':
        assert settings.model.classes == int(rest[0]) and settings.model.n == int(rest[1] if rest[1:] else 3)
    else:
        assert settings.model.n == int(rest[0] if rest else 3)
