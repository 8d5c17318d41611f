"""The config: complete, locked, and each mistake in it one line before anything is downloaded or compiled."""

import json

import pytest
from flax.traverse_util import flatten_dict
from helpers import default_settings, numbers, one_line, refuses

from configs import brown, default
from nplm_jax.config import checked_fields, parts
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.component import MEANING, SECTION
from nplm_jax.config.records import from_record, to_record
from nplm_jax.config.registry import PARTS
from nplm_jax.config.sections import KEYS_FILE
from nplm_jax.config.settings import Settings
from nplm_jax.reporting import catalog
from nplm_jax.runs import workdir
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import BadInput


def config(changes=None):
    c = default.get_config()
    c.update_from_flattened_dict(changes or {})
    return c


def test_the_keys_of_the_default_config_are_the_fields_of_the_settings():
    keys = set(config_lib.FIELDS)
    assert {'model.h', 'parallel.mode', 'optimizer.paper.r', 'seed'} < keys
    assert set(flatten_dict(default.get_config().to_dict(), sep='.')) == keys


def test_every_key_has_a_default_that_it_allows_and_a_meaning():
    assert config_lib.from_config(flatten(config_lib.to_dict(Settings()))) == Settings()
    for name, field in config_lib.FIELDS.items():
        assert field.metadata['meaning'], name


def test_the_config_of_a_python_dictionary_may_be_partial():
    assert config_lib.from_config({}) == Settings()
    nested = config_lib.from_config({'model': {'h': 7}, 'optimizer': {'paper': {'r': 0.5}}})
    assert nested == config_lib.from_config({'model.h': 7, 'optimizer.paper.r': 0.5})
    assert nested == default_settings({'model.h': 7, 'optimizer.paper.r': 0.5})


def test_settings_survive_json():
    settings = config_lib.from_config(config())
    assert config_lib.from_config(json.loads(json.dumps(config_lib.to_dict(settings)))) == settings


def test_replace_changes_the_keys_given_and_no_other():
    before = config_lib.to_dict(default_settings())
    after = config_lib.to_dict(default_settings({'model.h': 7, 'optimizer.paper.r': 0.5, 'name': 'x'}))
    before, after = flatten_dict(before, sep='.'), flatten_dict(after, sep='.')
    changed = {key: after[key] for key in before if before[key] != after[key]}
    assert changed == {'model.h': 7, 'optimizer.paper.r': 0.5, 'name': 'x'}


IMPOSSIBLE = [
    ('model.n', 1),
    ('model.m', 0),
    ('model.h', -1),
    ('model.h', 0),
    ('model.dropout', 1.0),
    ('model.layers', 0),
    ('model.word_dropout', -0.1),
    ('model.output_dropout', -0.5),
    ('model.precision', 'float16'),
    ('model.weight_dropout', 1.0),
    ('model.activation_penalty', -1.0),
    ('model.slowness_penalty', -1.0),
    ('model.averages', -1),
    ('model.expansion', 0),
    ('train.average', 1.1),
    ('train.average_start', 1.0),
    ('model.layer_dropout', -0.5),
    ('optimizer.name', 'sdg'),
    ('optimizer.schedule', 'cos'),
    ('optimizer.learning_rate', 0.0),
    ('optimizer.learning_rate', float('inf')),
    ('optimizer.learning_rate', float('nan')),
    ('optimizer.momentum', 1.0),
    ('optimizer.warmup', -1),
    ('optimizer.clip_norm', -1.0),
    ('optimizer.decay', -1e-5),
    ('optimizer.paper.r', float('inf')),
    ('optimizer.paper.epsilon_0', -1.0),
    ('optimizer.paper.decay', -1.0),
    ('corpus.name', 'browne'),
    ('corpus.path', 'my.txt'),
    ('corpus.tokens', 'letters'),
    ('corpus.count_over', 'test'),
    ('corpus.min_count', 0),
    ('corpus.max_vocabulary', 2),
    ('corpus.train', 0.0),
    ('corpus.valid', 1.0),
    ('corpus.test', 1.0),
    ('model.family', 'trigram'),
    ('output.kind', 'hierarchical'),
    ('output.precision', 'float16'),
    ('output.block_size', -1),
    ('output.samples', 0),
    ('output.proposal', 'uniform'),
    ('output.num_shortlist', -1),
    ('output.classes', 0),
    ('model.delta', -1.0),
    ('model.classes', 0),
    ('model.bits', 4),
    ('parallel.data', 0),
    ('parallel.model', -2),
    ('parallel.mode', 'pjit'),
    *((f'train.{key}', 0) for key in ('batch_size', 'epochs', 'patience', 'checkpoint_every')),
    *((f'train.{key}', 0) for key in ('log_every', 'steps_per_execution')),
    ('model.bptt_length', 0),
    ('train.evaluate_every', -1),
    ('paper.valid', -1.0),
    ('seed', -1),
    ('name', 'a/b'),
]


@pytest.mark.parametrize('key,value', IMPOSSIBLE)
def test_an_impossible_value_is_one_line_with_key_and_value(key, value):
    with refuses(key) as caught:
        load_settings(config({key: value}))
    one_line(str(caught.value), f'{key}={value!r}')


