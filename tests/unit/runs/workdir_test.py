"""Tests that the inputs of a run are recorded in its folder and compared at every later start."""

import contextlib
import functools
import json
import os

import jaxlib
import numpy as np
import pytest
from helpers import BLANKS, refuses

from configs import sentences
from configs import text as text_config
from nplm_jax.config import plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import to_record
from nplm_jax.data import corpora
from nplm_jax.distributed import multihost
from nplm_jax.outputs import word_codes
from nplm_jax.runs import (
    experiment,
    loading,
    precision_choice,
    remote_scoring,
    run_inputs,
    session,
    shared_corpus,
    workdir,
)
from nplm_jax.utils.errors import BadInput

WORDS = ['a b c d a c b d'] * 20


@pytest.fixture
def texts(tmp_path):
    """A config with separate files for the training, validation and test texts."""
    config = text_config.get_config()
    config = config_lib.override(config, {'model.family': 'add_delta', 'model.n': 2, 'corpus.min_count': 1})
    for key in ('path', 'valid_path', 'test_path'):
        (tmp_path / key).write_text(' '.join(WORDS))
        setattr(config.corpus, key, str(tmp_path / key))
    return config


def load_data(config):
    return loading.load_dataset(experiment.load_settings(config))


def write_codes(path, words):
    path.write_text(''.join(f'{word}\t{code}\n' for word, code in zip(words, word_codes.balanced(len(words)))))


@pytest.fixture
def tree(tmp_path):
    """A config with a tree from a file, and the words of the file."""
    changes = {'train.epochs': 2, 'output.tree': str(tmp_path / 'codes.tsv')}
    config = config_lib.override(sentences.get_config('tree'), changes)
    words = load_data(config).vocabulary.words
    write_codes(tmp_path / 'codes.tsv', words)
    return config, words


@pytest.mark.parametrize('key', ['path', 'valid_path', 'test_path'])
def test_a_finished_run_whose_text_has_changed_is_refused(texts, tmp_path, key):
    experiment.run(texts, tmp_path / 'run')
    (tmp_path / key).write_text(' '.join([*WORDS[:-1], 'd b c a d c b a']))
    with refuses('--workdir'):
        experiment.run(texts, tmp_path / 'run')


def test_another_config_in_the_folder_is_refused_with_its_first_keys_and_their_number(texts, tmp_path):
    experiment.run(texts, tmp_path / 'run')
    texts.corpus.update(min_count=2, lowercase=False, numbers=True, split_possessive=False, max_vocabulary=7)
    with pytest.raises(BadInput) as caught:
        workdir.ensure_folder(tmp_path / 'run', experiment.load_settings(texts))
    assert caught.value.key == '--workdir' and caught.value.value == str(tmp_path / 'run')
    assert caught.value.problem.count(' there, ') == 3 and '; and 2 more)' in caught.value.problem


def test_the_config_of_a_folder_is_read_once(texts, tmp_path, monkeypatch):
    experiment.run(texts, tmp_path / 'run')
    read, files = workdir.read_json, []
    monkeypatch.setattr(workdir, 'read_json', lambda path: files.append(path.name) or read(path))
    workdir.ensure_folder(tmp_path / 'run', experiment.load_settings(texts))
    assert files == ['config.json']


def test_a_finished_run_of_an_unchanged_text_is_printed_without_reading_its_words(texts, tmp_path, monkeypatch):
    results = experiment.run(texts, tmp_path / 'run')
    (tmp_path / 'path').touch()
    monkeypatch.setattr(corpora, 'load', lambda _: pytest.fail('read'))
    assert experiment.run(texts, tmp_path / 'run') == results


def test_a_finished_run_whose_files_changed_and_whose_words_did_not_is_printed(texts, tmp_path):
    results = experiment.run(texts, tmp_path / 'run')
    (tmp_path / 'path').write_text('\n'.join(WORDS))
    assert experiment.run(texts, tmp_path / 'run') == results


def test_a_finished_run_whose_text_is_gone_is_printed_and_says_that_it_is_not_compared(texts, tmp_path, lines):
    results = experiment.run(texts, tmp_path / 'run')
    (tmp_path / 'path').unlink()
    lines()
    assert experiment.run(texts, tmp_path / 'run') == results
    [note] = lines()[1]
    assert note.startswith(f"corpus.path='{tmp_path}/path': ") and f'{tmp_path}/run' in note


