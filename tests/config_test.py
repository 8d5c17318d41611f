"""The config: complete, locked, and each mistake in it one line before anything is downloaded or compiled."""

import json

import pytest
from flax.traverse_util import flatten_dict
from helpers import default_settings

from configs import brown, default
from nplm_jax import config as config_lib
from nplm_jax import parts
from nplm_jax.config import Settings
from nplm_jax.models.network import Network
from nplm_jax.runs import catalog, workdir
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils import checked_fields
from nplm_jax.utils.checked_fields import flatten
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.quick


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
    ('model.n', 1, 'must be 2 or more'),
    ('model.m', 0, 'must be 1 or more'),
    ('model.h', -1, 'must be 0 or more'),
    ('model.h', 0, 'must be 1 or more, or model.direct=True'),
    ('model.dropout', 1.0, 'must be at least 0 and below 1'),
    ('model.layers', 0, 'must be 1 or more'),
    ('model.word_dropout', -0.1, 'must be at least 0 and below 1'),
    ('model.output_dropout', -0.5, r'must be -1 \(as dropout\), or at least 0 and below 1'),
    ('model.precision', 'float16', 'must be one of float32, bfloat16, auto'),
    ('recurrent.weight_dropout', 1.0, 'must be at least 0 and below 1'),
    ('recurrent.activation_penalty', -1.0, 'must be 0 or more'),
    ('recurrent.slowness_penalty', -1.0, 'must be 0 or more'),
    ('residual.averages', -1, 'must be at least 0 and at most 16'),
    ('residual.expansion', 0, 'must be 1 or more'),
    ('train.average', 1.1, 'must be at least 0 and at most 1'),
    ('train.average_start', 1.0, 'must be at least 0 and below 1'),
    ('model.layer_dropout', -0.5, 'must be -1 .as dropout., or at least 0 and below 1'),
    ('optimizer.name', 'sdg', 'must be one of sgd, adam, rowwise_adam, adagrad, paper'),
    ('optimizer.schedule', 'cos', 'must be one of constant, linear, cosine'),
    ('optimizer.learning_rate', 0.0, 'must be above 0 and finite'),
    ('optimizer.learning_rate', float('inf'), 'must be above 0 and finite'),
    ('optimizer.learning_rate', float('nan'), 'must be above 0'),
    ('optimizer.momentum', 1.0, 'must be at least 0 and below 1'),
    ('optimizer.warmup', -1, 'must be 0 or more'),
    ('optimizer.clip_norm', -1.0, 'must be 0 or more'),
    ('optimizer.decay', -1e-5, 'must be 0 or more'),
    ('optimizer.paper.r', float('inf'), 'must be 0 or more'),
    ('optimizer.paper.epsilon_0', -1.0, 'must be above 0'),
    ('optimizer.paper.decay', -1.0, 'must be 0 or more'),
    ('corpus.name', 'browne', 'must be one of brown, ap_news, wikitext2, wikitext103, gutenberg, text, sentences'),
    ('corpus.path', 'my.txt', 'corpus.name=brown does not use it'),
    ('corpus.tokens', 'letters', 'must be one of words, whitespace'),
    ('corpus.count_over', 'test', 'must be one of all, train'),
    ('corpus.min_count', 0, 'must be 1 or more'),
    ('corpus.max_vocabulary', 2, r'must be 0 \(no limit\) or 3 or more'),
    ('corpus.train', 0.0, 'must be above 0 and below 1, a fraction of the stream, or 2 or more words'),
    ('corpus.valid', 1.0, 'must be above 0 and below 1'),
    ('corpus.test', 1.0, r'must be 0 \(the rest of the stream\), above 0 and below 1, a fraction of the stream, or 2'),
    ('model.family', 'trigram', 'must be one of nplm, residual, '),
    ('output.kind', 'hierarchical', 'must be one of full, sampled, nce, two_level'),
    ('output.precision', 'float16', 'must be one of float32, bfloat16, auto'),
    ('output.block_size', -1, 'must be 0 or more'),
    ('output.samples', 0, 'must be 1 or more'),
    ('output.proposal', 'uniform', 'must be one of unigram, log_uniform'),
    ('output.num_shortlist', -1, 'must be 0 or more'),
    ('output.classes', 0, 'must be 1 or more'),
    ('ngram.delta', -1.0, 'must be at least 0 and at most 1000000'),
    ('ngram.classes', 0, 'must be 1 or more'),
    ('ngram.bits', 4, 'must be one of 0, 8, 16'),
    ('parallel.data', 0, r'must be -1 \(all remaining devices\) or 1 or more'),
    ('parallel.model', -2, 'must be -1'),
    ('parallel.mode', 'pjit', 'must be one of shard_map, pmap'),
    *((f'train.{key}', 0, 'must be 1 or more') for key in ('batch_size', 'epochs', 'patience', 'checkpoint_every')),
    *((f'train.{key}', 0, 'must be 1 or more') for key in ('log_every', 'steps_per_execution', 'bptt_length')),
    ('train.evaluate_every', -1, 'must be 0 or more'),
    ('paper.valid', -1.0, 'must be 0 or more'),
    ('seed', -1, 'must be 0 or more'),
    ('name', 'a/b', 'must be a printable name without a slash'),
]


