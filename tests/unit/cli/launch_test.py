"""End-to-end tests of the command line; tests with signals, kills or time limits run in separate processes."""

import errno
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from helpers import (
    ROOT,
    call_main,
    launch,
    numbers,
    one_line,
    plugin_folder,
    refuses,
)

from configs import sentences as sentences_config
from configs import text as text_config
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.runs import experiment, loading, run_inputs, run_names, workdir
from nplm_jax.utils.errors import BadInput, Resumable

# --- three sentences -------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def sentences(tmp_path_factory):
    folder = tmp_path_factory.mktemp('sentences') / 'run'
    return folder, launch('--config=configs/sentences.py', f'--workdir={folder}')


def test_the_folder_holds_what_the_readme_says(sentences):
    folder, done = sentences
    names = {p.name for p in folder.iterdir() if p.name != '.lock'}
    assert names == {
        'config.json', 'vocabulary.txt', 'metrics.jsonl', 'tensorboard', 'learning_curve.png', 'checkpoints',
        'results.json', 'corpus.json', 'tokenizer_config.json',
    }  # fmt: skip
    results = json.loads((folder / 'results.json').read_text())
    assert {
        'name', 'corpus', 'vocabulary', 'words', 'perplexity', 'parameters', 'epochs', 'updates', 'seconds',
        'words_per_second', 'flops_per_second', 'random_generator', 'command', 'commit', 'versions', 'device', 'seed',
    } <= set(results)  # fmt: skip
    assert results['parameters'] == 10 * (1 + 2 + 5) + 5 * (1 + 2 * 2)
    assert '105' in numbers(done.stdout) and '| sentences' in done.stdout
    assert str(folder) in done.stdout.splitlines()[0]
    assert f'Figure: {folder / "learning_curve.png"}\n' in done.stdout
    assert [f' {name} {folder}' in done.stdout for name in ('generate', 'score')] == [True] * 2
    assert results['words'] == {'train': 13, 'valid': 13, 'test': 13}
    assert 1 < results['perplexity']['test'] < 1.5  # only the word after "i" is uncertain, with three choices


def test_a_finished_run_reprints_its_result(sentences):
    folder, done = sentences
    before = (folder / 'results.json').stat().st_mtime_ns, (folder / 'metrics.jsonl').stat().st_mtime_ns
    again = launch('--config=configs/sentences.py', f'--workdir={folder}')
    assert again.returncode == 0
    assert str(folder) in again.stdout
    assert again.stdout.splitlines()[-9:] == done.stdout.splitlines()[-9:]
    assert before == ((folder / 'results.json').stat().st_mtime_ns, (folder / 'metrics.jsonl').stat().st_mtime_ns)


def test_another_config_in_the_folder_is_refused_with_the_keys(sentences):
    folder, _ = sentences
    done = launch('--config=configs/sentences.py', f'--workdir={folder}', '--config.model.h=7', '--config.seed=3')
    assert done.returncode == 2
    line = one_line(done.stderr, f"--workdir='{folder}'")
    assert re.search(r'model\.h=5 .*\b7 .*seed=1 .*\b3 ', line) and line.endswith(f'--workdir={folder}-2')


# --- wrong things on the command line --------------------------------------------------------------------

