"""What a run is made from: recorded in its folder, and compared at every later start."""

import json

import numpy as np
import pytest
from helpers import refuses

from configs import sentences
from nplm_jax.data import word_codes
from nplm_jax.runs import experiment, loading, session
from nplm_jax.utils import nn
from nplm_jax.utils.errors import BadInput


def load_data(config):
    return loading.load_dataset(experiment.load_settings(config))


def write_codes(path, words):
    path.write_text(''.join(f'{word}\t{code}\n' for word, code in zip(words, word_codes.balanced(len(words)))))


@pytest.fixture
def tree(tmp_path):
    """A config whose tree is a file, with the words of the file."""
    config = sentences.get_config()
    config.train.epochs, config.output.kind, config.output.tree = 2, 'tree', str(tmp_path / 'codes.tsv')
    words = load_data(config).vocabulary.words
    write_codes(tmp_path / 'codes.tsv', words)
    return config, words


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


def small_network(precision='auto'):
    config = sentences.get_config()
    config.output.precision, config.train.epochs = precision, 2
    return config


def recorded(folder):
    return json.loads((folder / 'config.json').read_text())


def test_auto_is_resolved_when_a_run_begins_and_a_resume_on_another_processor_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(nn, 'native_precision', lambda platform: 'bfloat16')
    results = experiment.run(small_network(), tmp_path / 'run')
    first = recorded(tmp_path / 'run')
    assert first['output']['precision'] == 'bfloat16' and first['output']['block_size'] == 256
    assert first['train']['input'] == 'device'
    assert first['model']['precision'] == 'auto'  # nplm does not read it
    (tmp_path / 'run' / 'results.json').unlink()
    prepared = []
    prepare_run = session.prepare_run
    monkeypatch.setattr(session, 'prepare_run', lambda *args: prepared.append(prepare_run(*args)) or prepared[-1])
    monkeypatch.setattr(nn, 'native_precision', lambda platform: 'float32')
    again = experiment.run(small_network(), tmp_path / 'run')
    assert prepared[0].program.network.output.precision == 'bfloat16' and recorded(tmp_path / 'run') == first
    assert again['perplexity'] == results['perplexity']
    assert experiment.run(small_network(), tmp_path / 'run') == again  # finished
    with refuses('--workdir'):
        experiment.run(small_network('float32'), tmp_path / 'run')
    experiment.run(small_network(), tmp_path / 'another')
    assert recorded(tmp_path / 'another')['output']['precision'] == 'float32'
