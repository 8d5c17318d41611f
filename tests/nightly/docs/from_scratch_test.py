"""Compares the single-file tutorial with the library, and runs its commands and exercises."""

import ast
import functools
import importlib
import random
import re
import sys
import zipfile

import jax
import numpy as np
import pytest
from helpers import ROOT, assert_close, call_main, corpus_settings, make_model, small_settings, start_training
from small_world import SENTENCES

from nplm_jax.data import brown as brown_files
from nplm_jax.data import corpora, encoding
from nplm_jax.data.batches import make_batch
from nplm_jax.data.frequencies import unigram_log_probabilities
from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import perplexity
from nplm_jax.training import step as step_lib

FOLDER = ROOT / 'docs' / 'tutorials'
LETTERS = {'C': 'C_VxM', 'H': 'H_KxP', 'd': 'd_K', 'U': 'U_VxK', 'b': 'b_V', 'W': 'W_VxP'}
V = 2000
NETWORK = {'model.n': 5, 'model.m': 30, 'model.h': 50, 'model.dropout': 0.0}
TINY = {'train': 800, 'valid': 100, 'test': 100, 'max_vocabulary': 40, 'min_count': 1, 'epochs': 1, 'batch_size': 16}

each_network = pytest.mark.parametrize('direct', [False, True], ids=['mlp9', 'mlp1'])


@pytest.fixture(autouse=True)
def scratch(monkeypatch):
    """Imports the file again, as a student would, and allows it to add a vector to each row without `[None, :]`."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, 'nplm_from_scratch', raising=False)
    with jax.numpy_rank_promotion('allow'):
        yield importlib.import_module('nplm_from_scratch')


@pytest.fixture
def tiny_brown(tmp_path, monkeypatch):
    """A folder of NLTK data with twelve short texts in Brown's format."""
    folder, rng = tmp_path / 'nltk_data' / 'corpora' / 'brown', random.Random(1)
    folder.mkdir(parents=True)
    sentences = [*SENTENCES, "Two of the man's men could not say what he said , he said .", "It 's 1/2 Smith's ."]
    for name in ('cb01', 'ca02', 'ca01', *(f'cr{i:02}' for i in range(1, 10))):
        paragraphs = (' '.join(rng.choices(sentences, k=2)) for _ in range(8))
        tagged = (' '.join(f'{word}/nn-tl' for word in paragraph.split()) for paragraph in paragraphs)
        (folder / name).write_text('\n\n\t' + '\n\n\n\t'.join(tagged) + ' \n')
    (folder / 'cats.txt').write_text('ca01 news\n')
    monkeypatch.setenv('NLTK_DATA', str(tmp_path / 'nltk_data'))
    return folder


def to_theta(params):
    return {letter: params[name] for letter, name in LETTERS.items() if name in params}


def make_tokens(size=3000):
    return np.random.default_rng(0).zipf(1.3, size).astype(np.int32) % V