WRONG = [
    (('--config=configs/sentences.py', '--workdir=~nosuchuser/x'), "--workdir='~nosuchuser/x':"),
    (
        ('--config=configs/sentences.py', '--config.corpus.path=x'),
        "corpus.path='x':",
    ),
    (
        (
            '--config=configs/sentences.py:classes',
            '--config.model.n=3',
            '--config.model.classes=11',
        ),
        'model.classes=11:',
    ),
    ((), '--config:'),
    (('--config=configs/nope.py',), "--config='configs/nope.py':"),
    (('--config=browne',), "--config='browne':"),
    (('--config=configs/sentences.py', '--config.model.h=7', '--config=brown'), "--config='brown':"),
    (('--config=README.md',), "--config='README.md':"),
    (('--config=configs/default.py:mlp9',), "--config='configs/default.py:mlp9':"),
    (('--config=configs/sentences.py:mlp9',), 'configs/sentences.py:mlp9:'),
    (('--config=configs/text.py:mlp9',), 'configs/text.py:mlp9:'),
    (
        ('--config=configs/sentences.py', '--config.model.h', '50', '--config.model.n=two'),
        "--config.model.n='two':",
    ),
    (('--config=configs/sentences.py', '--config.optimizer.learning_rate=inf'), 'optimizer.learning_rate=inf:'),
    (
        ('--config=configs/brown.py:mlp2',),
        'configs/brown.py:mlp2:',
    ),
    (
        ('--config=configs/brown.py:mlp4a',),
        'configs/brown.py:mlp4a:',
    ),
    (
        ('--config=configs/brown.py:mlp1,upper',),
        'configs/brown.py:mlp1,upper:',
    ),
    (
        ('--config=configs/sentences.py', '--config.model.hidden=3'),
        '--config.model.hidden:',
    ),
    (('--config=configs/sentences.py', '--config.model.h=many'), "--config.model.h='many':"),
    (
        ('--config=configs/sentences.py', '--config.model=3'),
        '--config.model:',
    ),
    (
        ('--config=configs/sentences.py', '--config.model.m=2,3'),
        "--config.model.m='2,3':",
    ),
    (
        ('--config=configs/sentences.py', '--config.model.direct=maybe'),
        "--config.model.direct='maybe':",
    ),
    (('--config=configs/sentences.py', '--minutes', 'two'), "--minutes='two':"),
    (('--config=configs/sentences.py', '--heartbeat=1'), "--heartbeat='1':"),
    (('--config=configs/sentences.py', '--config.seed'), '--config.seed:'),
    (('--config=configs/sentences.py', '--flagfile=nope'), "--flagfile='nope':"),
    (('--config=configs/sentences.py', '--config.model.family=lstm'), "--config.model.family='lstm':"),
    (('--config=configs/sentences.py:lstmm',), 'configs/sentences.py:lstmm:'),
    (('--config=configs/sentences.py:lstm,gru',), 'configs/sentences.py:lstm,gru:'),
    (('--config=configs/sentences.py:lstm,no_such:Optimizer',), "--config='no_such:Optimizer':"),
    (
        ('--config=configs/sentences.py', '--config.model.h.x=3'),
        '--config.model.h.x:',
    ),
    (('--config=configs/sentences.py', '--config.hidden=3'), '--config.hidden:'),
    (
        ('--config=configs/sentences.py', '--config.h=3'),
        '--config.h:',
    ),
    (
        ('--config=configs/sentences.py', '--config.modle.h=3'),
        '--config.modle.h:',
    ),
    (
        ('--config=configs/sentences.py', '--corpus.path=a'),
        '--corpus.path:',
    ),
    (('--config=configs/sentences.py', '--config.model.n=1'), 'model.n=1:'),
    (('--config=configs/sentences.py', '--confg=3'), '--confg:'),
    (('--config=configs/sentences.py', 'model.h=3'), 'model.h=3:'),
    (
        ('--config=configs/sentences.py:adam', '--config.optimizer.row_adaptivity=0.9'),
        '--config.optimizer.row_adaptivity:',
    ),
    (
        ('--config=configs/sentences.py:kneser_ney', '--config.model.h=7'),
        '--config.model.h:',
    ),
    (('--config=configs/text.py',), "corpus.path='':"),
    (('--config=configs/sentences.py', '--config.train.batch_size=14'), 'train.batch_size=14:'),
    (('--config=configs/sentences.py', '--config.train.epochs=900000000'), 'train.epochs=900000000:'),
]


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, tmp_path):
    done = launch(f'--workdir={tmp_path / "run"}', *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1, done.stderr
    assert '\\n' not in done.stderr
    if 'classes' not in message:  # otherwise detected with the words; the corrected command may use the folder
        assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
    'line,key',
    [('--config.model.hh=3', '--config.model.hh'), ('--nonsense', '--nonsense'), ('--config.seed=x', '--config.seed')],
)
def test_a_mistake_in_a_flag_file_is_one_line(line, key, tmp_path):
    (tmp_path / 'flags').write_text(f'--config=sentences\n{line}\n')
    done = launch(f'--flagfile={tmp_path / "flags"}', '--print_config')
    assert done.returncode == 2 and done.stderr.startswith(key) and done.stderr.count('\n') == 1, done.stderr


def test_a_flag_file_that_is_not_text_is_one_line(tmp_path):
    (tmp_path / 'flags').write_bytes(b'--config=sentences\n--workdir=caf\xe9\n')
    done = launch(f'--flagfile={tmp_path / "flags"}', '--print_config')
    assert done.returncode == 2 and one_line(done.stderr, '--flagfile')


