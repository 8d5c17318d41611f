"""Tests that the plug-ins of docs/howto/plugins.md, in a separate folder, train, resume, score and generate."""

import importlib
import pickle
import sys

import pytest
from helpers import plugin_folder, refuses, small_settings
from plugins_page import CONFIG, KINDS, NAMES, OF_A_ROW

import nplm_jax
from nplm_jax.config import plugins
from nplm_jax.config.records import to_record
from nplm_jax.config.settings import from_record, replace, to_dict, to_flat, user_files
from nplm_jax.data import corpora
from nplm_jax.runs import loading
from nplm_jax.runs.experiment import load_settings
from nplm_jax.training.optimizers import make_optimizer


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The working folder, with the files from the page."""
    with plugin_folder(tmp_path, monkeypatch, my_models=KINDS, my_config=CONFIG, my_brown=OF_A_ROW):
        yield tmp_path


@pytest.mark.usefixtures('scratch')
def test_a_config_file_overrides_a_row_whose_other_keys_the_body_does_not_have():
    settings, row = load_settings(nplm_jax.load_config('my_brown.py')), nplm_jax.load_config('brown:mlp9')
    assert (settings.corpus.name, settings.model.name) == ('brown', 'my_models:WeightedMean')
    keys = {key: value for key, value in to_flat(settings).items() if key.startswith('model.')}
    assert keys == {
        'model.family': settings.model.name,
        'model.n': 5,
        'model.m': 30,
        'model.h': 100,
        'model.power': 0.5,
    }
    assert settings.train == load_settings(row).train
    with refuses('model.direct'):
        nplm_jax.override(row, {'model.family': 'my_models:WeightedMean', 'model.direct': True})


@pytest.mark.usefixtures('scratch')
def test_every_field_of_a_plug_in_is_a_key_whose_default_it_has():
    settings = load_settings(NAMES)
    values = to_flat(settings)
    own = {'model.power': 1.0, 'output.smoothing': 0.1, 'optimizer.hold': 10, 'corpus.num_letters': 5}
    of_functions = {'optimizer.options.momentum': 0.9, 'optimizer.options.nesterov': False, 'corpus.options.count': 300}
    assert NAMES.items() | own.items() | of_functions.items() <= values.items()
    changed = {'model.power': 2.0, 'output.smoothing': 0.2, 'optimizer.hold': 3, 'corpus.num_letters': 4}
    made = replace(settings, changed)
    assert to_flat(made) == {**values, **changed}
    found = made.model.power, made.output.smoothing, made.optimizer.schedule.hold, made.corpus.tokenizer.num_letters
    assert found == tuple(changed.values())


@pytest.mark.usefixtures('scratch')
@pytest.mark.parametrize(
    'key,value,said',
    [
        ('model.powr', 1.0, 'model.power'),
        ('model.layers', 3, 'model.power'),
        ('model.options.power', 1.0, 'model.power'),
        ('model.power', -1.0, '0'),
        ('optimizer.options.momentum', float('inf'), 'finite'),
        ('optimizer.options.momentum', 'x', 'number'),
        ('model.family', 'my_models:Missing', 'Missing'),
        ('model.family', 'my_models:WeihgtedMean', '?'),
        ('model.family', 'my_models:', ''),
        ('model.family', 'my_modelz:Body', 'my_modelz'),
        ('model.family', 'broken:Body', 'SyntaxError: '),
        ('model.family', 'my_models:sums', 'class'),
        ('optimizer.schedule', 'my_models:sums', 'class'),
        ('optimizer.hold', 0, '1'),
        ('corpus.num_letters', '4', 'int'),
        ('corpus.size', 4, 'num_letters'),
        ('output.kind', 'my_models:WeightedMean', 'nplm_jax'),
        ('optimizer.name', 'my_models:sums', 'learning_rate'),
        ('optimizer.name', 'my_models:WeightedMean', ''),
        ('corpus.name', 'my_models:signum', ''),
        ('corpus.name', 'program:texts', 'SystemExit: 3'),
        *((kind, ':Body', 'package.module:Name') for kind in NAMES),
    ],
)
def test_a_mistake_is_one_line(key, value, said, tmp_path):
    (tmp_path / 'broken.py').write_text('def f(:\n')
    (tmp_path / 'program.py').write_text('raise SystemExit(3)')
    with refuses(key) as caught:
        load_settings({**NAMES, key: value})
    assert said in caught.value.problem and '\n' not in str(caught.value)


NO_TEXTS = ["'one text'", '[]', '[1]', "{'train': ['a b']}", "['a \\0 b']", "['a \\ud800 b']"]
BLANK = "{'train': ['a b'], 'valid': [' '], 'test': ['a b']}"


@pytest.mark.parametrize('made', [*NO_TEXTS, BLANK])
def test_a_corpus_that_returns_no_texts_is_refused(scratch, made):
    (scratch / 'my_models.py').write_text(f'{KINDS}\n\ndef nothing():\n    return {made}\n')
    settings = load_settings({**NAMES, 'corpus.name': 'my_models:nothing'})
    with refuses('corpus.name'):
        loading.load_dataset(settings)


def test_a_corpus_with_its_own_splits_has_no_split_sizes(scratch):
    texts = {split: ['a b c'] for split in ('train', 'valid', 'test')}
    (scratch / 'my_models.py').write_text(f'{KINDS}\n\ndef parts():\n    return {texts}\n')
    settings = {**NAMES, 'corpus.name': 'my_models:parts'}
    assert len(corpora.load(load_settings(settings).corpus).valid) > 0
    with refuses('corpus.valid'):
        corpora.load(load_settings({**settings, 'corpus.valid': 2.0}).corpus)


TRAPS = {  # a class in a user's module -> the key that names it, the rejected key, and a name in the message
    """class Mine(Window):
    width: int = 3