@pytest.mark.parametrize('key,value,allowed', IMPOSSIBLE)
def test_an_impossible_value_is_one_line_with_key_value_and_what_is_allowed(key, value, allowed):
    with pytest.raises(BadInput, match=f'^{key}=.*{allowed}') as caught:
        load_settings(config({key: value}))
    assert repr(value) in str(caught.value) and '\n' not in str(caught.value)


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
        load_settings(config({key: value}))


@pytest.mark.parametrize('kind', parts.PARTS['output.kind'].paths)
def test_every_output_goes_with_every_optimizer(kind):
    for name in parts.PARTS['optimizer.name'].paths:
        assert load_settings(config({'output.kind': kind, 'optimizer.name': name})).optimizer.name == name


def test_a_shortlist_or_classes_that_the_vocabulary_cannot_fill_are_one_line():
    fits = {'output.samples': 10, 'output.num_shortlist': 4, 'output.classes': 6}
    for kind in parts.PARTS['output.kind'].paths:
        assert Network.make(default_settings({**fits, 'output.kind': kind}), 10).vocabulary_size == 10
    unused = {'output.kind': 'full', 'output.samples': 11, 'output.num_shortlist': 12}
    assert Network.make(default_settings(unused), 10).vocabulary_size == 10
    for kind, key, value, allowed in [
        ('two_level', 'num_shortlist', 10, 'must be below 10, the size of the vocabulary'),
        ('two_level', 'classes', 7, 'must be 6 or less, the number of words outside output.num_shortlist'),
    ]:
        settings = default_settings({**fits, 'output.kind': kind, f'output.{key}': value})
        with pytest.raises(BadInput, match=f'^output.{key}={value}: {allowed}$'):
            Network.make(settings, 10)


def test_an_unknown_and_a_mistyped_key_are_one_line():
    tree = config().to_dict()
    tree['model']['hidden'] = 3
    with pytest.raises(
        BadInput, match='^model.hidden: unknown key; allowed here: family, unigram_bias, n, m, h, direct'
    ):
        config_lib.from_config(tree)
    del tree['model']['hidden']
    for value in ('6', 6.0, True, None):
        tree['train']['epochs'] = value
        with pytest.raises(BadInput, match='^train.epochs=.*must be an integer$'):
            config_lib.from_config(tree)
    for kind in checked_fields.OPTION_TYPES:
        with pytest.raises(BadInput) as caught:
            checked_fields.check_value(None, kind, 'x')
        assert kind.__name__ not in caught.value.problem.split()
    with pytest.raises(BadInput, match='^ngram.bits=8.0: must be an integer$'):
        config_lib.from_config({'ngram.bits': 8.0})
    tree['train'] = 3
    with pytest.raises(BadInput, match='^train=3: must be a section'):
        config_lib.from_config(tree)


