"""A packed model equals its run bit for bit, and damaged or unexpected contents are not unpacked."""

import errno
import hashlib
import io
import json
import os
import pathlib
import stat
import zipfile

import numpy as np
import pytest
from helpers import numbers, one_line, refuses

import nplm_jax
from configs import sentences, text
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import to_record
from nplm_jax.config.registry import NGRAM_MODELS
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, spelling
from nplm_jax.utils.errors import BadInput

# Three sentences are too little text for estimating discounts.
pytestmark = pytest.mark.filterwarnings('ignore:the text is too short')

SHORT = {'train.epochs': 1, 'train.evaluate_every': 0}
CHANGES = {
    'window': {'model.direct': True},
    'tree': {'output.kind': 'tree'},
    'two_level': {'output.kind': 'two_level', 'output.num_shortlist': 4, 'output.classes': 2},
    'lstm': {'model.family': 'lstm', 'model.bptt_length': 2, 'train.batch_size': 2},
    'residual': {'model.family': 'residual', 'model.bptt_length': 2},
    'kneser_ney': {'model.family': 'kneser_ney'},
    'interpolated': {'model.family': 'interpolated', 'model.n': 3},
    'classes': {'model.family': 'classes', 'model.classes': 2},
}


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp('runs')


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache' / 'models'


def make(folder, changes=CHANGES['kneser_ney'], config=None):
    if not folder.exists():
        short = {} if changes.get('model.family') in NGRAM_MODELS else SHORT
        experiment.run(config_lib.override(config or sentences.get_config(), short | changes), folder)
    return folder


def refused(*words):
    """Returns the message of a command that ends with exit code 2."""
    with pytest.raises(BadInput) as error:
        all_commands()[words[0]].run(words[0], words[1:])
    assert '\n' not in str(error.value)
    return str(error.value)


def pack(folder, path):
    cli.main(['pack', str(folder), f'--output={path}'])
    return path


@pytest.mark.parametrize('name', ['y.model', 'y', 'y.arpa'])
def test_a_packed_model_may_be_renamed(runs, tmp_path, name, capsys):
    path = pack(make(runs / 'kneser_ney'), tmp_path / 'model.nplm').rename(tmp_path / name)
    assert nplm_jax.load(path).vocabulary == nplm_jax.load(runs / 'kneser_ney').vocabulary
    assert nplm_jax.kenlm.Model(str(path)).order == nplm_jax.kenlm.Model(str(runs / 'kneser_ney')).order
    capsys.readouterr()
    cli.main(['generate', str(path), '--words=2'])
    assert capsys.readouterr().out.strip()


@pytest.mark.nightly
@pytest.mark.parametrize('kind', CHANGES)
def test_what_is_packed_is_loaded_bit_for_bit(runs, tmp_path, kind):
    folder = make(runs / kind, CHANGES[kind])
    path = pack(folder, tmp_path / 'model.nplm')
    loaded = nplm_jax.load(folder)
    settings, vocabulary, model = loaded.settings, loaded.vocabulary, loaded.model
    loaded = nplm_jax.load(path)
    packed_settings, packed_vocabulary, packed_model = loaded.settings, loaded.vocabulary, loaded.model
    tokens = np.arange(1, len(vocabulary)).repeat(2)
    np.testing.assert_array_equal(packed_model.score(tokens), model.score(tokens))
    np.testing.assert_array_equal(packed_model.next_word(tokens[None]), model.next_word(tokens[None]))
    assert (packed_settings, packed_vocabulary) == (settings, vocabulary)
    unpacked = catalog.expand_run(path)
    assert (unpacked / 'results.json').read_bytes() == (folder / 'results.json').read_bytes()
    assert pack(path, tmp_path / 'again.nplm').read_bytes() == path.read_bytes()
    assert catalog.digest(unpacked) == catalog.digest(folder)  # weights are learned for both models


def test_the_digest_of_a_run_covers_its_config_except_the_paths_of_texts(tmp_path):
    digests = []
    for seed, path in ((1, 'old.txt'), (1, 'new.txt'), (2, 'old.txt')):
        record = to_record({'seed': seed, 'corpus': {'path': path}})
        (tmp_path / catalog.CONFIG).write_text(json.dumps(record))
        digests.append(catalog.digest(tmp_path))
    assert digests[0] == digests[1] != digests[2]


def test_pieces_and_their_tokenizer(tmp_path):
    (tmp_path / 'text.txt').write_text('The cat sat on the mat. Ça va? 日本語。\n' * 60)
    changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.tokens': 'bytes', 'model.family': 'kneser_ney'}
    folder = make(tmp_path / 'run', changes, text.get_config())
    vocabulary = nplm_jax.load(pack(folder, tmp_path / 'model.nplm')).vocabulary
    assert vocabulary == nplm_jax.load(folder).vocabulary and vocabulary.tokenizer.is_lossless


