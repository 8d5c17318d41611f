"""Tests that configs are complete and locked, and that mistakes give a one-line error before any download."""

import functools
import json

import pytest
from helpers import default_settings, numbers, one_line, refuses

from configs import brown, default
from nplm_jax.config import checked_fields
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.component import KIND, key_fields
from nplm_jax.config.keys import list_keys
from nplm_jax.config.records import read_values, to_record
from nplm_jax.config.registry import KINDS, NGRAM_MODELS, component_class
from nplm_jax.config.settings import from_record
from nplm_jax.reporting import catalog
from nplm_jax.runs import workdir
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import BadInput

COMPONENTS = [(kind, name) for kind, components in KINDS.items() for name in components.paths]
DEFAULTS = {kind: components.default for kind, components in KINDS.items()}


@functools.cache
def values_of(kind, name):
    """Returns the value of each key of a default run with one component replaced."""
    return config_lib.to_flat(config_lib.from_config({kind: name}))


def own_fields(kind, name):
    """Returns the fields of a component that are keys, except fields that name another component."""
    return {field.name for field in key_fields(component_class(kind, name)) if KIND not in field.metadata} - {'options'}


def with_key(key, value):
    """Returns a change of a key, and the choice of the first component with this key if the default lacks it."""
    named = next(({kind: name} for kind, name in COMPONENTS if key in values_of(kind, name)), {})
    return {**named, key: value} if key not in values_of('seed', 1) else {key: value}


def test_the_keys_of_the_default_config_are_those_of_its_components():
    keys = flatten(default.get_config()).keys()
    assert {'model.h', 'parallel.mode', 'optimizer.clip_norm', 'optimizer.schedule', 'seed'} < keys
    assert not {'model.layers', 'optimizer.r', 'optimizer.cooldown', 'output.samples'} & keys
    assert keys == config_lib.to_flat(config_lib.from_config({})).keys()


@pytest.mark.parametrize('kind,name', COMPONENTS)
def test_a_config_has_exactly_the_keys_of_its_components_each_with_its_default_and_meaning(kind, name):
    settings = config_lib.from_config({kind: name})
    component, section = config_lib.components(settings)[kind], kind.partition('.')[0]
    own, others = own_fields(kind, name), set().union(*(own_fields(kind, other) for other in KINDS[kind].paths))
    keys = {key.name: key for key in list_keys(settings)}
    assert {field: keys[f'{section}.{field}'].value for field in own} == {x: getattr(component, x) for x in own}
    assert not {f'{section}.{field}' for field in others - own} & keys.keys()
    assert all(key.meaning and (key.value == key.default or key.name in KINDS) for key in keys.values())
    assert config_lib.from_config(config_lib.to_dict(settings)) == settings


FORMER = [  # the key that names a component, and a replaced component with some of its keys
    ('model.family', {'model.family': 'nplm', 'model.n': 9, 'model.m': 9, 'model.h': 9}),
    ('model.family', {'model.family': 'transformer', 'model.layers': 9, 'model.m': 24}),
    ('model.family', {'model.family': 'kneser_ney', 'model.n': 9, 'model.bits': 8}),
    ('output.kind', {'output.kind': 'full', 'output.block_size': 9, 'output.precision': 'float32'}),
    ('output.kind', {'output.kind': 'two_level', 'output.classes': 9}),
    ('optimizer.name', {'optimizer.name': 'sgd', 'optimizer.learning_rate': 0.9, 'optimizer.warmup': 9}),
    ('optimizer.name', {'optimizer.name': 'rowwise_adam', 'optimizer.table_rate': 9.0, 'optimizer.decay': 0.9}),
    ('optimizer.name', {'optimizer.name': 'paper', 'optimizer.decay': 0.9}),
]


@pytest.mark.parametrize('kind,former', FORMER)
def test_a_new_model_or_layer_keeps_the_keys_that_both_have_with_one_default_and_an_optimizer_none(kind, former):
    config = config_lib.override(default.get_config(), {**former, 'seed': 9, 'corpus.words': 900})
    defaults = {key.name: key.default for key in list_keys(config_lib.from_config(config))}
    for name in KINDS[kind].paths.keys() - {former[kind]}:
        made = flatten(config_lib.override(config, {kind: name}))
        own = values_of(kind, name)
        kept = {key: value for key, value in former.items() if key != kind and own.get(key) == defaults[key]}
        kept = {} if kind == 'optimizer.name' else kept
        assert made == {**own, **kept, 'seed': 9, 'corpus.words': 900}, name
    kept = flatten(config_lib.override(config, {'seed': 10}))
    assert kept == {**flatten(config), 'seed': 10} and former.items() <= kept.items()


