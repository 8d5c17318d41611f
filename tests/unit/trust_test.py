"""Tests that nothing in a run folder or packed model is executed, whatever an attacker writes into it."""

import io
import json
import os
import pickle
import shutil
import subprocess
import sys

import pytest
from helpers import ROOT, one_line, plugin_folder, refuses

import nplm_jax
from configs import sentences
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.config import plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import to_record
from nplm_jax.config.settings import from_record
from nplm_jax.reporting import catalog, packed
from nplm_jax.runs import experiment, loading, program_from_settings
from nplm_jax.runs.experiment import load_settings
from nplm_jax.utils.errors import BadInput

PAYLOAD = """open('executed', 'a').close()

def texts(path='x'):
    open('executed', 'a').close()
    return ['a text']

class Body: ...
"""
TEXTS = """import dataclasses
from nplm_jax.data.tokenizers.words import WordTokenizer

def texts():
    return {name: ['the dog barks , the cat sleeps .'] * 9 for name in ('train', 'valid', 'test')}

@dataclasses.dataclass(frozen=True, kw_only=True)
class Words(WordTokenizer):
    kind: str = 'my_texts:Words'
"""
EVIL = 'runs.evil.payload'
NUMPY = 'numpy.lib._utils_impl:_makenamedict'
TOKENIZER = 'tokenizer_config.json'


@pytest.fixture
def evil(folders, tmp_path, monkeypatch):
    """Returns a function that copies a good run to a folder where Python finds the module `runs.evil.payload`."""

    def make(kind, changes):
        folder = shutil.copytree(folders / kind, tmp_path / 'runs' / 'evil')
        (folder / 'payload.py').write_text(PAYLOAD)
        for file, values in changes.items():
            content = json.loads((folder / file).read_text())
            for key, value in values.items():
                *sections, name = key.split('.')
                section = content[sections[0]] if sections else content
                section[name] = value
            if file == catalog.CONFIG:  # an attacker also writes the matching digest
                content = to_record({key: value for key, value in content.items() if key not in ('format', 'sha256')})
            (folder / file).write_text(json.dumps(content))
        return folder

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', ['', *sys.path])  # as with `python -m nplm_jax.cli`
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path / 'cache'))
    return make


@pytest.fixture
def refusal(lines, monkeypatch):
    """Returns a function that returns the one-line error of a command, with exit code 2."""

    def call(*words):
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'i like dog')))
        lines()
        with pytest.raises(SystemExit) as end:
            cli.main(list(map(str, words)))
        stdout, stderr = lines()
        assert end.value.code == 2 and not stdout and len(stderr) == 1, stderr
        return stderr[0]

    return call


CHANGES = {
    'corpus.name': {'config.json': {'corpus.name': f'{EVIL}:texts', 'corpus.options': {'path': 'x'}}},
    'model.family': {'config.json': {'model.family': f'{EVIL}:Body', 'model.power': 2.0}},
    'output.kind': {'config.json': {'output.kind': f'{EVIL}:Body'}},
    'optimizer.name': {'config.json': {'optimizer.name': f'{EVIL}:texts'}},
    'corpus.tokens': {'config.json': {'corpus.tokens': f'{EVIL}:Body'}, TOKENIZER: {'kind': f'{EVIL}:Body'}},
}


@pytest.mark.parametrize('key', CHANGES)
def test_the_module_of_a_folder_is_not_imported(key, evil, nplm_command, refusal, lines, tmp_path, monkeypatch):
    folder = evil('network', CHANGES[key])
    for words in (['runs'], ['info', folder], ['info', folder, '--json'], ['compare', folder]):
        printed, errors = nplm_command(*words)
        assert printed and not errors, errors
    if key in ('corpus.name', 'optimizer.name'):  # a trained model does not need them
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'i like dog')))
        assert nplm_command('score', folder)[0]
    else:
        line = refusal('score', folder)
        assert f'{key}=' in line and f'--plugins={EVIL}, ' in line
    assert not (tmp_path / 'executed').exists() and EVIL not in sys.modules


def test_listing_imports_nothing_even_of_named_modules(evil, nplm_command, tmp_path, monkeypatch):
    folder = evil('network', CHANGES['corpus.tokens'])
    monkeypatch.setenv(plugins.ENVIRONMENT, EVIL)
    for words in (['runs'], ['info', folder], ['compare', folder]):
        assert nplm_command(*words)[0]
    assert not (tmp_path / 'executed').exists()


@pytest.mark.parametrize('command', sorted({'mix', 'adapt', 'spell'} & all_commands().keys()))
def test_the_corpus_function_of_a_folder_is_not_called(command, evil, refusal, tmp_path):
    folders = [evil('counts', CHANGES['corpus.name'])]
    if command == 'mix':
        folders.append(shutil.copytree(folders[0], tmp_path / 'copy'))
    line = refusal(command, *folders)
    assert f"corpus.name='{EVIL}:texts': " in line and f'--plugins={EVIL}, ' in line
    assert not (tmp_path / 'executed').exists()