def test_a_config_json_has_every_key_and_one_format():
    settings = default_settings({'model.h': 7})
    record = config_lib.to_record(settings)
    assert config_lib.from_record(json.loads(json.dumps(record))) == settings
    for number in (2, None, '1'):
        with pytest.raises(BadInput, match=f'^format={number!r}: must be 1, the only format that this version reads$'):
            config_lib.from_record({**record, 'format': number})
    with pytest.raises(BadInput, match='^format=None: must be 1'):
        config_lib.from_record(config_lib.to_dict(settings))
    damaged = {**record, 'model': {**record['model'], 'h': 8}}
    with pytest.raises(BadInput) as caught:
        config_lib.from_record(damaged)
    assert caught.value.key == 'sha256'
    elsewhere = {
        **record,
        'corpus': {**record['corpus'], 'path': '/elsewhere'},
        'parallel': {**record['parallel'], 'data': 2},
    }
    assert config_lib.from_record(elsewhere).corpus.path == '/elsewhere'
    for digests in ('x', {'vocabulary.txt': 1}, {'../vocabulary.txt': 'x'}):
        with pytest.raises(BadInput):
            config_lib.from_record({**record, 'sha256': digests})
    del record['corpus']['context'], record['sha256']  # of a run from before the keys, which read a stream
    assert config_lib.from_record(record).corpus.context == 'stream'
    del record['corpus']['words']  # of a run on all of its text
    assert config_lib.from_record(record).corpus.words == 0
    del record['corpus']['test']  # recorded before the key existed: the rest of the stream
    assert config_lib.from_record(record).corpus.test == 0
    del record['eval']['words']
    with pytest.raises(BadInput, match='^eval.words: missing$'):
        config_lib.from_record(record)
    with pytest.raises(BadInput, match='^eval.hidden: unknown key; allowed here: train_words, words$'):
        config_lib.from_record({**record, 'eval': {'train_words': 0, 'words': 0, 'hidden': 3}})


@pytest.mark.parametrize('number', [2, None])
def test_a_folder_of_another_format_is_refused_in_one_line_by_every_reader(tmp_path, number):
    record = {**config_lib.to_record(default_settings()), 'format': number}
    (tmp_path / 'config.json').write_text(json.dumps(record))
    for read in (workdir.read_settings, catalog.read_run, lambda folder: workdir.check(folder, default_settings())):
        with pytest.raises(BadInput, match=rf'config.json: cannot be read \(format={number}: must be 1, '):
            read(tmp_path)


# --- keys that nothing reads -----------------------------------------------------------------------------

NPLM = 'model.unigram_bias, model.n, model.m, model.h, model.direct, model.dropout'
UNREAD = [
    ({'model.layers': 3}, f'model.layers=3: not read by model.family=nplm, which reads {NPLM}'),
    ({'model.tied': True}, f'model.tied=True: not read by model.family=nplm, which reads {NPLM}'),
    ({'train.bptt_length': 8}, f'train.bptt_length=8: not read by model.family=nplm, which reads {NPLM}'),
    (
        {'model.family': 'lstm', 'residual.averages': 2, 'model.n': 4},
        'model.n=4, residual.averages=2: not read by model.family=lstm, which reads model.unigram_bias, .*'
        'recurrent.slowness_penalty',
    ),
    (
        {'model.family': 'kneser_ney', 'model.h': 5},
        'model.h=5: not read by model.family=kneser_ney, which reads model.n, ngram.bits, ngram.prune_entropy',
    ),
    (
        {'model.family': 'kneser_ney', 'output.kind': 'nce'},
        "output.kind='nce': not read by model.family=kneser_ney, .*",
    ),
    ({'model.family': 'kneser_ney', 'train.epochs': 5}, 'train.epochs=5: not read by model.family=kneser_ney, .*'),
    (
        {'model.family': 'kneser_ney', 'ngram.prune': '0 1'},
        "ngram.prune='0 1': not read by model.family=kneser_ney, .*",
    ),
    ({'ngram.classes': 9}, f'ngram.classes=9: not read by model.family=nplm, which reads {NPLM}'),
    (
        {'optimizer.name': 'adam', 'optimizer.momentum': 0.9},
        'optimizer.momentum=0.9: not read by optimizer.name=adam, which reads optimizer.learning_rate, '
        'optimizer.schedule, optimizer.warmup, optimizer.table_rate, optimizer.clip_norm, optimizer.decay',
    ),
    (
        {'optimizer.name': 'paper', 'optimizer.learning_rate': 0.1},
        'optimizer.learning_rate=0.1: not read by optimizer.name=paper, which reads optimizer.paper.epsilon_0, .*',
    ),
    (
        {'output.samples': 9},
        'output.samples=9: not read by output.kind=full, which reads output.precision, output.block_size, '
        'output.teacher, output.teacher_weight, '
        'train.calibrate, train.suffix_smoothing',
    ),
    (
        {'output.kind': 'tree', 'train.calibrate': True},
        'train.calibrate=True: not read by output.kind=tree, which reads output.tree',
    ),
]