def test_a_finished_run_on_a_text_that_was_given_is_compared_with_it(texts, tmp_path):
    data = load_data(texts)
    results = experiment.run(texts, tmp_path / 'run', data=data)
    assert json.loads((tmp_path / 'run' / 'corpus.json').read_text())['files'] is None
    assert experiment.run(texts, tmp_path / 'run', data=data) == experiment.run(texts, tmp_path / 'run') == results
    (tmp_path / 'path').write_text(' '.join(WORDS[1:]))
    other = load_data(texts)
    with refuses('--workdir'):
        experiment.run(texts, tmp_path / 'run', data=other)


PLUGIN = f"""{BLANKS}
import pathlib

def texts():
    return [(pathlib.Path(__file__).parent / 'words').read_text()]
"""


@pytest.fixture
def plugged(tmp_path, write_module):
    """A config with a corpus and a tokenizer from plug-ins, and a function that edits their module."""
    (tmp_path / 'words').write_text('the dog barks , the cat sleeps . ' * 20)
    write = functools.partial(write_module, 'my_text')
    write(PLUGIN)
    names = {'corpus.name': 'my_text:texts', 'corpus.tokens': 'my_text:Blanks', 'corpus.min_count': 1}
    return config_lib.override(text_config.get_config(), {**names, 'model.family': 'add_delta', 'model.n': 2}), write


def test_the_folder_of_a_run_is_compared_with_settings_without_the_modules_of_its_plug_ins(plugged, tmp_path):
    config, _ = plugged
    experiment.run(config, tmp_path / 'run')
    settings = experiment.load_settings(config)
    workdir.ensure_folder(tmp_path / 'run', settings)
    assert not session.difference(tmp_path / 'run', settings, shared_corpus.SharedCorpus(settings))
    with refuses('--workdir'):
        workdir.ensure_folder(tmp_path / 'run', config_lib.replace(settings, {'seed': 9}))
    with refuses('--workdir'):
        workdir.ensure_folder(tmp_path / 'run', experiment.load_settings({'corpus.name': 'sentences'}))


def test_a_finished_run_of_a_corpus_plugin_is_compared_with_its_words(plugged, tmp_path):
    config, _ = plugged
    results = experiment.run(config, tmp_path / 'run')
    assert experiment.run(config, tmp_path / 'run') == results
    (tmp_path / 'words').write_text('the cat barks , the dog sleeps . ' * 20)
    with refuses('--workdir'):
        experiment.run(config, tmp_path / 'run')


@pytest.mark.parametrize('is_finished', [True, False])
def test_a_run_with_an_edited_plugin_is_not_resumed_and_a_finished_one_still_loads(
    plugged, tmp_path, is_finished, lines
):
    config, write = plugged
    results = experiment.run(config, tmp_path / 'run')
    if not is_finished:
        (tmp_path / 'run' / 'results.json').unlink()
    write(PLUGIN + '# a comment')
    with refuses('--workdir'):
        experiment.run(config, tmp_path / 'run')
    lines()
    loaded = loading.load(tmp_path / 'run', ['my_text'])
    assert [line.startswith('warning: ') and 'my_text' in line for line in lines()[1]] == [True]
    settings, words = loaded.settings, loaded.vocabulary
    with plugins.trust(['my_text']):
        assert words.decode(loading.load_dataset(tmp_path / 'run').tokens_T[2:4]) == ['the', 'dog']
    write(PLUGIN.replace('[string]', '[string.upper()]'))
    with refuses('RUN'):  # the reason for different words
        loading.prepare_recorded(settings, tmp_path / 'run')
    write(PLUGIN)
    assert experiment.run(config, tmp_path / 'run')['perplexity'] == results['perplexity']


def test_workers_with_other_code_of_a_plugin_do_not_score_for_a_command(plugged, tmp_path):
    config, write = plugged
    experiment.run(config, tmp_path / 'run')
    digests = []
    for code in (PLUGIN, PLUGIN, PLUGIN + '# a comment'):
        write(code)
        with plugins.trust(['my_text']):
            digests.append(remote_scoring.Source.of([tmp_path / 'run']).digest)
    assert digests[0] == digests[1] != digests[2]