def test_the_keys_in_a_flag_file_count(tmp_path):
    (tmp_path / 'flags').write_text('--config=sentences\n--config.model.h=7\n')
    done = launch(f'--flagfile={tmp_path / "flags"}', '--print_config')
    assert done.returncode == 0 and 'model.h = 7' in done.stdout, done.stderr


@pytest.mark.parametrize('name', ['poem.txt', 'poem', 'poem.py.txt', 'my poem.csv'])
def test_a_text_file_is_not_executed_as_a_config(tmp_path, name):
    (tmp_path / name).write_text('open("executed", "w")')
    done = launch(f'--config={name}', cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count('\n') == 1 and not (tmp_path / 'executed').exists()
    assert shlex.split(done.stderr)[-3:] == ['train', 'text', f'--config.corpus.path={name}']


def test_flags_set_keys_of_sections_that_a_config_lacks(tmp_path):
    text = 'from ml_collections import ConfigDict\n\ndef get_config():\n    return ConfigDict({"name": "mine"})\n'
    (tmp_path / 'part.py').write_text(text)
    done = launch(f'--config={tmp_path}/part.py', '--config.model.h=7', '--config.paper.valid=3', '--print_config')
    assert done.returncode == 0 and 'model.h = 7' in done.stdout, done.stderr


@pytest.mark.parametrize('flag,row', [('--config.seed=2', 'MLP9'), ('--config.corpus.name=text', "''")])
def test_a_flag_that_sets_another_corpus_leaves_out_the_row_of_the_paper(flag, row):
    done = launch('--config=brown:mlp9', flag, '--print_config')
    (line,) = (line for line in done.stdout.splitlines() if line.startswith('paper.row = '))
    assert done.returncode == 0 and row in line


@pytest.mark.parametrize(
    'argument,near',
    [
        ('--config.corpus.pth=a', 'corpus.path'),
        ('--config.model.hh=3', 'model.h'),
        ('--model.h=3', '--config.model.h'),
        ('--learning_rate=3', '--config.optimizer.learning_rate'),
        ('--distribute', '--distributed'),
        ('--config=brown:mlp99', 'mlp9'),
        ('--config=configs/brwn.py', 'brown'),
    ],
)
def test_a_mistyped_name_is_answered_by_the_nearest(argument, near, tmp_path):
    config = [] if argument.startswith('--config=') else ['--config=sentences']
    done = launch(*config, argument, '--print_config', cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count('\n') == 1
    assert f'; did you mean {near}? ' in f'{done.stderr[:-1]} ', done.stderr


@pytest.mark.parametrize('name', ['sentences', 'sentences.py', 'configs/sentences.py', 'configs/sentences'])
def test_from_another_folder_the_configs_beside_launch_are_found_by_name(tmp_path, name):
    done = launch(f'--config={name}', '--print_config', cwd=tmp_path)
    assert done.returncode == 0 and "corpus.name = 'sentences'" in done.stdout


@pytest.mark.parametrize(
    'text,message',
    [
        ('def get_config():\n    raise KeyError("x")\n', 'KeyError'),
        ('def get_config(:\n', 'SyntaxError'),
        ('', 'get_config()'),
        ('class Config:\n    name = 3\n\nget_config = Config\n', 'ConfigDict'),
        ('def get_config(row):\n    return row\n', 'PRESET'),
        ('from nplm_jax.utils.errors import BadInput\nraise BadInput("path", "must be text")', 'path:'),
    ],
)
def test_a_config_file_that_raises_is_one_line(tmp_path, text, message):
    (tmp_path / 'config.py').write_text(text)
    done = launch(f'--config={tmp_path / "config.py"}')
    assert done.returncode == 2 and message in done.stderr and done.stderr.count('\n') == 1, done.stderr


def test_the_resolved_config_is_printed_and_nothing_trained(tmp_path):
    done = launch(f'--config={ROOT}/configs/text.py', '--config.model.h=7', '--print_config', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert any(re.match(r'model\.h = 7  # .*\b200\b', line) for line in printed)
    assert re.search(r"^model\.family = 'nplm'  # .*: nplm \| residual \| ", done.stdout, re.MULTILINE)
    assert len(printed) == len(flatten(text_config.get_config()))
    assert not [*tmp_path.iterdir()]


def test_help_does_not_import_jax():
    line = [sys.executable, '-X', 'importtime', 'launch.py', '--help']
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    imported = {row.rpartition('|')[2].strip() for row in done.stderr.splitlines()}
    assert '--workdir' in done.stdout and 'jax' not in imported and 'nplm_jax.utils.errors' in imported


@pytest.mark.parametrize('name', ['r[1]', 'a*b', 'a?b', r'a\b', 'r[1]/run'])
def test_a_folder_whose_checkpoints_could_not_be_read_is_refused(tmp_path, monkeypatch, name):
    with refuses('--workdir'):
        experiment.run(sentences_config.get_config(), tmp_path / name)
    assert not [*tmp_path.iterdir()]
    (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / name)
    with refuses('--workdir'):
        workdir.check_path(pathlib.Path('run'))


def test_a_default_folder_has_no_character_that_is_refused(tmp_path):
    overrides = {'corpus.path': '/home/me/novel[1]*?\\.txt', 'model.family': 'a\udc80'}
    name = run_names.default_name(text_config.get_config(), overrides)
    assert re.fullmatch('novel_1_-[0-9a-f]{6}__family_a_-[0-9a-f]{6}', name)
    workdir.check_path(tmp_path / name)


@pytest.mark.parametrize(
    'row,overrides,name',
    [
        ('', {'corpus.path': '/home/me/class.txt'}, 'class'),
        ('', {'corpus.path': 'texts/class.2.txt', 'model.h': 50, 'seed': 2}, 'class.2__h_50__seed_2'),
        ('interpolated', {'corpus.path': '~/class'}, 'class-interpolated'),
        ('', {'corpus.path': 'a/../class/'}, 'class'),
        ('', {'corpus.path': '/'}, 'text'),
        ('', {'corpus.path': 'my own class.txt'}, 'my_own_class'),
        ('', {'corpus.path': '/a/t.txt', 'corpus.valid_path': '/a/v.txt'}, 't__valid_path_v.txt'),
        ('', {}, 'text'),
    ],
)
def test_the_default_folder_of_a_text_has_its_name(row, overrides, name):
    assert run_names.default_name(text_config.get_config(row), overrides) == name


def test_the_default_folder_of_a_text_with_a_long_name_keeps_the_row():
    name = run_names.default_name(text_config.get_config('one_minute'), {'corpus.path': f'{"a" * 60}.txt', 'seed': 2})
    assert re.fullmatch('a{40}-[0-9a-f]{6}-one_minute__seed_2', name)


def test_the_default_folder_of_a_text_in_the_current_folder_has_the_folders_name(tmp_path, monkeypatch):
    (tmp_path / 'class').mkdir()
    monkeypatch.chdir(tmp_path / 'class')
    for path in ('.', '../class'):
        assert run_names.default_name(text_config.get_config(), {'corpus.path': path}) == 'class'


def test_the_default_folder_of_another_config_has_its_name_once():
    config = sentences_config.get_config()
    assert run_names.default_name(config, {'model.h': 7}) == 'sentences__h_7'
    config.name = 'mine'
    assert run_names.default_name(config, {'name': 'mine', 'seed': 2}) == 'mine__seed_2'
    config.corpus.name = 'text'  # a user's study with different texts
    assert run_names.default_name(config, {'corpus.path': '/a/b.txt'}) == 'mine__path_b.txt'


def test_the_folder_of_a_run_may_be_a_link(tmp_path):
    (tmp_path / 'disk').mkdir()
    (tmp_path / 'run').symlink_to('disk')
    workdir.ensure_folder(tmp_path / 'run', config_lib.from_config(sentences_config.get_config()))


def test_a_damaged_config_in_the_folder(tmp_path):
    for damage in ('{"seed": ', '[1, 2]', '\x80'):
        (tmp_path / 'config.json').write_text(damage, encoding='latin-1')
        with refuses('config.json'):
            experiment.run(sentences_config.get_config(), tmp_path)


def test_nobody_is_told_to_delete_a_run_whose_plugin_is_elsewhere(tmp_path, monkeypatch):
    experiment.run(config_lib.override(sentences_config.get_config(), {'model.family': 'add_delta'}), tmp_path / 'run')
    config = json.loads((tmp_path / 'run' / 'config.json').read_text())
    config['corpus']['name'] = 'module_of_another_folder:texts'
    del config['sha256']
    monkeypatch.setenv('NPLM_PLUGINS', 'module_of_another_folder')
    (tmp_path / 'run' / 'config.json').write_text(json.dumps(config))
    with refuses('run/config.json') as refused:
        workdir.read_settings(tmp_path / 'run')
    assert 'delete the folder' not in str(refused.value)


def test_what_a_kill_leaves_behind_is_no_foreign_file(tmp_path):
    (tmp_path / '.config.json.123.tmp').write_text('{"se')
    (tmp_path / 'corpus.json').write_text('{')  # this file and the vocabulary are written before the config
    (tmp_path / 'vocabulary.txt').write_text('')
    workdir.ensure_folder(tmp_path, config_lib.from_config(sentences_config.get_config()))


def test_a_damaged_result_is_made_again(sentences, tmp_path):
    shutil.copytree(sentences[0], tmp_path / 'run')
    expected = (tmp_path / 'run' / 'results.json').read_text()
    for damage in (expected[:90], '{}'):
        (tmp_path / 'run' / 'results.json').write_text(damage)
        results = experiment.run(sentences_config.get_config(), tmp_path / 'run')
        assert results['perplexity'] == json.loads(expected)['perplexity'] and results['updates'] == 900


def test_loading_what_is_no_run(tmp_path):
    with pytest.raises(BadInput, match=str(tmp_path)):
        experiment.load(tmp_path)


def test_one_process_at_a_time(tmp_path):
    with workdir.locked(tmp_path):
        with refuses('--workdir'):
            experiment.run(sentences_config.get_config(), tmp_path)
    experiment.run(sentences_config.get_config(), tmp_path)


def test_a_text_that_changed_is_noticed(tmp_path):
    words = ['a b c d e f g h'] * 40
    (tmp_path / 'text').write_text(' '.join(words))
    config = text_config.get_config()
    config.corpus.path, config.train.epochs, config.model.h = str(tmp_path / 'text'), 2, 3
    data = loading.load_dataset(frozen := config_lib.from_config(config))
    (tmp_path / 'run').mkdir()
    run_inputs.record_inputs(tmp_path / 'run', frozen, data)
    (tmp_path / 'run' / 'checkpoints' / '1').mkdir(parents=True)
    (tmp_path / 'text').write_text(' '.join(words[:-1]) + ' h g f e d c b a')
    with refuses('--workdir'):
        experiment.run(config, tmp_path / 'run')


# --- errors of the operating system ----------------------------------------------------------------------


@pytest.mark.parametrize(
    'error,said',
    [
        (OSError(errno.ENOSPC, 'No space left on device'), 'RUN: No space left on device; free some space'),
        (OSError(errno.EDQUOT, 'Disk quota exceeded', '/x/y'), '/x/y: Disk quota exceeded; free some space'),
        (Resumable('the database failed'), 'the database failed'),
        (PermissionError(errno.EACCES, 'Permission denied', 'RUN/results.json'), 'RUN/results.json'),
        (FileNotFoundError(errno.ENOENT, 'No such file or directory', '/home/me/vectors.bin'), ''),
        (FileNotFoundError(errno.ENOENT, 'No such file or directory', 'RUN-2/results.json'), ''),
        (OSError('of a plug-in'), ''),
        (ConnectionResetError(errno.ECONNRESET, 'Connection reset by peer'), ''),
    ],
)
def test_only_a_failure_of_the_runs_folder_or_a_full_disk_advises_to_resume(error, said, tmp_path):
    run = tmp_path / 'run'
    if error.filename:
        error.filename = error.filename.replace('RUN', str(run))
    failure = workdir.describe_failure(error, run)
    assert said.replace('RUN', str(run)) in failure and bool(failure) == bool(said)


@pytest.mark.parametrize('nplm', [False, True])
def test_an_os_error_of_a_plug_in_keeps_its_traceback(nplm, tmp_path, monkeypatch):
    code = 'def texts():\n    return open("/nosuch/vectors.bin").read()\n'
    flags = ['--config.corpus.name=failing_text:texts', f'--workdir={tmp_path}/run']
    with plugin_folder(tmp_path, monkeypatch, failing_text=code), pytest.raises(FileNotFoundError) as caught:
        if nplm:
            words = ['train', 'sentences', *flags]
            call_main(lambda: cli.main(words), ['nplm', *words], tmp_path)
        launch('--config=sentences', *flags, cwd=tmp_path)
    assert caught.value.filename == '/nosuch/vectors.bin'
