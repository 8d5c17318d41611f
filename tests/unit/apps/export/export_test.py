"""Tests that models exported to other tools give the same probabilities there."""

import json
import math
import pathlib
import re
import shutil

import numpy as np
import pytest
from helpers import random_contexts

from configs import sentences
from configs import text as text_config
from nplm_jax import kenlm
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.ngram import arpa
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.packing import arrays_of

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def direct(tmp_path_factory):
    """A network with all six parameters of the paper."""
    config = sentences.get_config()
    config.model.direct, config.train.epochs, config.model.n = True, 20, 4
    experiment.run(config, folder := tmp_path_factory.mktemp('direct') / 'run')
    return folder


def test_npz_has_the_papers_arrays_from_which_numpy_computes_the_same(direct, tmp_path, nplm_command):
    nplm_command('export', direct, '--to=npz', f'--output={tmp_path / "a.npz"}')
    loaded = loading.load(direct)
    vocabulary, model = loaded.vocabulary, loaded.model
    with np.load(tmp_path / 'a.npz', allow_pickle=False) as file:
        a = dict(file)
    assert tuple(a['words']) == vocabulary.words and json.loads(str(a['config']))['model']['n'] == 4
    contexts_BxN = random_contexts(vocabulary)
    x_BxP = a['C_VxM'][contexts_BxN[:, ::-1]].reshape(len(contexts_BxN), -1)
    y_BxV = a['b_V'] + x_BxP @ a['W_VxP'].T + np.tanh(a['d_K'] + x_BxP @ a['H_KxP'].T) @ a['U_VxK'].T
    log_p_BxV = y_BxV - np.log(np.exp(y_BxV).sum(1, keepdims=True))
    assert np.abs(log_p_BxV - model.next_word(contexts_BxN)).max() < 1e-5


def test_npz_of_an_ngram_model_has_its_words_and_probabilities(folders, tmp_path, nplm_command):
    nplm_command('export', folders / 'counts', '--to=npz', f'--output={tmp_path / "a.npz"}')
    loaded = loading.load(folders / 'counts')
    vocabulary, model = loaded.vocabulary, loaded.model
    with np.load(tmp_path / 'a.npz', allow_pickle=False) as file:
        assert tuple(file['words']) == vocabulary.words
        np.testing.assert_array_equal(file['log_p.2'], model.log_p[1])


@pytest.mark.parametrize('name', ['network', 'counts'])
def test_npz_has_no_other_arrays_and_no_objects(folders, tmp_path, nplm_command, monkeypatch, name):
    written = {}  # NumPy 2.0 interprets every keyword argument as an array
    monkeypatch.setattr(np, 'savez', lambda file, **arrays: written.update(arrays))
    nplm_command('export', folders / name, '--to=npz', f'--output={tmp_path / "a.npz"}')
    assert written.keys() == {*arrays_of(loading.load(folders / name).model), 'words', 'config'}
    assert not any(array.dtype.hasobject for array in written.values())


@pytest.mark.parametrize('name', ['network', 'counts'])
def test_safetensors_holds_the_same_arrays(folders, tmp_path, nplm_command, name):
    safetensors = pytest.importorskip('safetensors', reason='pip install safetensors')
    numpy_format = pytest.importorskip('safetensors.numpy')
    for kind in ('npz', 'safetensors'):
        nplm_command('export', folders / name, f'--to={kind}', f'--output={tmp_path / kind}')
    tensors = numpy_format.load_file(tmp_path / 'safetensors')
    with np.load(tmp_path / 'npz') as file:
        texts = {'words', 'config', 'kind'}
        assert set(tensors) == set(file.files) - texts
        for key, array in tensors.items():
            np.testing.assert_array_equal(array, file[key])
        with safetensors.safe_open(tmp_path / 'safetensors', 'numpy') as opened:
            assert json.loads(opened.metadata()['words']) == file['words'].tolist()


@pytest.mark.parametrize('flags', [[], ['--int8']])
def test_onnxruntime_computes_the_same_log_probabilities(direct, flags, tmp_path, nplm_command):
    pytest.importorskip('jax2onnx', reason='pip install --no-deps jax2onnx')
    onnxruntime = pytest.importorskip('onnxruntime', reason='pip install onnxruntime')
    nplm_command('export', direct, '--to=onnx', *flags, f'--output={tmp_path / "a.onnx"}')
    session = onnxruntime.InferenceSession(tmp_path / 'a.onnx', providers=['CPUExecutionProvider'])
    loaded = loading.load(direct)
    vocabulary, model = loaded.vocabulary, loaded.model
    contexts_BxN = random_contexts(vocabulary, number=50)
    inputs = {'ids': contexts_BxN[:, -1].astype(np.int64), 'state.recent_SxR': contexts_BxN[:, :-1].astype(np.int32)}
    (log_p_BxV,) = session.run(['log_probabilities'], inputs)
    assert np.abs(log_p_BxV - model.next_word(contexts_BxN)).max() < (0.1 if flags else 1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map['words']) == list(vocabulary.words)


def test_eight_bits_are_of_onnx_alone(direct, tmp_path, lines):
    lines()
    with pytest.raises(SystemExit):
        cli.main(['export', str(direct), '--to=npz', '--int8', f'--output={tmp_path / "file"}'])
    (line,) = lines()[1]
    assert line.startswith('--int8=True: ')


@pytest.mark.parametrize('name', ['features.txt', 'features.bin'])
def test_gensim_reads_word2vec(folders, tmp_path, nplm_command, name):
    gensim_models = pytest.importorskip('gensim.models', reason='pip install gensim')
    nplm_command('export', folders / 'network', '--to=word2vec', f'--output={tmp_path / name}')
    vectors = gensim_models.KeyedVectors.load_word2vec_format(tmp_path / name, binary=name.endswith('.bin'))
    loaded = loading.load(folders / 'network')
    vocabulary, model = loaded.vocabulary, loaded.model
    for word in vocabulary.words:
        np.testing.assert_array_equal(vectors[word], np.asarray(model.params['C_VxM'])[vocabulary.ids[word]])