def test_workers_with_another_jaxlib_do_not_score_for_a_command(plugged, tmp_path, monkeypatch):
    config, _ = plugged
    experiment.run(config, tmp_path / 'run')
    with plugins.trust(['my_text']):
        before = remote_scoring.Source.of([tmp_path / 'run'])
        monkeypatch.setattr(jaxlib, '__version__', '0.0.1')
        assert remote_scoring.Source.of([tmp_path / 'run']).digest != before.digest


def test_a_tree_that_changes_while_a_run_starts_is_refused_and_nothing_recorded(tree, tmp_path):
    config, words = tree
    settings = experiment.load_settings(config)
    digests = run_inputs.model_digests(settings)
    write_codes(tmp_path / 'codes.tsv', words[::-1])
    (tmp_path / 'run').mkdir()
    with refuses('output.tree'):
        run_inputs.record_inputs(tmp_path / 'run', settings, None, None, digests)
    assert not list((tmp_path / 'run').iterdir())


def test_a_run_whose_text_has_moved_still_loads(texts, tmp_path):
    experiment.run(texts, folder := tmp_path / 'run')
    config = json.loads((folder / 'config.json').read_text())
    config['corpus']['path'] = '/elsewhere'
    (folder / 'config.json').write_text(json.dumps(config))
    assert loading.load(folder).settings.corpus.path == '/elsewhere'


def record(config, folder):
    """Starts a run that ends before training."""
    settings = experiment.load_settings(config)
    folder.mkdir(exist_ok=True)
    with workdir.claimed(folder, settings):
        run_inputs.record_inputs(folder, settings, loading.load_dataset(settings))


def change_code(config, tmp_path, write):
    write(PLUGIN.replace('[string]', '[string.upper()]'))


def change_text(config, tmp_path, write):
    (tmp_path / 'words').write_text('the cat barks , the dog sleeps . ' * 20)


def change_config(config, tmp_path, write):
    config.model.n = 3


def test_a_run_that_another_process_finishes_before_the_lock_is_another_run(texts, tmp_path, monkeypatch):
    locked, other = workdir.locked, experiment.load_settings(texts)

    @contextlib.contextmanager
    def late(folder):
        monkeypatch.setattr(workdir, 'locked', locked)
        experiment.run(other, folder)
        with locked(folder):
            yield

    monkeypatch.setattr(workdir, 'locked', late)
    (tmp_path / 'run').mkdir()
    with refuses('--workdir'), workdir.claimed(tmp_path / 'run', config_lib.replace(other, {'seed': 7})):
        pass


@pytest.mark.parametrize('change', [change_code, change_text, change_config])
def test_a_run_that_has_trained_nothing_starts_over(plugged, tmp_path, change):
    config, write = plugged
    record(config, tmp_path / 'run')
    (tmp_path / 'run' / 'checkpoints').mkdir()
    (tmp_path / 'run' / 'checkpoints' / '5.orbax-checkpoint-tmp').mkdir()
    (tmp_path / 'run' / 'metrics.jsonl').write_text('')
    change(config, tmp_path, write)
    results = experiment.run(config, tmp_path / 'run')
    assert results['perplexity'] == experiment.run(config, tmp_path / 'another')['perplexity']
    loaded = loading.load(tmp_path / 'run', ['my_text'])
    settings, words = loaded.settings, loaded.vocabulary
    assert settings.model.n == config.model.n and words == loading.load(tmp_path / 'another', ['my_text']).vocabulary


@pytest.mark.parametrize('number', range(5))
def test_a_start_that_is_killed_between_two_files_starts_over(plugged, tmp_path, monkeypatch, number):
    config, write = plugged
    record(config, tmp_path / 'run')
    change_code(config, tmp_path, write)
    written, replace = [], os.replace

    def replace_some(*paths):
        if len(written) == number:
            raise KeyboardInterrupt
        written.append(paths)
        replace(*paths)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, 'replace', replace_some)
        record(config, tmp_path / 'run')
        raise KeyboardInterrupt
    assert len(written) == min(number, 4)
    experiment.run(config, tmp_path / 'run')
    loading.load(tmp_path / 'run', ['my_text'])


def test_a_folder_of_another_program_is_not_taken_for_a_run_that_has_trained_nothing(texts, tmp_path):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'config.json').write_text('{"architectures": ["GPT2LMHeadModel"]}')
    with pytest.raises(BadInput) as caught:
        experiment.run(texts, tmp_path / 'run')
    assert caught.value.key == str(tmp_path / 'run' / 'config.json')