@pytest.mark.parametrize(
    'key,value,near',
    [
        ('model.family', 'lsmt', 'lstm'),
        ('output.kind', 'two_levels', 'two_level'),
        ('optimizer.name', 'Adam', 'adam'),
        ('optimizer.schedule', 'cosin', 'cosine'),
        ('corpus.name', 'browne', 'brown'),
        ('corpus.tokens', 'charaters', 'characters'),
        ('parallel.mode', 'shardmap', 'shard_map'),
    ],
)
def test_of_a_mistyped_value_the_nearest_is_suggested(key, value, near):
    with pytest.raises(BadInput, match=f'^{key}={value!r}: .* {near}[?]$'):
        load_settings(config({key: value}))


@pytest.mark.parametrize('kind', PARTS['output.kind'].paths)
def test_every_output_goes_with_every_optimizer(kind):
    for name in PARTS['optimizer.name'].paths:
        assert load_settings(config({'output.kind': kind, 'optimizer.name': name})).optimizer.name == name


def test_a_shortlist_or_classes_that_the_vocabulary_cannot_fill_are_one_line():
    fits = {'output.samples': 10, 'output.num_shortlist': 4, 'output.classes': 6}
    for kind in PARTS['output.kind'].paths:
        assert network_from_settings(default_settings({**fits, 'output.kind': kind}), 10).vocabulary_size == 10
    unused = {'output.kind': 'full', 'output.samples': 11, 'output.num_shortlist': 12}
    assert network_from_settings(default_settings(unused), 10).vocabulary_size == 10
    for key, value, limit in [('output.num_shortlist', 10, '10'), ('output.classes', 7, '6')]:
        settings = default_settings({**fits, 'output.kind': 'two_level', key: value})
        with refuses(key) as caught:
            network_from_settings(settings, 10)
        assert caught.value.value == value and numbers(caught.value.problem) == [limit]


def test_an_unknown_and_a_mistyped_key_are_one_line():
    tree = config().to_dict()
    tree['model']['hidden'] = 3
    with refuses('model.hidden'):
        config_lib.from_config(tree)
    del tree['model']['hidden']
    for value in ('6', 6.0, True, None):
        tree['train']['epochs'] = value
        with refuses('train.epochs'):
            config_lib.from_config(tree)
    for kind in checked_fields.OPTION_TYPES:
        with pytest.raises(BadInput) as caught:
            checked_fields.check_value(None, kind, 'x')
        assert kind.__name__ not in caught.value.problem.split()
    with refuses('model.bits'):
        config_lib.from_config({'model.bits': 8.0})
    tree['train'] = 3
    with refuses('train'):
        config_lib.from_config(tree)


def test_a_config_json_has_every_key_and_one_format():
    settings = default_settings({'model.h': 7})
    record = to_record(settings)
    assert from_record(json.loads(json.dumps(record))) == settings
    for number in (1, None, '2'):
        with refuses('format'):
            from_record({**record, 'format': number})
    with refuses('format'):
        from_record(config_lib.to_dict(settings))
    damaged = {**record, 'model': {**record['model'], 'h': 8}}
    with pytest.raises(BadInput) as caught:
        from_record(damaged)
    assert caught.value.key == 'sha256'
    elsewhere = {
        **record,
        'corpus': {**record['corpus'], 'path': '/elsewhere'},
        'parallel': {**record['parallel'], 'data': 2},
    }
    assert from_record(elsewhere).corpus.path == '/elsewhere'
    for digests in ('x', {'vocabulary.txt': 1}, {'../vocabulary.txt': 'x'}):
        with pytest.raises(BadInput):
            from_record({**record, 'sha256': digests})
    del record['sha256']
    with refuses('eval.hidden'):
        from_record({**record, 'eval': {**record['eval'], 'hidden': 3}})
    with refuses('model.rounds'):
        from_record({**record, 'model': {**record['model'], 'rounds': 3}})
    del record['eval']['words']
    with refuses('eval.words'):
        from_record(record)


@pytest.mark.parametrize('number', [1, None])
def test_a_folder_of_another_format_is_refused_in_one_line_by_every_reader(tmp_path, number):
    record = {**to_record(default_settings()), 'format': number}
    (tmp_path / 'config.json').write_text(json.dumps(record))
    for read in (workdir.read_settings, catalog.read_run, lambda folder: workdir.check(folder, default_settings())):
        with refuses('config.json'):
            read(tmp_path)


# --- keys that nothing reads -----------------------------------------------------------------------------