def test_an_add_delta_model_is_the_same_from_its_arpa_file(folders, tmp_path, nplm_command):
    nplm_command('export', folders / 'other', '--to=arpa', f'--output={tmp_path / "file.arpa"}')
    loaded = loading.load(folders / 'other')
    vocabulary, model = loaded.vocabulary, loaded.model
    again, _ = arpa.read(tmp_path / 'file.arpa')
    contexts = random_contexts(vocabulary)
    np.testing.assert_allclose(again.next_word(contexts), model.next_word(contexts), atol=2e-6)


@pytest.fixture(scope='module')
def subwords(tmp_path_factory):
    """The folder of a run with the tokens of a SentencePiece model, its text and the model."""
    package = pytest.importorskip('sentencepiece')
    folder = tmp_path_factory.mktemp('subwords')
    lines = [f'{a} {b} {c}' for a in ('the dog', 'a cat') for b in ('ran', 'said') for c in ('over there', 'now')] * 4
    (folder / 'text.txt').write_text('\n'.join(lines) + '\n')
    options = {'vocab_size': 40, 'hard_vocab_limit': False, 'minloglevel': 2}
    package.SentencePieceTrainer.train(
        input=str(folder / 'text.txt'), model_prefix=str(folder / 'tokenizer'), **options
    )
    config = text_config.get_config(f'modified_kneser_ney_5,{folder / "tokenizer.model"}')
    changes = {'path': str(folder / 'text.txt'), 'paragraphs': 'lines', 'context': 'line'}
    experiment.run(config_lib.override(config, {f'corpus.{k}': v for k, v in changes.items()}), folder / 'run')
    return folder


def test_an_arpa_file_has_the_tokens_and_probabilities_of_an_asr_model(subwords, tmp_path, nplm_command):
    sentencepiece = pytest.importorskip('sentencepiece')
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(subwords / 'tokenizer.model'))
    nplm_command('export', subwords / 'run', '--to=arpa', f'--output={tmp_path / "tokens.arpa"}')
    _, read = arpa.read(tmp_path / 'tokens.arpa', as_kenlm=True)
    pieces = {theirs.id_to_piece(i) for i in range(theirs.get_piece_size())}
    assert pieces - {'<unk>'} == {*read.words} - {'<rare>', '<text>'}
    model, exported = kenlm.Model(subwords / 'run'), kenlm.Model(tmp_path / 'tokens.arpa')
    for line in (subwords / 'text.txt').read_text().splitlines()[:8]:
        tokens = theirs.encode(line, out_type=str)
        assert math.isclose(exported.score(' '.join(tokens)), model.score(line), rel_tol=1e-5)


def test_the_words_of_an_arpa_file_for_nemo_are_the_ids_of_the_asr_model(subwords, tmp_path, nplm_command, monkeypatch):
    sentencepiece = pytest.importorskip('sentencepiece')
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(subwords / 'tokenizer.model'))
    nplm_command('export', subwords / 'run', '--to=arpa', f'--output={tmp_path / "tokens.arpa"}')
    page = pathlib.Path(__file__).parents[4] / 'docs/howto/kenlm_details.md'
    (code,) = re.findall(r'```py\n(import sentencepiece\n.*?)```', page.read_text(), re.DOTALL)
    shutil.copy(subwords / 'tokenizer.model', tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    model, renamed = kenlm.Model(subwords / 'run'), kenlm.Model(tmp_path / 'nemo.arpa')
    for line in (subwords / 'text.txt').read_text().splitlines()[:8]:
        ids = theirs.encode(line)
        assert math.isclose(renamed.score(' '.join(chr(i + 100) for i in ids)), model.score(line), rel_tol=1e-5)


@pytest.mark.parametrize(
    'name, to, message',
    [
        ('network', 'arpa', '--to=arpa:'),
        ('counts', 'word2vec', "--to='word2vec':"),
        ('counts', 'onnx', "--to='onnx':"),
    ],
)
def test_what_a_format_cannot_hold_is_one_line(folders, tmp_path, lines, name, to, message):
    lines()
    with pytest.raises(SystemExit) as stop:
        cli.main(['export', str(folders / name), f'--to={to}', f'--output={tmp_path / "file"}'])
    (line,) = lines()[1]
    assert stop.value.code == 2 and message in line and not (tmp_path / 'file').exists()


@pytest.mark.parametrize(
    'package, to, command',
    [
        ('safetensors', 'safetensors', 'nplm-jax[export]'),
        ('jax2onnx', 'onnx', 'pip install --no-deps jax2onnx'),
    ],
)
def test_a_missing_package_is_named(direct, tmp_path, lines, monkeypatch, package, to, command):
    for module in (package, f'{package}.numpy'):
        monkeypatch.setitem(__import__('sys').modules, module, None)
    lines()
    with pytest.raises(SystemExit):
        cli.main(['export', str(direct), f'--to={to}', f'--output={tmp_path / "file"}'])
    (line,) = lines()[1]
    assert line.startswith(f'{package}: ') and 'pip install "nplm-jax[export]"' in line and command in line


def test_a_file_that_cannot_be_written_is_one_line(direct, lines):
    with pytest.raises(SystemExit) as caught:
        cli.main(['export', str(direct), '--to=npz', '--output=/proc/a.npz'])
    assert caught.value.code == 2 and [line.partition(': ')[0] for line in lines()[1]] == ["--output='/proc/a.npz'"]
