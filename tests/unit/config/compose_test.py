"""Tests the value of --config: a preset, followed by components that replace sections of their kinds."""

import json

import pytest
from helpers import plugin_folder, refuses

from nplm_jax.config import compose, plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.records import to_record
from nplm_jax.config.registry import KINDS
from nplm_jax.config.settings import from_record
from nplm_jax.configs import babylm, brown, text, wikitext2
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.errors import BadInput

PLUGINS = """
import dataclasses
import optax
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.models.nplm import Window
from nplm_jax.models.recurrent import Lstm
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.training.rate_schedules import Constant

@dataclasses.dataclass(frozen=True, kw_only=True)
class Wide(Window):
    power: float = 2.0

@dataclasses.dataclass(frozen=True)
class Steady(Constant):
    pause: int = 3

@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrent(Lstm):
    pass

@dataclasses.dataclass(frozen=True, kw_only=True)
class Softer(FullSoftmax):
    smoothing: float = 0.1

@dataclasses.dataclass(frozen=True)
class Words(WordTokenizer):
    most: int = 3

@dataclasses.dataclass(frozen=True)
class Listed(WordTokenizer):
    @property
    def tokens(self):
        return ['a', 'b']

@dataclasses.dataclass(frozen=True, kw_only=True)
class Coded(FullSoftmax):
    takes_new_words = False

def plain(learning_rate, gain=1.0):
    return optax.chain(optax.sgd(learning_rate), optax.scale(gain))

def moved(learning_rate, gain=2.0, push=1.0):
    return optax.chain(optax.sgd(learning_rate), optax.scale(gain * push))

def letters(count=200):
    return ['a b c d ' * count]

SOMETHING = 3
"""


@pytest.fixture
def words_module(tmp_path, monkeypatch):
    with plugin_folder(tmp_path, monkeypatch, words_module=PLUGINS):
        yield 'words_module'


def choices(config):
    """Returns the name of each component of a config."""
    values = flatten(config)
    return {key: values[key] for key in KINDS if key in values}


def section_of(config, section):
    """Returns the values of a section of a config."""
    return flatten(config[section], f'{section}.')


def test_every_component_has_a_name_of_its_own_and_its_kind():
    names = [name for kind in KINDS.values() for name in kind.paths]
    assert len(set(names)) == len(names)
    assert all(compose.kind_of(name) == key for key, kind in KINDS.items() for name in kind.paths)


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        ('mlp9,lstm,nce,adam', {'model.family': 'lstm', 'output.kind': 'nce', 'optimizer.name': 'adam'}),
        ('mlp9,trapezoid', {'optimizer.schedule': 'trapezoid'}),
        ('quick,characters', {'corpus.tokens': 'characters'}),
        ('mlp9,cased,transformer', {'model.family': 'transformer'}),
        ('transformer', {'model.family': 'transformer'}),
    ],
)
def test_components_replace_those_of_the_preset_and_no_others(words, expected):
    config, preset = brown.get_config(words), brown.get_config(words.split(',')[0] if ',' in words else '')
    assert choices(config) == {**choices(preset), **expected}
    load_settings(config)
    assert config.name == 'brown-' + words.replace(',', '-')


def test_a_component_has_the_defaults_of_its_section_and_other_sections_those_of_the_preset():
    made, preset = brown.get_config('mlp9,lstm,rowwise_adam'), brown.get_config('mlp9')
    alone = config_lib.override({}, {'model.family': 'lstm', 'optimizer.name': 'rowwise_adam'})
    for section in ('model', 'optimizer'):
        assert section_of(made, section) == section_of(alone, section)
    for section in ('corpus', 'train', 'eval', 'output'):
        assert section_of(made, section) == section_of(preset, section)
    assert (preset.model.m, made.model.m) == (30, 100) and made.optimizer.learning_rate == 0.003


def test_a_component_that_the_preset_has_gets_its_defaults_too():
    assert brown.get_config('mlp9,nplm').model == config_lib.default_config().model
    assert brown.get_config('mlp9').model != config_lib.default_config().model