@pytest.mark.parametrize('path,option', [(f'{EVIL}:texts', 'path'), (NUMPY, 'module')])
def test_a_packed_model_without_arrays_is_refused_and_calls_nothing(
    path, option, evil, refusal, nplm_command, tmp_path
):
    changes = {'corpus.name': path, 'corpus.options': {option: f'{EVIL}'}}
    folder = evil('counts', {'config.json': changes})
    members = [catalog.CONFIG, catalog.CORPUS, catalog.VOCABULARY, catalog.RESULTS, TOKENIZER]
    packed.write(tmp_path / 'evil.nplm', {name: folder / name for name in members})
    for words in (['info'], ['compare']):
        assert nplm_command(*words, tmp_path / 'evil.nplm')[0]
    assert '/evil/model.safetensors: ' in refusal('score', tmp_path / 'evil.nplm')
    with refuses('evil/model.safetensors'):
        loading.load(tmp_path / 'evil.nplm')
    assert not (tmp_path / 'executed').exists() and EVIL not in sys.modules


def test_a_module_that_ends_the_process_is_one_line(refusal, evil, tmp_path):
    folder = evil('network', {'config.json': {'model.family': 'ends:Body'}})
    (tmp_path / 'ends.py').write_text('import sys; sys.exit(0)')
    line = refusal('score', folder, '--plugins=ends')
    assert "model.family='ends:Body': " in line and 'SystemExit: 0' in line


@pytest.mark.parametrize('name', ['my_models:Body', 'my models'])
def test_a_name_that_no_module_has_is_refused(name, refusal, folders, monkeypatch):
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    line = refusal('score', folders / 'network', f'--plugins=a, {name},')
    one_line(line, f'--plugins={name!r}')


def test_a_command_imports_nothing_from_the_working_folder(folders, tmp_path):
    (tmp_path / 'jax_plugins' / 'evil').mkdir(parents=True)  # a namespace package that JAX imports wherever it finds it
    (tmp_path / 'jax_plugins' / 'evil' / '__init__.py').write_text('open("executed", "w")')
    program = f'from nplm_jax.cli.__main__ import main; main(["next", {str(folders / "network")!r}, "--prompt=i"])'
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    done = subprocess.run([sys.executable, '-P', '-c', program], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0 and not (tmp_path / 'executed').exists(), done.stderr


def test_a_name_covers_the_modules_of_a_package_and_no_other(monkeypatch):
    monkeypatch.setenv(plugins.ENVIRONMENT, 'mine.parts')
    allowed = {
        path: plugins.is_allowed(path) for path in ('mine.parts:A', 'mine.parts.more:A', 'mine:A', 'mine.parts2:A')
    }
    assert allowed == {'mine.parts:A': True, 'mine.parts.more:A': True, 'mine:A': False, 'mine.parts2:A': False}


def test_trust_in_the_plugins_of_one_model_ends_with_the_call_and_changes_nothing_else(tmp_path, monkeypatch):
    with plugin_folder(tmp_path, monkeypatch, my_texts=TEXTS):
        environment, path = dict(os.environ), list(sys.path)
        changes = {'model.family': 'add_delta', 'corpus.name': 'my_texts:texts', 'corpus.tokens': 'my_texts:Words'}
        trained = nplm_jax.train('sentences', tmp_path / 'run', changes)
        loaded = nplm_jax.load(tmp_path / 'run', plugins=['my_texts'])
        assert trained.vocabulary == loaded.vocabulary and nplm_jax.load_dataset(loaded.settings).train
        nplm_jax.train('sentences', tmp_path / 'other', {'model.family': 'add_delta'}, plugins=['my_texts'])
        assert (dict(os.environ), sys.path) == (environment, path)
        for load in (nplm_jax.load, nplm_jax.load_dataset):
            with pytest.raises(BadInput):
                load(tmp_path / 'run')


def test_settings_keep_the_trust_of_who_made_them(tmp_path, monkeypatch):
    with plugin_folder(tmp_path, monkeypatch, my_texts=TEXTS):
        own = load_settings({'corpus.name': 'my_texts:texts'})
        read = from_record(to_record(config_lib.to_dict(own)))
        assert config_lib.to_flat(own) == config_lib.to_flat(read)
        for settings in (own, pickle.loads(pickle.dumps(own)), config_lib.replace(own, {'seed': 2})):
            assert settings.corpus.options.function().keys() == {'train', 'valid', 'test'}
        for settings in (read, pickle.loads(pickle.dumps(read)), config_lib.replace(read, {'seed': 2})):
            assert settings.corpus.options.function is None
        assert not plugins.is_allowed(own.corpus.name)


def test_the_plugins_of_a_student_are_trusted_in_its_teachers(tmp_path, monkeypatch):
    with plugin_folder(tmp_path, monkeypatch, my_texts=TEXTS):
        changes = {'corpus.name': 'my_texts:texts', 'corpus.tokens': 'my_texts:Words', 'train.epochs': 1}
        nplm_jax.train('sentences', tmp_path / 'teacher', changes)
        student = load_settings(config_lib.override(sentences.get_config(), changes))
        taught = config_lib.replace(student, {'output.teacher': str(tmp_path / 'teacher')})
        (teacher,) = loading.load_teachers(taught, tmp_path / 'student')
        assert teacher.vocabulary.tokenizer.kind == 'my_texts:Words'


def test_loading_builds_no_optimizer_and_reads_parameters_alone(tmp_path, monkeypatch):
    experiment.run(config_lib.override(sentences.get_config(), {'train.epochs': 1}), tmp_path / 'run')
    before = loading.load(tmp_path / 'run').model.params
    monkeypatch.setattr(program_from_settings, 'make_program', None)
    for state in (tmp_path / 'run' / 'checkpoints').glob('*/state'):
        shutil.rmtree(state)
    after = loading.load(tmp_path / 'run').model.params
    assert before.keys() == after.keys() and all((before[name] == after[name]).all() for name in before)
