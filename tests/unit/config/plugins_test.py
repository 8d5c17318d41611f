"""The plug-ins of docs/howto/plugins.md, in a folder of their own: they train, resume, sweep, score and generate."""

import importlib
import pickle
import sys

import pytest
from helpers import plugin_folder, refuses, small_settings
from plugins_page import CONFIG, NAMES, OF_A_ROW, PARTS

import nplm_jax
from nplm_jax.config import parts
from nplm_jax.runs import loading
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.program_from_settings import optimizer_from_settings


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The working folder, with the page's files."""
    with plugin_folder(tmp_path, monkeypatch, my_parts=PARTS, my_config=CONFIG, my_brown=OF_A_ROW):
        yield tmp_path


@pytest.mark.usefixtures('scratch')
def test_a_config_file_overrides_a_row_whose_other_keys_the_body_does_not_read():
    config = nplm_jax.load_config('my_brown.py')
    settings = load_settings(config)
    assert (settings.corpus.name, settings.model.family, settings.model.options['power']) == (
        'brown',
        'my_parts:WeightedMean',
        0.5,
    )
    of_the_row = nplm_jax.load_config('brown:mlp9')
    of_the_row.model.family = 'my_parts:WeightedMean'
    with refuses('model.h=100, model.dropout'):
        load_settings(of_the_row)


@pytest.mark.usefixtures('scratch')
@pytest.mark.parametrize(
    'key,value,said',
    [
        ('model.options.powr', 1.0, 'model.options.power'),
        ('model.layers', 3, 'options.power'),
        ('model.options.power', -1.0, '0'),
        ('optimizer.options.momentum', 'x', 'number'),
        ('model.family', 'my_parts:Missing', 'Missing'),
        ('model.family', 'my_parts:', ''),
        ('model.family', 'my_partz:Body', 'my_partz'),
        ('model.family', 'broken:Body', 'SyntaxError: '),
        ('model.family', 'my_parts:sums', 'class'),
        ('optimizer.schedule', 'my_parts:sums', 'class'),
        ('optimizer.schedule_options.hold', 0, '1'),
        ('corpus.token_options.num_letters', '4', 'int'),
        ('corpus.token_options.size', 4, 'num_letters'),
        ('output.kind', 'my_parts:WeightedMean', 'nplm_jax'),
        ('optimizer.name', 'my_parts:sums', 'learning_rate'),
        ('optimizer.name', 'my_parts:WeightedMean', ''),
        ('corpus.name', 'my_parts:signum', ''),
        ('corpus.name', 'program:texts', 'SystemExit: 3'),
        ('model.family', ':Body', 'package.module:Name'),
    ],
)
def test_a_mistake_is_one_line(key, value, said, tmp_path):
    (tmp_path / 'broken.py').write_text('def f(:\n')
    (tmp_path / 'program.py').write_text('raise SystemExit(3)')
    with refuses(key) as caught:
        load_settings({**NAMES, key: value})
    assert said in caught.value.problem and '\n' not in str(caught.value)


@pytest.mark.parametrize('made', ["'one text'", '[]', '[1]', "{'train': ['a b']}"])
def test_a_corpus_that_returns_no_texts_is_refused(scratch, made):
    (scratch / 'my_parts.py').write_text(f'{PARTS}\n\ndef nothing():\n    return {made}\n')
    settings = load_settings({**NAMES, 'corpus.name': 'my_parts:nothing'})
    with refuses('corpus.name'):
        loading.load_dataset(settings)


TRAPS = {  # a class in a user's module -> the key that names it, the key that is refused, and a name that is said
    """class Mine(Window):
    width: int = 3
""": ('model.family', 'model.family', 'dataclass'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: int = 'three'
""": ('model.family', 'model.options.width', 'int'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(Window):
    width: Annotated[int, between(1, 8)] = 99
""": ('model.family', 'model.options.width', '8'),
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
class Mine(Cosine):
    decay: float = 0.5
""": ('optimizer.schedule', 'optimizer.schedule', 'optimizer.decay'),
    """@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(WordTokenizer):
    seed: int = shared('seed')
""": ('corpus.tokens', 'corpus.tokens', 'seed'),
}
HEAD = """import dataclasses
from typing import Annotated, ClassVar
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.models.nplm import Window
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.training.rate_schedules import Cosine
from nplm_jax.config.component import between, shared

"""


@pytest.mark.parametrize('number', range(len(TRAPS)))
def test_what_an_author_could_type_wrongly_is_one_line(scratch, number):
    code, (key, refused, said) = list(TRAPS.items())[number]
    module = f'trap_{number}'
    (scratch / f'{module}.py').write_text(HEAD + code)
    with refuses(refused) as caught:
        load_settings({'corpus.name': 'sentences', key: f'{module}:Mine'})
    assert said in caught.value.problem and '\n' not in str(caught.value)


def test_a_part_may_read_a_key_that_another_part_declares(scratch):
    code = """@dataclasses.dataclass(frozen=True, kw_only=True)
class Deep(FullSoftmax):
    k: int = shared('model.layers')
"""
    (scratch / 'deep.py').write_text(HEAD + code)
    settings = load_settings({'output.kind': 'deep:Deep', 'model.layers': 2})
    assert parts.make('output.kind', settings).k == 2


def test_an_optimizer_that_was_defined_anew_is_another_one(scratch):
    changes = {'optimizer.name': 'mine:descent', 'optimizer.momentum': 0.0}
    made = []
    for scale in (1, 2):
        (scratch / 'mine.py').write_text(f'import optax\ndef descent(learning_rate):\n    return optax.sgd({scale})\n')
        sys.modules.pop('mine', None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        made.append(optimizer_from_settings(small_settings(changes), 10, ('C_VxM',)))
        sys.dont_write_bytecode = before
    assert made[0] is not made[1] and made[0] != made[1]


def test_settings_are_pickled():
    settings = small_settings({'model.h': 7, 'optimizer.paper.r': 0.5})
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
    files = {'output.tree': 'codes.tsv', 'output.options.senses': 'senses.npz'}
    assert parts.files(load_settings({**changes, 'output.options.senses': 'senses.npz'})) == files
    assert parts.files(load_settings({**changes, 'output.tree': 'huffman'})) == {}
    assert parts.files(small_settings({'output.kind': 'tree'})) == {}