def test_words_of_the_config_file_come_before_components():
    lstm, by_words = brown.get_config('lstm'), brown.get_config('mlp9,lstm')
    assert (lstm.model.h, by_words.model.h) == (256, config_lib.override({}, {'model.family': 'lstm'}).model.h)
    assert brown.get_config('mlp9,paper').train.batch_size == 1


@pytest.mark.parametrize('module', [text, wikitext2, babylm])
def test_without_a_preset_components_change_the_default(module):
    default, changed = module.get_config(), module.get_config('gru')
    assert choices(changed) == {**choices(default), 'model.family': 'gru'}
    assert changed.train == default.train or module is babylm


def test_a_count_based_model_has_no_section_of_a_network():
    config = brown.get_config('mlp9,kneser_ney')
    assert choices(config) == {'model.family': 'kneser_ney', 'corpus.tokens': 'words'}
    assert not {'output', 'optimizer', 'train'} & {*config}


def test_the_kind_of_a_plug_in_is_its_base_class_or_what_its_function_takes(words_module):
    config = brown.get_config(f'mlp9,{words_module}:Wide,{words_module}:Steady,{words_module}:plain')
    names = {'model.family': 'Wide', 'optimizer.schedule': 'Steady', 'optimizer.name': 'plain'}
    assert {key: choices(config)[key] for key in names} == {
        key: f'{words_module}:{name}' for key, name in names.items()
    }
    settings = load_settings(config)
    assert (settings.model.power, settings.optimizer.options['gain']) == (2.0, 1.0)
    assert brown.get_config(f'quick,{words_module}:letters').corpus.name == f'{words_module}:letters'


@pytest.mark.parametrize(
    'words',
    [
        'mlp9,lstmm',
        'lstm,gru',
        'mlp9,gru,lstm',
        'mlp9,adam,sgd',
        'mlp9,,lstm',
        'mlp2x',
        'mlp9,mlp7',
    ],
)
def test_words_that_name_nothing_or_two_of_a_kind_are_refused(words):
    with refuses(f'configs/brown.py:{words}'):
        brown.get_config(words)


@pytest.mark.parametrize('word,hint', [('MLP1', '; did you mean mlp1? '), ('zzzzzz', '. ')])
def test_the_similar_name_comes_before_all_names(word, hint):
    with refuses(f'configs/brown.py:{word}') as caught:
        brown.get_config(word)
    assert f'there is no preset or component named {word}{hint}The presets are mlp1, ' in str(caught.value)


@pytest.mark.parametrize('words', ['lstm,mlp9', 'nce,quick', 'cased,large'])
def test_a_preset_after_other_words_is_told_where_it_belongs(words):
    with refuses(f'configs/brown.py:{words}') as caught:
        brown.get_config(words)
    assert words.split(',')[1] in caught.value.problem and 'first' in caught.value.problem


@pytest.mark.parametrize('words', ['10m,kneser_ney_3,kneser_ney_5', 'residual,interpolated'])
def test_two_models_among_the_words_of_the_config_file_are_refused(words):
    with refuses(f'configs/babylm.py:{words}'):
        babylm.get_config(words)


@pytest.mark.parametrize('word', [':Body', 'my-module:Body', 'a b:c'])
def test_a_word_that_is_no_import_path_is_refused(word):
    with refuses('--config') as caught:
        brown.get_config(f'mlp9,{word}')
    assert caught.value.value == word


@pytest.mark.parametrize('name', ['SOMETHING', 'missing', ''])
def test_a_plug_in_of_no_kind_is_refused(words_module, name):
    with refuses('--config') as caught:
        brown.get_config(f'mlp9,{words_module}:{name}')
    assert caught.value.value == f'{words_module}:{name}'


def test_components_that_were_named_are_told_from_those_of_the_preset():
    assert compose.components_among(brown.get_config('mlp9,lstm'), 'mlp9,lstm') == {'model.family': 'lstm'}
    assert compose.components_among(brown.get_config('mlp9'), 'mlp9') == {}
    assert compose.components_among(brown.get_config(), '') == {}