def test_another_corpus_has_no_perplexities_from_the_paper():
    paper = {'paper.row': 'MLP9', 'paper.valid': 280.0}
    config = config_lib.override(default.get_config(), paper)
    assert flatten(config_lib.override(config, {'corpus.name': 'brown', 'seed': 2}))['paper.row'] == 'MLP9'
    made = flatten(config_lib.override(config, {'corpus.name': 'text', 'corpus.path': 'x'}))
    assert (made['paper.row'], made['paper.valid'], made['corpus.path']) == ('', 0, 'x')
    assert flatten(config_lib.override(config, {'corpus.name': 'text', **paper}))['paper.valid'] == 280


def test_a_tokenizer_and_a_schedule_replace_only_the_keys_of_the_former():
    changes = {'corpus.words': 900, 'corpus.tokens': 'whitespace', 'corpus.lowercase': True}
    changes |= {'optimizer.learning_rate': 0.5, 'optimizer.schedule': 'trapezoid', 'optimizer.cooldown': 0.5}
    config = config_lib.override(default.get_config(), changes)
    made = config_lib.override(config, {'corpus.tokens': 'bytes', 'optimizer.schedule': 'constant'})
    assert (made.corpus.words, made.optimizer.learning_rate) == (900, 0.5)
    assert not {'lowercase', 'min_count'} & {*made.corpus} and 'cooldown' not in made.optimizer


def test_a_component_in_place_of_the_default_has_its_defaults_where_the_config_is_partial():
    partial = {'model.h': 50, 'optimizer.learning_rate': 7.0, 'seed': 3}
    for name, rate in (('sgd', 7.0), ('adam', 0.003)):
        made = config_lib.override(partial, {'optimizer.name': name})
        assert (made.model.h, made.optimizer.learning_rate, made.seed) == (50, rate, 3)


@pytest.mark.parametrize('key,value', [('train.epoch', 3), ('model.hh', 3), ('model.family', 5), ('model.layers', 3)])
def test_a_wrong_key_or_value_of_a_config_is_refused_also_where_a_component_changes(key, value):
    with refuses(key):
        config_lib.override({key: value}, {'model.family': 'lstm'})
    with refuses(key):
        config_lib.override(default.get_config(), {key: value})


@pytest.mark.parametrize('read', [config_lib.from_config, lambda config: config_lib.override(config, {})])
def test_what_is_no_config_is_refused(read):
    with refuses('config'):
        read(None)


@pytest.mark.parametrize('name', NGRAM_MODELS)
def test_a_count_based_model_has_no_key_of_a_network(name):
    settings = config_lib.from_config({'model.family': name})
    assert (settings.output, settings.optimizer, settings.is_neural) == (None, None, False)
    assert not {key.partition('.')[0] for key in config_lib.to_flat(settings)} & {'output', 'optimizer', 'train'}


def test_the_config_of_a_python_dictionary_may_be_partial():
    assert config_lib.from_config({}) == config_lib.from_config(default.get_config())
    nested = config_lib.from_config({'model': {'h': 7}, 'optimizer': {'name': 'paper', 'r': 0.5}})
    assert nested == config_lib.from_config({'model.h': 7, 'optimizer.name': 'paper', 'optimizer.r': 0.5})
    assert (nested.model.h, nested.optimizer.r) == (7, 0.5)


def test_settings_survive_json():
    settings = config_lib.from_config(default.get_config())
    assert config_lib.from_config(json.loads(json.dumps(config_lib.to_dict(settings)))) == settings


def test_replace_changes_the_keys_given_and_no_other():
    changes = {'model.h': 7, 'optimizer.clip_norm': 0.5, 'name': 'x'}
    before, settings = default_settings(), config_lib.replace(default_settings(), changes)
    assert config_lib.to_flat(settings) == {**config_lib.to_flat(before), **changes}


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
    ('optimizer.name', 'sdg'),
    ('optimizer.schedule', 'cos'),
    ('optimizer.learning_rate', 0.0),
    ('optimizer.learning_rate', float('inf')),
    ('optimizer.learning_rate', float('nan')),
    ('optimizer.warmup', -1),
    ('optimizer.clip_norm', -1.0),
    ('optimizer.decay', -1e-5),
    ('optimizer.r', float('inf')),
    ('optimizer.epsilon_0', -1.0),
    ('optimizer.decay', -1.0),
    ('corpus.name', 'browne'),
    ('corpus.path', 'my.txt'),
    ('corpus.tokens', 'letters'),
    ('corpus.count_over', 'test'),
    ('corpus.min_count', 0),
    ('corpus.max_vocabulary', 2),
    ('corpus.train', 0.0),
    ('corpus.train', 100.5),
    ('corpus.valid', 1.0),
    ('corpus.test', 1.0),
    ('corpus.test', float('inf')),
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
        load_settings(with_key(key, value))
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
    with pytest.raises(BadInput, match=f'^{key}={value!r}: must be one of .*; did you mean {near}[?]$'):
        load_settings({key: value})