NPLM = 'model.n, model.m, model.h, model.direct, model.dropout'
UNREAD = [  # changes, the keys of them that nothing reads, and keys that are read instead
    ({'model.layers': 3}, ['model.layers'], NPLM),
    ({'model.tied': True}, ['model.tied'], NPLM),
    ({'model.bptt_length': 8}, ['model.bptt_length'], NPLM),
    (
        {'model.family': 'lstm', 'model.averages': 2, 'model.n': 4},
        ['model.n', 'model.averages'],
        'model.slowness_penalty',
    ),
    (
        {'model.family': 'kneser_ney', 'model.h': 5},
        ['model.h'],
        'model.n, model.bits, model.prune_entropy',
    ),
    ({'model.family': 'kneser_ney', 'output.kind': 'nce'}, ['output.kind'], 'model.bits'),
    ({'model.family': 'kneser_ney', 'train.epochs': 5}, ['train.epochs'], 'model.bits'),
    ({'model.family': 'kneser_ney', 'model.prune': '0 1'}, ['model.prune'], 'model.bits'),
    ({'model.classes': 9}, ['model.classes'], NPLM),
    (
        {'optimizer.name': 'adam', 'optimizer.momentum': 0.9},
        ['optimizer.momentum'],
        'optimizer.learning_rate, optimizer.schedule, optimizer.warmup, optimizer.table_rate, optimizer.clip_norm, '
        'optimizer.decay',
    ),
    (
        {'optimizer.name': 'paper', 'optimizer.learning_rate': 0.1},
        ['optimizer.learning_rate'],
        'optimizer.paper.epsilon_0',
    ),
    (
        {'output.samples': 9},
        ['output.samples'],
        'output.precision, output.block_size, output.teacher, output.teacher_weight, train.calibrate, '
        'train.suffix_smoothing',
    ),
    ({'output.kind': 'tree', 'train.calibrate': True}, ['train.calibrate'], 'output.tree'),
]


@pytest.mark.parametrize('changes,unread,read', UNREAD)
def test_a_key_that_nothing_reads_is_one_line_with_the_keys_that_are_read(changes, unread, read):
    with pytest.raises(BadInput) as caught:
        load_settings(config(changes))
    line = one_line(str(caught.value), ', '.join(f'{key}={changes[key]!r}' for key in unread))
    assert read in line
    load_settings(config({key: value for key, value in changes.items() if key not in unread}))


def test_an_optimizer_by_import_path_has_rates_of_its_own_unless_one_is_given():
    row, muon = brown.get_config('one_minute,sgd'), {'optimizer.name': 'optax.contrib:muon'}
    rates = [
        (config.optimizer.learning_rate, config.optimizer.table_rate)
        for config in (parts.override(row, muon), parts.override(row, {**muon, 'optimizer.learning_rate': 0.1}))
    ]
    assert rates == [(0.003, 2.0), (0.1, 1.0)]


def test_another_choice_resets_the_keys_of_the_row_that_it_does_not_read_and_no_key_that_was_given():
    row = brown.get_config()  # nplm of n=13, sampled, rowwise_adam
    lstm = flatten(parts.override(row, {'model.family': 'lstm', 'output.kind': 'full'}))
    before = flatten(row)
    assert {key for key in lstm.keys() & before.keys() if lstm[key] != before[key]} == {'model.family', 'output.kind'}
    assert 'model.n' in before.keys() - lstm.keys() and 'model.layers' in lstm.keys() - before.keys()
    assert all(lstm[key] == config_lib.FIELDS[key].default for key in lstm.keys() - before.keys())
    counts = flatten(parts.override(row, {'model.family': 'kneser_ney'}))
    read = {key for key, value in counts.items() if value != config_lib.FIELDS[key].default}
    assert {key.partition('.')[0] for key in read} == {'name', 'corpus', 'model'}
    assert {key for key in read if key.startswith('model')} == {'model.family', 'model.n'}
    with refuses('optimizer.row_adaptivity'):
        load_settings(parts.override(row, {'optimizer.name': 'adam', 'optimizer.row_adaptivity': 0.7}))
    load_settings(parts.override(row, {'optimizer.name': 'adam'}))


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'model.hh': 1}, 'model.hh'),
        ({'model.n': 2.5}, 'model.n'),
        ({'model': 1}, 'model'),
        ({'corpus.path': 'caf\udce9.txt'}, 'corpus.path'),
    ],
)
def test_an_impossible_change_of_a_config_is_one_line(changes, message):
    with refuses(message):
        load_settings(parts.override(brown.get_config(), changes))


def test_the_list_of_keys_is_what_the_parts_declare_each_once():
    assert KEYS_FILE.read_text() == parts.list_keys()  # python -m nplm_jax.config.parts
    declarations = {}
    for key, kind in PARTS.items():
        for name in kind.paths:
            for base in parts.part_class(key, name).__mro__:
                own = {name: field for name, field in vars(base).items() if name == '__dataclass_fields__'}
                for field in own.get('__dataclass_fields__', {}).values():
                    if MEANING in field.metadata:
                        full = f'{field.metadata[SECTION] or key.partition(".")[0]}.{field.name}'
                        declarations.setdefault(full, set()).add(id(field))
    assert declarations and all(len(fields) == 1 for fields in declarations.values())


@pytest.mark.parametrize('key', PARTS)
def test_every_part_gets_the_values_of_its_keys(key):
    for name in PARTS[key].paths:
        settings = default_settings({key: name})
        part = parts.make(key, settings)
        assert parts.values_of(key, part).items() <= config_lib.to_flat(settings).items()
