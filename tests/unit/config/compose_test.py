"""The words of --config: a preset, then components in place of the sections of their kinds."""

import json

import pytest
from helpers import plugin_folder, refuses

from nplm_jax.config import compose, parts
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.records import from_record, to_record
from nplm_jax.config.registry import PARTS
from nplm_jax.config.settings import FIELDS
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

class Words(WordTokenizer):
    pass

def plain(learning_rate, gain=1.0):
    return optax.chain(optax.sgd(learning_rate), optax.scale(gain))

def moved(learning_rate, gain=2.0, push=1.0):
    return optax.chain(optax.sgd(learning_rate), optax.scale(gain * push))

def letters():
    return ['a b c d ' * 200]

SOMETHING = 3
"""


@pytest.fixture
def words_module(tmp_path, monkeypatch):
    with plugin_folder(tmp_path, monkeypatch, words_module=PLUGINS):
        yield 'words_module'


def choices(config):
    """Returns the name of each part of a config."""
    values = flatten(config)
    return {key: values[key] for key in PARTS}


def test_every_component_has_a_name_of_its_own_and_its_kind():
    names = [name for kind in PARTS.values() for name in kind.paths]
    assert len(set(names)) == len(names)
    assert all(compose.chooser_of(name) == key for key, kind in PARTS.items() for name in kind.paths)


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
    values, preset = flatten(brown.get_config('mlp9,lstm,rowwise_adam')), flatten(brown.get_config('mlp9'))
    for key, value in values.items():
        if key.startswith('model.') and key in FIELDS and key != 'model.family':
            assert value == FIELDS[key].default, key
        elif key.startswith(('corpus.', 'train.', 'eval.', 'output.')):
            assert value == preset[key], key
    assert (preset['model.m'], values['model.m']) == (30, 100)
    assert (values['optimizer.learning_rate'], values['optimizer.schedule']) == (0.003, preset['optimizer.schedule'])


def test_words_of_the_config_file_come_before_components():
    lstm, by_words = brown.get_config('lstm'), brown.get_config('mlp9,lstm')
    assert (lstm.model.h, by_words.model.h) == (256, FIELDS['model.h'].default)
    assert brown.get_config('mlp9,paper').train.batch_size == 1
    assert brown.get_config('one_minute,sgd').model.h == 200 != brown.get_config('five_minutes').model.h


@pytest.mark.parametrize('module', [text, wikitext2, babylm])
def test_without_a_preset_components_change_the_default(module):
    default, changed = module.get_config(), module.get_config('gru')
    assert choices(changed) == {**choices(default), 'model.family': 'gru'}
    assert changed.train == default.train or module is babylm


def test_a_count_based_model_resets_what_only_networks_read():
    settings = load_settings(brown.get_config('mlp9,kneser_ney'))
    assert (settings.model.family, settings.train.epochs) == ('kneser_ney', FIELDS['train.epochs'].default)


def test_the_kind_of_a_plug_in_is_its_base_class_or_what_its_function_takes(words_module):
    config = brown.get_config(f'mlp9,{words_module}:Wide,{words_module}:Steady,{words_module}:plain')
    names = {'model.family': 'Wide', 'optimizer.schedule': 'Steady', 'optimizer.name': 'plain'}
    assert {key: choices(config)[key] for key in names} == {
        key: f'{words_module}:{name}' for key, name in names.items()
    }
    settings = load_settings(config)
    assert (settings.model.options['power'], settings.optimizer.options['gain']) == (2.0, 1.0)
    assert brown.get_config(f'quick,{words_module}:letters').corpus.name == f'{words_module}:letters'


@pytest.mark.parametrize(
    'words', ['mlp9,lstmm', 'lstm,gru,rnn', 'mlp9,gru,lstm', 'mlp9,adam,sgd', 'mlp9,,lstm', 'mlp2x', 'mlp9,mlp7']
)
def test_words_that_name_nothing_or_two_of_a_kind_are_refused(words):
    with refuses(f'configs/brown.py:{words}'):
        brown.get_config(words)


@pytest.mark.parametrize('name', ['SOMETHING', 'missing', ''])
def test_a_plug_in_of_no_kind_is_refused(words_module, name):
    with refuses('--config') as caught:
        brown.get_config(f'mlp9,{words_module}:{name}')
    assert caught.value.value == f'{words_module}:{name}'


def test_components_that_were_named_are_told_from_those_of_the_preset():
    assert compose.chosen(brown.get_config('mlp9,lstm'), 'mlp9,lstm') == {'model.family': 'lstm'}
    assert compose.chosen(brown.get_config('mlp9'), 'mlp9') == {}
    assert compose.chosen(brown.get_config(), '') == {}


@pytest.mark.parametrize(
    ('preset', 'names'),
    [
        ('quick', ['Wide', 'Recurrent', 'Softer', 'plain', 'Steady', 'Words', 'letters']),
        ('quick,lstm', ['Softer', 'plain', 'Steady', 'Words', 'letters']),
        ('quick,kneser_ney', ['Words', 'letters']),
    ],
)
def test_the_record_of_a_run_with_a_plug_in_is_read_back(words_module, preset, names):
    for name in names:
        settings = load_settings(brown.get_config(f'{preset},{words_module}:{name}'))
        assert from_record(json.loads(json.dumps(to_record(settings)))) == settings, name


@pytest.mark.parametrize(
    ('name', 'changes', 'gone'),
    [
        ('plain', {'optimizer.name': 'adam'}, 'optimizer.options'),
        ('Wide', {'model.family': 'lstm'}, 'model.options'),
        ('Softer', {'output.kind': 'nce'}, 'output.options'),
        ('Softer', {'model.family': 'kneser_ney'}, 'output.options'),
        ('Steady', {'optimizer.schedule': 'linear'}, 'optimizer.schedule_options'),
        ('Steady', {'optimizer.name': 'paper'}, 'optimizer.schedule_options'),
    ],
)
def test_the_options_of_a_plug_in_that_is_replaced_go_with_it(words_module, name, changes, gone):
    config = brown.get_config(f'quick,{words_module}:{name}')
    assert any(key.startswith(f'{gone}.') for key in flatten(config))
    made = parts.override(config, changes)
    assert not any(key.startswith(f'{gone}.') for key in flatten(made))
    load_settings(made)


def test_a_plug_in_in_place_of_another_has_its_own_options(words_module):
    config = parts.override(brown.get_config(f'quick,{words_module}:plain'), {'optimizer.options.gain': 3.0})
    made = parts.override(config, {'optimizer.name': f'{words_module}:moved'})
    assert made.optimizer.options.to_dict() == {'gain': 2.0, 'push': 1.0}
    assert parts.override(config, {'seed': 3}).optimizer.options.gain == 3.0


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