@pytest.mark.parametrize('kind', KINDS['output.kind'].paths)
def test_every_output_goes_with_every_optimizer(kind):
    for name in KINDS['optimizer.name'].paths:
        assert load_settings({'output.kind': kind, 'optimizer.name': name}).optimizer.name == name


def test_a_shortlist_or_classes_that_the_vocabulary_cannot_fill_are_one_line():
    fits = {'output.samples': 10, 'output.num_shortlist': 4, 'output.classes': 6}
    for kind in KINDS['output.kind'].paths:
        assert network_from_settings(default_settings({**fits, 'output.kind': kind}), 10).vocabulary_size == 10
    unused = {'output.kind': 'full', 'output.samples': 11, 'output.num_shortlist': 12}
    assert network_from_settings(default_settings(unused), 10).vocabulary_size == 10
    for key, value, limit in [('output.num_shortlist', 10, '10'), ('output.classes', 7, '6')]:
        settings = default_settings({**fits, 'output.kind': 'two_level', key: value})
        with refuses(key) as caught:
            network_from_settings(settings, 10)
        assert caught.value.value == value and numbers(caught.value.problem) == [limit]


def test_an_unknown_and_a_mistyped_key_are_one_line():
    tree = default.get_config().to_dict()
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
        config_lib.from_config({'model.family': 'backoff', 'model.bits': 8.0})
    tree['train'] = 3
    with refuses('train'):
        config_lib.from_config(tree)


def test_a_config_json_has_every_key_and_one_format():
    settings = default_settings({'model.h': 7})
    record = to_record(config_lib.to_dict(settings))
    assert from_record(json.loads(json.dumps(record))) == settings
    for number in (1, 2, None, '3'):
        with refuses('format'):
            from_record({**record, 'format': number})
    with refuses('format'):
        from_record(config_lib.to_dict(settings))
    with refuses('sha256'):
        from_record({**record, 'model': {**record['model'], 'h': 8}})
    corpus, parallel = {**record['corpus'], 'path': '/elsewhere'}, {**record['parallel'], 'data': 2}
    assert from_record({**record, 'corpus': corpus, 'parallel': parallel}).corpus.path == '/elsewhere'
    for digests in ('x', {}, {'vocabulary.txt': 1}, {'../vocabulary.txt': 'x'}):
        with refuses('sha256'):
            from_record({**record, 'sha256': digests})
    with refuses('sha256'):
        from_record({key: value for key, value in record.items() if key != 'sha256'})


@pytest.mark.parametrize('key', ['eval.hidden', 'model.rounds', 'output.samples', 'hidden'])
def test_a_config_json_with_a_key_that_the_run_does_not_have_is_refused(key):
    *sections, name = key.split('.')
    record = config_lib.to_dict(default_settings())
    (record[sections[0]] if sections else record)[name] = 3
    with refuses(key):
        from_record(to_record(record))


@pytest.mark.parametrize('kind', config_lib.CHOOSERS)
def test_a_config_json_with_a_value_that_no_key_can_have_is_refused_without_the_module_of_the_plug_in(kind):
    section, _, name = kind.partition('.')
    record = config_lib.to_dict(default_settings())
    record[section] |= {name: 'not_there:Plugin', 'options': {'sizes': [1, 2]}}
    with refuses(f'{section}.options.sizes'):
        from_record(to_record(record))


@pytest.mark.parametrize('key', ['name', 'corpus.name', 'corpus.tokens', 'model.family'])
def test_what_lists_show_of_a_config_json_is_printable(key):
    *sections, name = key.split('.')
    record = config_lib.to_dict(default_settings())
    (record[sections[0]] if sections else record)[name] = 'a:\x1b[31mb'
    with refuses(key):
        read_values(to_record(record))


@pytest.mark.parametrize('key', ['eval.words', 'model.h', 'optimizer.schedule', 'seed', 'name'])
def test_a_config_json_without_a_key_of_the_run_is_refused(key):
    *sections, name = key.split('.')
    record = config_lib.to_dict(default_settings())
    del (record[sections[0]] if sections else record)[name]
    with refuses(key):
        from_record(to_record(record))