@pytest.mark.parametrize('changes,message', UNREAD)
def test_a_key_that_nothing_reads_is_one_line_with_the_keys_that_are_read(changes, message):
    with pytest.raises(BadInput, match=f'^{message}$') as caught:
        load_settings(config(changes))
    assert '\n' not in str(caught.value)
    unread = str(caught.value).partition(': ')[0]
    load_settings(config({key: value for key, value in changes.items() if f'{key}=' not in unread}))


def test_an_optimizer_by_import_path_has_rates_of_its_own_unless_one_is_given():
    row, muon = brown.get_config('one_minute,sgd'), {'optimizer.name': 'optax.contrib:muon'}
    rates = [
        (config.optimizer.learning_rate, config.optimizer.table_rate)
        for config in (parts.override(row, muon), parts.override(row, {**muon, 'optimizer.learning_rate': 0.1}))
    ]
    assert rates == [(0.003, 2.0), (0.1, 1.0)]


def test_another_choice_resets_the_keys_of_the_row_that_it_does_not_read_and_no_key_that_was_given():
    row = brown.get_config()  # nplm of n=13, sampled, rowwise_adam
    lstm = parts.override(row, {'model.family': 'lstm', 'output.kind': 'full'})
    changed = {key for key, value in flatten(lstm).items() if value != flatten(row)[key]}
    assert changed == {'model.family', 'output.kind', 'model.n'} and lstm.model.n == 6 and lstm.model.m == row.model.m
    counts = flatten(parts.override(row, {'model.family': 'kneser_ney'}))
    read = {key for key, value in counts.items() if value != config_lib.FIELDS[key].default}
    assert {key.partition('.')[0] for key in read} == {'name', 'corpus', 'model'}
    assert {key for key in read if key.startswith('model')} == {'model.family', 'model.n'}
    with pytest.raises(BadInput, match='^optimizer.row_adaptivity=0.7: not read by optimizer.name=adam, '):
        load_settings(parts.override(row, {'optimizer.name': 'adam', 'optimizer.row_adaptivity': 0.7}))
    load_settings(parts.override(row, {'optimizer.name': 'adam'}))


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'model.hh': 1}, 'model.hh: unknown key'),
        ({'model.n': 2.5}, 'model.n=2.5: must be an integer'),
        ({'model': 1}, 'model=1: must be a section'),
        ({'corpus.path': 'caf\udce9.txt'}, 'must be valid Unicode; rename the file'),
    ],
)
def test_an_impossible_change_of_a_config_is_one_line(changes, message):
    with pytest.raises(BadInput, match=message):
        load_settings(parts.override(brown.get_config(), changes))


def test_the_list_of_keys_is_what_the_parts_declare_each_once():
    assert config_lib.KEYS_FILE.read_text() == parts.list_keys()  # python -m nplm_jax.parts
    declarations = {}
    for key, kind in parts.PARTS.items():
        for name in kind.paths:
            for base in parts.part_class(key, name).__mro__:
                own = {name: field for name, field in vars(base).items() if name == '__dataclass_fields__'}
                for field in own.get('__dataclass_fields__', {}).values():
                    if checked_fields.MEANING in field.metadata:
                        full = f'{field.metadata[checked_fields.SECTION] or key.partition(".")[0]}.{field.name}'
                        declarations.setdefault(full, set()).add(id(field))
    assert declarations and all(len(fields) == 1 for fields in declarations.values())


@pytest.mark.parametrize('key', parts.PARTS)
def test_every_part_gets_the_values_of_its_keys(key):
    for name in parts.PARTS[key].paths:
        settings = default_settings({key: name})
        part = parts.make(key, settings)
        assert parts.values_of(key, part).items() <= config_lib.to_flat(settings).items()