def test_the_spelling_of_unknown_words(tmp_path, lines):
    words = 'the cat saw a dog and the dog saw a cat while one {} slept .\n'
    (tmp_path / 'text.txt').write_text(
        ''.join(words.format('z' + chr(97 + i % 26) * (i // 26 + 1)) for i in range(200))
    )
    changes = {'corpus.path': str(tmp_path / 'text.txt'), 'corpus.min_count': 3, 'model.family': 'kneser_ney'}
    folder = make(tmp_path / 'run', changes, text.get_config())
    changes = {'model.family': 'kneser_ney', 'model.n': 3}
    spelling.train(folder, spelling.read_rare_words(folder), 1, 'test', changes)
    path = pack(folder, tmp_path / 'model.nplm')
    printed = []
    for run in (folder, path):
        lines()
        cli.main(['generate', str(run), '--open', '--words=9', '--seed=1'])
        printed.append(lines()[0])
    assert printed[0] == printed[1] and printed[0]


@pytest.fixture
def valid(runs, tmp_path):
    return pack(make(runs / 'kneser_ney'), tmp_path / 'model.nplm').read_bytes()


def test_a_packed_model_is_unpacked_once(valid, tmp_path, cache):
    folder = catalog.expand_run(tmp_path / 'model.nplm')
    assert folder.name == 'model' and folder.parent.parent == cache
    before = (folder / 'config.json').stat().st_mtime_ns
    assert catalog.expand_run(tmp_path / 'model.nplm') == folder
    assert (folder / 'config.json').stat().st_mtime_ns == before
    assert [path.name for path in folder.parent.iterdir()] == ['model']


def test_damage_after_unpacking_has_no_effect_but_other_members_are_refused(valid, tmp_path):
    path = tmp_path / 'model.nplm'
    folder = catalog.expand_run(path)
    path.write_bytes(valid[:500] + bytes([valid[500] ^ 1]) + valid[501:])
    assert catalog.expand_run(path) == folder
    path.write_bytes(valid)
    with zipfile.ZipFile(path, 'a') as archive:  # keeps the comment
        archive.writestr(entry('corpus.txt'), '')
    with refuses('RUN'):
        catalog.expand_run(path)


def test_a_full_disk_is_called_one(valid, tmp_path, cache, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr('shutil.copyfileobj', full)
    message = refused('score', str(tmp_path / 'model.nplm'))
    assert str(cache) in message and 'No space left on device' in message
    assert not list(cache.glob('*/*'))


@pytest.mark.parametrize('name, stem', [('...nplm', 'model'), ('..x.nplm', 'x'), ('a..nplm', 'a.')])
def test_the_folder_of_any_name_is_a_folder_in_the_cache(valid, tmp_path, cache, name, stem):
    (tmp_path / name).write_bytes(valid)
    folder = catalog.expand_run(tmp_path / name)
    assert folder.name == stem and folder.resolve().parent.parent == cache.resolve()
    assert nplm_jax.load(tmp_path / name).settings.model.name == 'kneser_ney'


@pytest.mark.parametrize('members', [101, 60_000])
def test_more_members_than_a_model_has_are_refused_before_one_is_read(tmp_path, cache, members, monkeypatch):
    (path := tmp_path / 'bad.nplm').write_bytes(seal((entry(f'a.b{i}'), b'') for i in range(members)))
    monkeypatch.setattr(zipfile.ZipFile, 'open', lambda *_: pytest.fail('a member was read'))
    with pytest.raises(BadInput) as caught:
        catalog.expand_run(path)
    assert numbers(caught.value.problem) == [f'{members:,}', '100'] and not cache.exists()


def test_the_name_of_a_run_is_enough(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / 'runs' / 'name')
    assert nplm_jax.load('name').settings.model.name == 'kneser_ney'
    cli.main(['info', 'name'])


@pytest.mark.parametrize(
    'damage,said',
    [
        (lambda data: data[:-1], []),
        (lambda data: data[:1000], []),
        (lambda data: b'', []),
        (lambda data: data[:500] + bytes([data[500] ^ 1]) + data[501:], []),
        (lambda data: data[:-1] + (b'1' if data[-1:] == b'0' else b'0'), []),
        (lambda data: data.replace(b'format 1,', b'format 2,'), ['2', '1']),
        (lambda data: data + b'x', []),
    ],
)
def test_a_damaged_file_is_one_line(valid, tmp_path, cache, damage, said):
    (path := tmp_path / 'bad.nplm').write_bytes(damage(valid))
    for command in ('score', 'info', 'generate'):
        line = one_line(refused(command, str(path)), key := f"RUN='{path}'")
        assert numbers(line.removeprefix(key)) == said
    assert not cache.exists()


def seal(entries, compression=zipfile.ZIP_STORED):
    """Returns a zip of these entries with the comment of a packed model and the right checksum."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w', compression) as archive:
        archive.comment = b'nplm-jax model, format 1, sha256 ' + b'0' * 64
        for entry, content in entries:
            archive.writestr(entry, content)
    data = file.getvalue()[:-64]
    return data + hashlib.sha256(data).hexdigest().encode()


def entry(name, mode=stat.S_IFREG | 0o644):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


@pytest.mark.filterwarnings('ignore:Duplicate name:UserWarning')
@pytest.mark.parametrize(
    'entries',
    [
        [(entry('../config.json'), '{}')],
        [(entry('/tmp/config.json'), '{}')],
        [(entry('spelling/../../x.json'), '{}')],
        [(entry('a\\b.json'), '{}')],
        [(entry('.hidden.json'), '{}')],
        [(entry('checkpoints/1/x.json'), '{}')],
        [(entry('config.json', stat.S_IFLNK | 0o777), '/etc/passwd')],
        [(entry('config.json', stat.S_IFIFO | 0o644), '')],
        [(entry('spelling/', stat.S_IFDIR | 0o755), '')],
        [(entry('config.json'), '{}'), (entry('config.json'), '{"a": 1}')],
    ],
)
def test_a_member_that_no_model_has_is_refused(tmp_path, cache, entries):
    (path := tmp_path / 'bad.nplm').write_bytes(seal(entries))
    with refuses('RUN'):
        catalog.expand_run(path)
    assert {p.name for p in tmp_path.iterdir()} == {'bad.nplm'}


def test_bombs_are_refused_before_anything_is_written(tmp_path, cache):
    bomb = entry('model.safetensors')
    bomb.compress_type = zipfile.ZIP_DEFLATED
    (tmp_path / 'bomb.nplm').write_bytes(seal([(bomb, bytes(10**8))]))
    with refuses('RUN'):
        catalog.expand_run(tmp_path / 'bomb.nplm')
    stored = seal([(entry('config.json'), b'{}')])[:-64]
    place = stored.index(b'PK\x01\x02') + 24  # the size in the central directory
    declared = stored[:place] + (2**31).to_bytes(4, 'little') + stored[place + 4 :]
    (tmp_path / 'big.nplm').write_bytes(declared + hashlib.sha256(declared).hexdigest().encode())
    with refuses('RUN'):
        catalog.expand_run(tmp_path / 'big.nplm')
    assert not cache.exists()


def test_a_packed_model_without_its_files_is_one_line(tmp_path):
    (path := tmp_path / 'bad.nplm').write_bytes(seal([(entry('config.json'), '{}')]))
    one_line(refused('score', str(path)), f"RUN='{path}'")


def test_parameters_of_another_network_are_refused(runs, tmp_path):
    make(runs / 'window', CHANGES['window'])
    pack(runs / 'window', tmp_path / 'model.nplm')
    folder = catalog.expand_run(tmp_path / 'model.nplm')
    config = json.loads((folder / 'config.json').read_text())
    config['model']['h'] = 6
    config = to_record({key: value for key, value in config.items() if key not in ('format', 'sha256')})
    (folder / 'config.json').write_text(json.dumps(config))
    with refuses('model/parameters.safetensors'):
        nplm_jax.load(folder)


def test_bad_output_and_runs_that_cannot_be_packed(runs, tmp_path):
    folder = make(runs / 'kneser_ney')
    one_line(refused('pack', str(folder), f'--output={tmp_path}/x.zip'), f"--output='{tmp_path}/x.zip'")
    assert f'{tmp_path}/nowhere' in refused('pack', str(folder), f'--output={tmp_path}/nowhere/x.nplm')
    one_line(refused('pack', str(tmp_path), f'--output={tmp_path}/x.nplm'), f"RUN='{tmp_path}'")
    pack(folder, tmp_path / 'model.nplm')


def test_a_model_with_another_suffix_is_told_apart_from_a_text(tmp_path):
    (tmp_path / 'text.txt').write_text('a text')
    assert 'nplm score RUN < ' in refused('score', str(tmp_path / 'text.txt'))
    assert isinstance(catalog.expand_run(tmp_path / 'text.txt'), pathlib.Path)