def test_each_file_that_a_start_writes_before_its_config_can_be_there(tmp_path):
    settings, folder = experiment.load_settings(small_network()), tmp_path / 'run'
    workdir.ensure_folder(folder, settings)
    run_inputs.record_inputs(folder, settings, loading.load_dataset(settings))
    (folder / 'config.json').unlink()
    assert {path.name for path in folder.iterdir()} == {'corpus.json', 'tokenizer_config.json', 'vocabulary.txt'}
    workdir.ensure_folder(folder, settings)


def small_network(precision='auto'):
    config = sentences.get_config()
    config.output.precision, config.train.epochs = precision, 2
    return config


def test_the_first_process_of_a_run_decides_what_auto_means(tmp_path, monkeypatch):
    settings = experiment.load_settings(small_network())
    data = loading.load_dataset(settings)
    asked = []

    def differences(values):
        asked.append(dict(values))
        return {'output.precision': (values['output.precision'], 'bfloat16')}

    monkeypatch.setattr(precision_choice, 'native_precision', lambda platform: 'float32')
    monkeypatch.setattr(multihost, 'differences_from_primary', differences)
    resolved = workdir.pin_auto_values(tmp_path, settings, data, 'cpu')
    assert asked == [{'output.precision': 'float32', 'output.block_size': 512, 'train.input': 'device'}]
    assert resolved.output.precision == 'bfloat16' and resolved.model == settings.model


def test_only_the_first_process_measures_the_precision(tmp_path, monkeypatch):
    first = {'output.precision': 'bfloat16', 'output.block_size': 256, 'train.input': 'device'}
    monkeypatch.setattr(precision_choice, 'native_precision', lambda platform: pytest.fail('measured'))
    monkeypatch.setattr(multihost, 'is_primary', lambda: False)
    monkeypatch.setattr(
        multihost, 'differences_from_primary', lambda values: {key: (values[key], x) for key, x in first.items()}
    )
    settings = experiment.load_settings(small_network())
    resolved = workdir.pin_auto_values(tmp_path, settings, loading.load_dataset(settings), 'cpu')
    assert {key: x for key, x in config_lib.to_flat(resolved).items() if key in first} == first


@pytest.mark.parametrize('fast,on_cpu', [('float32', 512), ('bfloat16', 256)])
def test_a_block_size_of_0_is_that_of_the_platform_and_a_run_that_has_begun_keeps_its_own(
    tmp_path, monkeypatch, fast, on_cpu
):
    monkeypatch.setattr(precision_choice, 'measure', lambda: fast)
    settings = experiment.load_settings(small_network())
    data = loading.load_dataset(settings)
    sizes = {p: workdir.pin_auto_values(tmp_path, settings, data, p).output.block_size for p in ('cpu', 'gpu', 'tpu')}
    assert sizes == {'cpu': on_cpu, 'gpu': 4096, 'tpu': 1024}
    begun = to_record(config_lib.to_dict(workdir.pin_auto_values(tmp_path, settings, data, 'cpu')))
    (tmp_path / workdir.CONFIG).write_text(json.dumps(begun))
    assert workdir.pin_auto_values(tmp_path, settings, data, 'gpu').output.block_size == 4096  # nothing was trained
    (tmp_path / 'checkpoints' / '1').mkdir(parents=True)
    workdir.ensure_folder(tmp_path, settings)
    assert workdir.pin_auto_values(tmp_path, settings, data, 'gpu').output.block_size == on_cpu
    with refuses('--workdir'):
        workdir.ensure_folder(tmp_path, config_lib.replace(settings, {'output.block_size': 4096}))


def test_a_batch_that_accumulate_does_not_divide_is_refused_before_the_text_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_corpus, 'load_stream', lambda settings: pytest.fail('the text was read'))
    config = config_lib.override(sentences.get_config(), {'train.batch_size': 10, 'train.accumulate': 3})
    with refuses('train.accumulate'):
        experiment.run(config, tmp_path / 'run')