""": ('model.family', 'model.family', 'dataclass'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: int = 'three'
""": ('model.family', 'model.width', 'int'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: Annotated[int, between(1, 8)] = 99
""": ('model.family', 'model.width', '8'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    sizes: tuple = (1, 2)
""": ('model.family', 'model.family', 'sizes'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    names: 'ClassVar[Missing]' = ()
""": ('model.family', 'model.family', 'Missing'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    init: int = 3
""": ('model.family', 'model.family', 'init'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: int
""": ('model.family', 'model.family', 'width must have a default'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Cosine):
    hold: int = dataclasses.field(default_factory=int)
""": ('optimizer.schedule', 'optimizer.schedule', 'hold must have a default'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Cosine):
    warmup: int = 5
""": ('optimizer.schedule', 'optimizer.schedule', 'optimizer.warmup'),
    """@dataclasses.dataclass(frozen=True)
class Mine(WordTokenizer):
    min_count: int = 5
""": ('corpus.tokens', 'corpus.tokens', 'corpus.min_count'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    family: str = 'mine'
""": ('model.family', 'model.family', 'model.family'),
    """class Wide(Window):
    width = 3
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Wide):
    tables = Tables(others=('K_NxM',))
    other: ClassVar[int] = 3
""": ('model.family', 'model.family', 'width'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: int | None = 3
""": ('model.family', 'model.family', 'width'),
}
HEAD = """import dataclasses
from typing import Annotated, ClassVar
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.models.nplm import Window
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.outputs.output_layer import Tables
from nplm_jax.training.rate_schedules import Cosine
from nplm_jax.config.component import between

"""


@pytest.mark.parametrize('number', range(len(TRAPS)))
def test_what_an_author_could_type_wrongly_is_one_line(scratch, number):
    code, (key, refused, said) = list(TRAPS.items())[number]
    module = f'trap_{number}'
    (scratch / f'{module}.py').write_text(HEAD + code)
    with refuses(refused) as caught:
        load_settings({'corpus.name': 'sentences', key: f'{module}:Mine'})
    assert said in caught.value.problem and '\n' not in str(caught.value)


def test_an_argument_without_a_name_is_no_option(scratch):
    (scratch / 'unnamed.py').write_text('def texts(words="a b c d ", /, count=9):\n    return [words * count]\n')
    settings = load_settings({'corpus.name': 'unnamed:texts', 'corpus.options.count': 8})
    assert dict(settings.corpus.options) == {'count': 8}
    assert len(corpora.load(settings.corpus)) == 2 + 4 * 8


def test_an_optimizer_that_was_defined_anew_is_another_one(scratch):
    changes = {'optimizer.name': 'mine:descent'}
    made = []
    for scale in (1, 2):
        (scratch / 'mine.py').write_text(f'import optax\ndef descent(learning_rate):\n    return optax.sgd({scale})\n')
        sys.modules.pop('mine', None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        made.append(make_optimizer(small_settings(changes).optimizer, 10, 1, ('C_VxM',)))
        sys.dont_write_bytecode = before
    assert made[0] != made[1]


@pytest.mark.parametrize('unnamed', ['corpus.tokens', 'optimizer.schedule'])
def test_a_plug_in_whose_module_is_not_named_takes_no_value_of_another(scratch, unnamed):
    code = 'import optax\ndef texts(count=3):\n    return ["a b c d"] * count\n'
    (scratch / 'functions.py').write_text(
        code + 'def descent(learning_rate, momentum=0.5):\n    return optax.sgd(0.1)\n'
    )
    changes = {'corpus.name': 'functions:texts', 'corpus.options.count': 7, unnamed: NAMES[unnamed]}
    changes |= {'optimizer.name': 'functions:descent', 'optimizer.options.momentum': 0.25}
    settings = load_settings(changes)
    with plugins.trust(['functions']):
        read = from_record(to_record(to_dict(settings)))
    assert to_flat(read) == to_flat(settings) and read.corpus.options == settings.corpus.options
    assert read.optimizer.options == settings.optimizer.options


def test_an_integer_is_a_number_as_the_default_of_one(scratch):
    code = """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: float = 1
def descent(learning_rate, momentum: float = 1, steps: int = 2, beta: int = 0.5):
    return optax.sgd(learning_rate)
"""
    (scratch / 'numbers_of.py').write_text(f'import optax\nfrom nplm_jax.models.nplm import Window\n{HEAD}{code}')
    values = to_flat(load_settings({'model.family': 'numbers_of:Mine', 'optimizer.name': 'numbers_of:descent'}))
    found = [values[key] for key in ('model.width', *(f'optimizer.options.{x}' for x in ('momentum', 'steps', 'beta')))]
    assert found == [1.0, 1.0, 2, 0.5] and list(map(type, found)) == [float, float, int, float]


def test_the_metadata_of_other_packages_in_an_annotation_is_no_range(scratch):
    code = """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: Annotated[int, 'pixels', between(1, 8)] = 3
"""
    (scratch / 'annotated.py').write_text(HEAD + code)
    settings = load_settings({'model.family': 'annotated:Mine', 'model.width': 8})
    assert settings.model.width == 8
    with refuses('model.width'):
        replace(settings, {'model.width': 9})


@pytest.mark.parametrize('name', ['nadam', 'nadamw', 'lars', 'contrib:muon', 'novograd'])
def test_optimizers_of_optax_are_rules(name):  # partials, and with a mask of the weight decay among them
    module, _, function = f'optax.{name}'.rpartition(':' if ':' in name else '.')
    rule = load_settings({'optimizer.name': f'{module}:{function}'}).optimizer
    assert rule.options.get('weight_decay', 0.0) == 0.0


def test_settings_are_pickled():
    settings = small_settings({'model.h': 7, 'optimizer.warmup': 5})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_files_of_a_layer_are_those_of_its_keys_in_a_subclass_too(scratch):
    code = """from nplm_jax.config.component import key
from nplm_jax.outputs.tree import TreeSoftmax
@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(TreeSoftmax):
    tree: str = 'mine.tsv'
    senses: str = key('', 'a file or none', file_unless=('',))
"""
    (scratch / 'own_codes.py').write_text(HEAD + code)
    changes = {'output.kind': 'own_codes:Mine', 'output.tree': 'codes.tsv'}
    files = {'output.tree': 'codes.tsv', 'output.senses': 'senses.npz'}
    assert user_files(load_settings({**changes, 'output.senses': 'senses.npz'})) == files
    assert user_files(load_settings({**changes, 'output.tree': 'huffman'})) == {}
    assert user_files(small_settings({'output.kind': 'tree'})) == {}