def test_it_is_short_and_imports_nothing_of_the_library():
    code = (FOLDER / 'nplm_from_scratch.py').read_text()
    assert len(code.splitlines()) <= 200
    nodes = list(ast.walk(ast.parse(code)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition('.')[0] for name in names} <= {'jax', 'numpy', 'optax', *sys.stdlib_module_names}


def test_its_ids_of_brown_are_those_of_the_library(scratch, brown_data):
    try:
        scratch.read_brown()
    except SystemExit:
        pytest.skip('needs the Brown Corpus in a folder of NLTK_DATA')
    data, s = brown_data('mlp9'), scratch.settings([])
    words, ids_T, theta = scratch.prepare(s)
    assert tuple(words) == data.vocabulary.words
    np.testing.assert_array_equal(ids_T, data.tokens_T)
    assert (data.train, data.valid) == (Span(0, s.train), Span(s.train, s.train + s.valid))
    np.testing.assert_array_equal(theta['b'], unigram_log_probabilities(data.train_words, len(words)))


@pytest.mark.parametrize('packed', [False, True], ids=['folder', 'zip'])
def test_its_ids_of_a_tiny_brown_are_those_of_the_library(scratch, tiny_brown, monkeypatch, packed):
    if packed:
        with zipfile.ZipFile(tiny_brown.with_suffix('.zip'), 'w') as z:
            for path in tiny_brown.iterdir():
                z.write(path, f'brown/{path.name}')
                path.unlink()
    texts = scratch.read_brown()
    assert len(texts) == 12 and texts == scratch.read_brown(str(tiny_brown) + ('.zip' if packed else ''))
    monkeypatch.setattr(brown_files, 'tagged_texts', lambda: texts)
    settings = corpus_settings('brown', min_count=3, max_vocabulary=30)
    corpus = corpora.load(settings)
    expected = encoding.build_dataset(corpus, encoding.build_vocabulary(corpus, settings))
    tiny = ['--min_count=3', '--max_vocabulary=30', '--train=800', '--valid=100']
    words, ids_T, _ = scratch.prepare(scratch.settings(tiny))
    assert tuple(words) == expected.vocabulary.words and {"'s", '<p>'} <= {*words}
    np.testing.assert_array_equal(ids_T, expected.tokens_T)


@each_network
def test_its_log_probabilities_are_those_of_the_library(scratch, direct):
    bias_V = np.linspace(2, -5, V, dtype=np.float32)
    model, tokens_T = make_model(V, {**NETWORK, 'model.direct': direct}, bias_V=bias_V), make_tokens()
    theta, positions_T = to_theta(model.params), np.arange(len(tokens_T))
    assert sorted(theta) == sorted('CHdUbW' if direct else 'CHdUb')
    nll_T = np.asarray(scratch.nll(theta, *scratch.examples(jax.numpy.asarray(tokens_T), positions_T, 5)), np.float64)
    expected_T = -np.asarray(model.score(tokens_T, Span(0, len(tokens_T))), np.float64)
    assert abs(nll_T.mean() - expected_T.mean()) < 1e-6
    assert np.abs(nll_T - expected_T).max() < 4e-6  # two steps of float32 between 8 and 16 nats; 1.9e-6 was measured
    span = Span(2000, 3000)
    found = scratch.perplexity(theta, jax.numpy.asarray(tokens_T), range(span.start, span.stop), 5)
    assert found == pytest.approx(perplexity(model, tokens_T, span), rel=1e-6)


@each_network
@pytest.mark.parametrize('rule', ['sgd', 'paper'])
def test_its_updates_are_those_of_the_library(scratch, monkeypatch, direct, rule):
    flags = ['--train=2000', '--batch_size=50', '--epochs=2', '--decay=1e-3', *(['--paper'] if rule == 'paper' else [])]
    s, tokens_T, positions = scratch.settings(flags), make_tokens(), []
    changes = {'optimizer.name': rule, 'optimizer.learning_rate': s.rate, 'optimizer.schedule': 'cosine'}
    changes |= {'train.batch_size': s.batch_size, 'train.epochs': s.epochs}
    changes |= {'optimizer.decay': s.decay} if rule == 'sgd' else {}  # the paper's value is the default
    settings = small_settings({**NETWORK, **changes, 'model.direct': direct})
    program, state, _ = start_training(settings, V, s.train // s.batch_size)
    initial, update = to_theta(state.params), scratch.update

    def recorded(theta, ids_T, positions_B, *rest):
        positions.append(positions_B)
        return update(theta, ids_T, positions_B, *rest)

    monkeypatch.setattr(scratch, 'update', recorded)
    *_, (theta, mean) = scratch.train(initial, jax.numpy.asarray(tokens_T), s)
    assert len(positions) == 80 and len(np.unique(positions[:40])) == s.train
    train_step, nll = jax.jit(functools.partial(step_lib.train_step, program)), []
    for positions_B in positions:
        batch = make_batch(tokens_T, jax.numpy.asarray(positions_B)[:, None], program.network.body.lookback)
        state, nll_B = train_step(state, batch)
        nll.append(nll_B)
    tolerance = 1e-5 if rule == 'sgd' else 4e-5  # the library applies the paper's decay to several updates at once
    assert_close(theta, to_theta(state.params), rtol=0, atol=tolerance)
    assert mean == pytest.approx(np.mean(nll[40:]), abs=tolerance)
    if rule == 'sgd':
        assert np.abs(theta['C'] - initial['C']).max() > 0.01


def test_it_runs_from_the_command_line(scratch, tiny_brown, monkeypatch):
    monkeypatch.setattr(scratch, 'SECONDS', 0.0)
    flags = [f'--{name}={value}' for name, value in (TINY | {'epochs': 2}).items()]
    done = call_main(scratch.main, ['nplm_from_scratch.py', *flags, '--direct'])
    assert done.returncode == 0
    shown = re.findall(r'([a-z]+ ?\d?): [ \d]{3}%, \d+ s\r', done.stderr)
    assert shown == [*['epoch 1'] * 50, 'perplexity', *['epoch 2'] * 50, *['perplexity'] * 2]
    words, size, *epochs, test, sample, _, _, _, last = done.stdout.splitlines()
    num_words = sum(len(scratch.to_words(text)) for text in scratch.read_brown())
    assert re.findall(r'[\d,]*\d', words) == ['800', '100', '100', f'{num_words:,}']
    assert re.findall(r'[\d,]*\d', size) == ['33', f'{33 * (1 + 5 * 30 + 100) + 100 * (1 + 4 * 30):,}']
    assert [line.partition(':')[0] for line in epochs] == ['epoch 1', 'epoch 2']
    assert 1 < float(test.rpartition(': ')[2]) < 33
    sampled, neighbours = (line.partition(': ')[2].split() for line in (sample, last))
    assert sampled[0] == '<p>' and '<rare>' not in sampled and len(sampled) == 31 and len(neighbours) == 5


@pytest.mark.parametrize('split', ['valid', 'test'])
@pytest.mark.parametrize('train,words,expected', [(800_000, 0, 200_000), (60_000, 0, 15_000), (60_000, 70, 70)])
def test_validation_and_test_have_a_quarter_of_the_training_words_by_default(scratch, split, train, words, expected):
    assert getattr(scratch.settings([f'--train={train}', f'--{split}={words}']), split) == expected


def test_without_brown_it_says_how_to_get_it(scratch, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('NLTK_DATA', f'{tmp_path}/none')
    monkeypatch.setattr(scratch.pathlib.Path, 'exists', lambda path: False)  # /usr/share/nltk_data
    done = call_main(scratch.main, ['nplm_from_scratch.py'])
    assert done.returncode.startswith('NLTK_DATA: ')
    assert 'python -m nltk.downloader' in done.returncode and '\n' not in done.returncode
    assert call_main(scratch.main, ['nplm_from_scratch.py', '--brown=here']).returncode.startswith('here: ')


def test_too_many_words_are_refused(scratch, tiny_brown):
    done = call_main(scratch.main, ['nplm_from_scratch.py'])
    assert done.returncode.startswith('--train=800000 --valid=200000: ')


@pytest.fixture
def tiny_settings(scratch, tiny_brown, monkeypatch):
    """Replaces the numbers of words and passes on the command line and in the blocks of the page."""

    def tiny(arguments=None):
        namespace = settings(arguments)
        vars(namespace).update(TINY)
        return namespace

    settings = scratch.settings
    monkeypatch.setattr(scratch, 'settings', tiny)


def test_the_printed_commands_run(scratch, tiny_settings):
    text = (FOLDER / 'nplm_from_scratch.md').read_text(encoding='utf-8')
    commands = re.findall(r'^python (docs/tutorials/nplm_from_scratch\.py.*)$', text, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        path, *flags = command.split()
        assert (ROOT / path).is_file() and call_main(scratch.main, [path, *flags]).returncode == 0, command


def test_the_answers_to_the_exercises_run(scratch, tiny_settings, capsys):
    text, names = (FOLDER / 'nplm_from_scratch.md').read_text(encoding='utf-8'), {}
    blocks = re.findall(r'```python\n(.*?)```\n+(?:```text\n(.*?)```)?', text, re.DOTALL)
    assert 5 <= len(blocks) <= 7
    for number, (code, printed) in enumerate(blocks):
        exec(compile(code, f'block {number} of nplm_from_scratch.md', 'exec'), names)
        shape = [re.sub(r'[\d.,]+', '0', line) for line in printed.splitlines()]  # the numbers refer to Brown
        assert [re.sub(r'[\d.,]+', '0', line) for line in capsys.readouterr().out.splitlines()] == shape