def test_a_network_with_a_tree_from_a_file_is_loaded_with_the_tree_that_it_was_trained_with(tree, tmp_path):
    config, words = tree
    experiment.run(config, tmp_path / 'run')
    contexts = np.arange(len(words))[:, None].repeat(config.model.n - 1, 1)
    expected = experiment.load(tmp_path / 'run').model.next_word(contexts)
    write_codes(tmp_path / 'codes.tsv', words[::-1])
    np.testing.assert_array_equal(experiment.load(tmp_path / 'run').model.next_word(contexts), expected)
    (tmp_path / 'codes.tsv').unlink()
    (tmp_path / 'run').rename(tmp_path / 'moved')
    np.testing.assert_array_equal(experiment.load(tmp_path / 'moved').model.next_word(contexts), expected)


@pytest.mark.parametrize('is_finished', [True, False])
def test_a_run_whose_tree_has_changed_is_neither_resumed_nor_printed(tree, tmp_path, is_finished):
    config, words = tree
    results = experiment.run(config, tmp_path / 'run')
    if not is_finished:
        (tmp_path / 'run' / 'results.json').unlink()
    write_codes(tmp_path / 'codes.tsv', words[::-1])
    with refuses('--workdir'):
        experiment.run(config, tmp_path / 'run')
    (tmp_path / 'codes.tsv').write_bytes((tmp_path / 'run' / 'output.tree').read_bytes())
    assert experiment.run(config, tmp_path / 'run')['perplexity'] == results['perplexity']


def swap_lines(path):
    first, second, third, *lines = path.read_text().splitlines(keepends=True)
    path.write_text(''.join([first, third, second, *lines]))


def edit_number(path):
    path.write_text(path.read_text().replace('20', '21', 1))


DAMAGE = {
    'vocabulary.txt': swap_lines,
    'output.tree': swap_lines,
    'tokenizer_config.json': lambda path: path.write_text(path.read_text().replace('false', 'true', 1)),
    'corpus.json': edit_number,
    'config.json': edit_number,
}


def test_a_damaged_file_of_a_run_is_named_when_it_is_loaded_or_resumed(tree, tmp_path):
    config, _ = tree
    experiment.run(config, folder := tmp_path / 'run')
    (folder / 'results.json').unlink()
    for name, damage in DAMAGE.items():
        loading.load(folder)
        before = (folder / name).read_bytes()
        damage(folder / name)
        assert (folder / name).read_bytes() != before
        for call in (lambda: loading.load(folder), lambda: experiment.run(config, folder)):
            with pytest.raises(BadInput) as caught:
                call()
            assert caught.value.key == str(folder / name)
        (folder / name).write_bytes(before)


def test_a_start_that_was_killed_before_its_config_was_written_does_not_block_the_folder(tree, tmp_path):
    config, words = tree
    (tmp_path / 'run').mkdir()
    write_codes(tmp_path / 'run' / 'output.tree', words[::-1])
    experiment.run(config, tmp_path / 'run')
    assert (tmp_path / 'run' / 'output.tree').read_bytes() == (tmp_path / 'codes.tsv').read_bytes()


def recorded(folder):
    return json.loads((folder / 'config.json').read_text())


def test_auto_is_resolved_when_a_run_begins_and_a_resume_on_another_processor_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(precision_choice, 'native_precision', lambda platform: 'bfloat16')
    results = experiment.run(small_network(), tmp_path / 'run')
    first = recorded(tmp_path / 'run')
    assert first['output']['precision'] == 'bfloat16' and first['output']['block_size'] == 256
    assert first['train']['input'] == 'device'
    assert 'precision' not in first['model']  # which nplm does not read
    (tmp_path / 'run' / 'results.json').unlink()
    prepared = []
    prepare_run = session.prepare_run
    monkeypatch.setattr(session, 'prepare_run', lambda *args: prepared.append(prepare_run(*args)) or prepared[-1])
    monkeypatch.setattr(precision_choice, 'native_precision', lambda platform: pytest.fail('measured again'))
    again = experiment.run(small_network(), tmp_path / 'run')
    loading.load(tmp_path / 'run')
    assert prepared[0].program.network.output.precision == 'bfloat16' and recorded(tmp_path / 'run') == first
    assert again['perplexity'] == results['perplexity']
    assert experiment.run(small_network(), tmp_path / 'run') == again  # finished
    assert again['precision'] == {'output.precision': 'bfloat16'}
    with refuses('--workdir'):
        experiment.run(small_network('float32'), tmp_path / 'run')
    monkeypatch.setattr(precision_choice, 'native_precision', lambda platform: 'float32')
    experiment.run(small_network(), tmp_path / 'another')
    assert recorded(tmp_path / 'another')['output']['precision'] == 'float32'