@pytest.mark.parametrize(
    ('preset', 'names'),
    [
        ('quick', ['Wide', 'Recurrent', 'Softer', 'Coded', 'plain', 'Steady', 'Words', 'Listed', 'letters']),
        ('quick,lstm', ['Softer', 'plain', 'Steady', 'Words', 'Listed', 'letters']),
        ('quick,kneser_ney', ['Words', 'Listed', 'letters']),
    ],
)
def test_the_record_of_a_run_with_a_plug_in_is_read_back_with_and_without_its_module(words_module, preset, names):
    for name in names:
        settings = load_settings(brown.get_config(f'{preset},{words_module}:{name}'))
        record = json.loads(json.dumps(to_record(config_lib.to_dict(settings))))
        assert config_lib.to_flat(unknown := from_record(record)) == config_lib.to_flat(settings), name
        assert config_lib.replace(config_lib.replace(unknown, {'seed': 2}), {'seed': settings.seed}) == unknown, name
        with plugins.trust([words_module]):
            assert from_record(record) == settings, name


@pytest.mark.parametrize(
    ('name', 'changes', 'gone'),
    [
        ('plain', {'optimizer.name': 'adam'}, 'optimizer.options.gain'),
        ('plain', {'model.family': 'kneser_ney'}, 'optimizer.options.gain'),
        ('Wide', {'model.family': 'lstm'}, 'model.power'),
        ('Softer', {'output.kind': 'nce'}, 'output.smoothing'),
        ('Softer', {'model.family': 'kneser_ney'}, 'output.smoothing'),
        ('Steady', {'optimizer.schedule': 'linear'}, 'optimizer.pause'),
        ('Steady', {'optimizer.name': 'paper'}, 'optimizer.pause'),
        ('Words', {'corpus.tokens': 'bytes'}, 'corpus.most'),
        ('letters', {'corpus.name': 'brown'}, 'corpus.options.count'),
    ],
)
def test_the_keys_of_a_plug_in_that_is_replaced_go_with_it(words_module, name, changes, gone):
    config = brown.get_config(f'quick,{words_module}:{name}')
    assert gone in flatten(config)
    made = config_lib.override(config, changes)
    assert gone not in flatten(made)
    load_settings(made)


def test_a_plug_in_in_place_of_another_has_its_own_options(words_module):
    config = config_lib.override(brown.get_config(f'quick,{words_module}:plain'), {'optimizer.options.gain': 3.0})
    made = config_lib.override(config, {'optimizer.name': f'{words_module}:moved'})
    assert made.optimizer.options.to_dict() == {'gain': 2.0, 'push': 1.0}
    assert config_lib.override(config, {'seed': 3}).optimizer.options.gain == 3.0


@pytest.mark.parametrize(
    ('words', 'key'),
    [
        (('kneser_ney', 'nce'), 'output.kind'),
        (('kneser_ney', 'full'), 'output.kind'),
        (('kneser_ney', 'adam'), 'optimizer.name'),
        (('kneser_ney', 'sgd'), 'optimizer.name'),
        (('kneser_ney', 'linear'), 'optimizer.schedule'),
        (('paper', 'linear'), 'optimizer.schedule'),
        (('paper', 'cosine'), 'optimizer.schedule'),
        (('kneser_ney', 'words_module:Softer'), 'output.kind'),
        (('paper', 'words_module:Steady'), 'optimizer.schedule'),
    ],
)
def test_a_component_without_a_place_beside_the_others_is_refused_in_any_order(words_module, words, key):
    for ordered in (words, words[::-1]):
        with pytest.raises(BadInput) as caught:
            text.get_config(','.join(ordered))
        assert key in caught.value.key


def test_the_order_of_components_does_not_matter(words_module):
    words = ['lstm', 'words_module:plain', 'nce', 'words_module:Steady', 'characters']
    first, last = (flatten(brown.get_config(','.join(['quick', *ordered]))) for ordered in (words, words[::-1]))
    assert {**first, 'name': ''} == {**last, 'name': ''}