@pytest.mark.parametrize('number', [2, None])
def test_a_folder_of_another_format_is_refused_in_one_line_by_every_reader(tmp_path, number):
    record = {**to_record(config_lib.to_dict(default_settings())), 'format': number}
    (tmp_path / 'config.json').write_text(json.dumps(record))
    for read in (
        workdir.read_settings,
        catalog.read_run,
        lambda folder: workdir.ensure_folder(folder, default_settings()),
    ):
        with refuses('config.json'):
            read(tmp_path)


OTHERS = [  # changes, the changed key that the run lacks, the choice that determines the keys, some valid keys
    ({'model.layers': 3}, 'model.layers', 'model.family=nplm', 'model.n, model.m, model.h, model.direct'),
    ({'model.tied': True}, 'model.tied', 'model.family=nplm', 'model.dropout'),
    ({'model.family': 'lstm', 'model.n': 4}, 'model.n', 'model.family=lstm', 'model.slowness_penalty'),
    ({'model.family': 'kneser_ney', 'model.h': 5}, 'model.h', 'model.family=kneser_ney', 'model.n, model.bits'),
    ({'model.family': 'kneser_ney', 'model.prune': '0 1'}, 'model.prune', 'model.family=kneser_ney', 'model.bits'),
    ({'model.family': 'kneser_ney', 'output.kind': 'nce'}, 'output.kind', 'model.family=kneser_ney', 'no output.*'),
    ({'model.family': 'kneser_ney', 'optimizer.r': 0.5}, 'optimizer.r', 'model.family=kneser_ney', 'no optimizer.*'),
    ({'model.family': 'kneser_ney', 'train.epochs': 5}, 'train.epochs', 'model.family=kneser_ney', 'no train.*'),
    (
        {'optimizer.name': 'adam', 'optimizer.row_adaptivity': 0.9},
        'optimizer.row_adaptivity',
        'optimizer.name=adam, optimizer.schedule=cosine',
        'optimizer.learning_rate, optimizer.schedule, optimizer.warmup',
    ),
    ({'optimizer.cooldown': 0.1}, 'optimizer.cooldown', 'optimizer.schedule=cosine', 'optimizer.warmup'),
    (
        {'optimizer.name': 'paper', 'optimizer.learning_rate': 0.1},
        'optimizer.learning_rate',
        'optimizer.name=paper',
        'optimizer.epsilon_0, optimizer.r, optimizer.decay',
    ),
    (
        {'optimizer.name': 'paper', 'optimizer.schedule': 'cosine'},
        'optimizer.schedule',
        'optimizer.name=paper',
        'optimizer.epsilon_0',
    ),
    ({'output.samples': 9}, 'output.samples', 'output.kind=full', 'output.block_size'),
    ({'output.kind': 'tree', 'train.calibrate': True}, 'train.calibrate', '', 'train.epochs'),
    ({'corpus.tokens': 'bytes', 'corpus.min_count': 2}, 'corpus.min_count', 'corpus.tokens=bytes', 'corpus.path'),
    ({'corpus.pieces': 900}, 'corpus.pieces', 'corpus.tokens=words', 'corpus.lowercase'),
    ({'model.options.width': 3}, 'model.options.width', 'model.family=nplm', 'model.n'),
    ({'optimizer.options.beta': 0.5}, 'optimizer.options.beta', 'optimizer.name=sgd', 'optimizer.clip_norm'),
    ({'corpus.options.size': 3}, 'corpus.options.size', 'corpus.tokens=words', 'corpus.path'),
    ({'modle.h': 3}, 'modle.h', '', 'corpus, model, output, optimizer, train, eval, parallel, paper'),
    ({'sead': 3}, 'sead', '', 'did you mean seed?'),
]


@pytest.mark.parametrize('changes,key,kinds,said', OTHERS)
def test_a_key_that_the_run_does_not_have_is_one_line_with_the_keys_that_it_has(changes, key, kinds, said):
    ways = [config_lib.from_config, lambda changes: config_lib.override(default.get_config(), changes)]
    for make in [*ways, lambda changes: config_lib.replace(default_settings(), changes)]:
        with refuses(key) as caught:
            make(changes)
        line = one_line(str(caught.value), f'{key}={changes[key]!r}')
        assert kinds in line and said in line
    config_lib.from_config({other: value for other, value in changes.items() if other != key})


def test_an_optimizer_by_import_path_has_rates_of_its_own_unless_one_is_given():
    row, muon = brown.get_config('lstm'), {'optimizer.name': 'optax.contrib:muon'}
    changes = muon, {**muon, 'optimizer.learning_rate': 0.1}
    rates = [config_lib.override(row, change).optimizer for change in changes]
    assert [(found.learning_rate, found.table_rate) for found in rates] == [(0.003, 2.0), (0.1, 2.0)]


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
        load_settings(config_lib.override(brown.get_config(), changes))
