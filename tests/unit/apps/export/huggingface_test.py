"""Tests that networks give the same probabilities and words in Hugging Face transformers."""

import ast
import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from helpers import SENSES, make_model, refuses, small_settings
from value_projection import OffsetSoftmax

from nplm_jax.apps.export import huggingface
from nplm_jax.data import vocabulary
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs import loading

V = 23
STREAMS = {'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4, 'optimizer.name': 'sgd'}
TIED = STREAMS | {'model.tied': True, 'model.layers': 2}
ATTENTION = STREAMS | {'model.family': 'transformer', 'model.h': 6, 'model.heads': 3, 'model.memory': 4}
CASES = {
    'direct': {},
    'hidden': {'model.direct': False, 'output.kind': 'nce', 'output.samples': 9},
    'linear': {'model.h': 0, 'output.kind': 'sampled', 'output.samples': 9},
    'residual': STREAMS | {'model.family': 'residual', 'model.averages': 2},
    'residual_tied': TIED | {'model.family': 'residual'},
    'rnn': STREAMS | {'model.family': 'rnn'},
    'gru_tied': TIED | {'model.family': 'gru'},
    'gru': STREAMS | {'model.family': 'gru'},
    'lstm': STREAMS | {'model.family': 'lstm', 'model.layers': 2},
    'lstm_tied': TIED | {'model.family': 'lstm', 'model.m': 5},
    'window_lstm': TIED | {'model.family': 'window_lstm'},
    'mogrifier': TIED | {'model.family': 'mogrifier', 'model.m': 5},
    'mogrifier_rounds': STREAMS | {'model.family': 'mogrifier', 'model.layers': 2, 'model.rounds': 2},
    'attentive_mogrifier': TIED | {'model.family': 'attentive_mogrifier', 'model.m': 5, 'model.memory': 4},
    'attentive_mogrifier_deep': STREAMS
    | {'model.family': 'attentive_mogrifier', 'model.memory': 20, 'model.layers': 2},
    'qrnn': STREAMS | {'model.family': 'qrnn', 'model.layers': 3},
    'qrnn_tied': TIED | {'model.family': 'qrnn'},
    'transformer': ATTENTION | {'model.layers': 2},
    'transformer_odd': ATTENTION | {'model.heads': 2, 'model.memory': 20, 'model.expansion': 1},
    'transformer_tied': ATTENTION | TIED,
    'transformer_n': ATTENTION | {'model.family': 'transformer_n', 'model.layers': 2},
    'transformer_n_bigrams': ATTENTION | TIED | {'model.family': 'transformer_n', 'model.n': 2},
}


def write(folder, changes, size=V):
    """Exports a network with large random parameters, and returns it."""
    pytest.importorskip('safetensors', reason='pip install safetensors')
    pytest.importorskip('tokenizers', reason='pip install tokenizers')
    model, rng = make_model(size, changes), np.random.default_rng(0)
    noise = lambda x: x + rng.normal(0, 0.5, x.shape).astype(np.float32)  # noqa: E731
    model = NeuralLanguageModel(model.network, jax.tree.map(noise, model.params))
    words = vocabulary.build(['<p>', *(f'w{i}' for i in range(size - 2))])
    huggingface.write_folder(model, words, small_settings(changes), folder)
    return model


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Returns a function that exports a network and returns it together with PyTorch's version."""
    monkeypatch.setenv('HF_MODULES_CACHE', str(tmp_path / 'modules'))
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    torch = pytest.importorskip('torch', reason='pip install torch')
    transformers = pytest.importorskip('transformers', reason='pip install transformers')
    torch.set_num_threads(1)  # otherwise, the threads of pytest-xdist's workers would block each other

    def call(changes, folder=tmp_path / 'folder'):
        ours = write(folder, changes)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
        return ours, theirs

    with torch.no_grad():
        yield call


def pad(lines, side, id=V):
    """Returns the ids and the mask of lines, padded on one side."""
    T = max(map(len, lines))
    ids_BxT, mask_BxT = np.full((len(lines), T), id), np.zeros((len(lines), T), np.int64)
    for i, line in enumerate(lines):
        place = slice(T - len(line), T) if side == 'left' else slice(0, len(line))
        ids_BxT[i, place], mask_BxT[i, place] = line, 1
    return ids_BxT, mask_BxT


@pytest.mark.parametrize('name', CASES)
def test_pytorch_computes_the_same_log_probabilities_however_texts_are_padded(name, load):
    torch = pytest.importorskip('torch')

    ours, theirs = load(CASES[name])
    rng = np.random.default_rng(1)
    lines = [rng.integers(0, V, length) for length in (13, 1, 6)]
    expected = [np.concatenate([ours.next_word(line[None, :t]) for t in range(len(line) + 1)]) for line in lines]
    for side in ('left', 'right'):
        ids_BxT, mask_BxT = pad(lines, side)
        for inputs in ({'attention_mask': torch.tensor(mask_BxT)}, {}):  # without a mask, the id V is padding
            log_p_BxTxV = theirs(torch.tensor(ids_BxT), **inputs).logits.log_softmax(-1).numpy()
            for log_p_TxV, mask_T, after in zip(log_p_BxTxV, mask_BxT, expected):
                assert np.abs(log_p_TxV[mask_T == 1] - after[1:]).max() < 1e-5
                if side == 'left' and not mask_T[0]:  # at padding, the scores equal those for the first word
                    assert np.abs(log_p_TxV[mask_T == 0] - after[0]).max() < 1e-5


@pytest.mark.parametrize('name', CASES)
def test_the_state_replaces_the_words_before_however_texts_are_cut_and_padded(name, load):
    torch = pytest.importorskip('torch')

    _, theirs = load(CASES[name])
    rng = np.random.default_rng(2)
    lines = [rng.integers(0, V, length) for length in (13, 5, 8)]
    expected = [theirs(torch.tensor(line[None])).logits[0] for line in lines]
    assert not theirs(torch.tensor(lines[0][None])).to_tuple()[1:]  # no state unless requested
    for side in ('left', 'right'):
        for lengths in ([3, 1, 4], [1, 5, 2], [13, 5, 8]):  # for the first parts; then word by word
            states, read = None, np.zeros(3, int)
            while (read < list(map(len, lines))).any():
                parts = [line[i : i + n] for line, i, n in zip(lines, read, lengths)]  # some are empty
                ids_BxT, mask_BxT = (torch.tensor(x) for x in pad(parts, side))
                output = theirs(ids_BxT, attention_mask=mask_BxT, use_cache=True, past_key_values=states)
                states = output[1]
                for logits_TxV, mask_T, after, i, part in zip(output.logits, mask_BxT, expected, read, parts):
                    found = logits_TxV[mask_T == 1]
                    assert len(part) == 0 or (found - after[i : i + len(part)]).abs().max() < 1e-4
                read, lengths = read + list(map(len, parts)), [1, 1, 1]


def count_words(model):
    """Makes the model record the number of words read by each call. Returns the list."""
    read = []
    model.body.register_forward_pre_hook(lambda body, inputs: read.append(inputs[0].shape[1]))
    return read


@pytest.mark.parametrize('name', CASES)
def test_generation_reads_each_word_once_and_writes_what_it_does_without_a_state(name, load):
    torch = pytest.importorskip('torch')

    _, theirs = load(CASES[name])
    rng = np.random.default_rng(3)
    ids_BxT, mask_BxT = (torch.tensor(x) for x in pad([rng.integers(1, V, n) for n in (6, 1, 4)], 'left'))
    read, first = count_words(theirs), 6 + theirs.config.num_context
    for options in ({}, {'num_beams': 3, 'num_return_sequences': 2}, {'do_sample': True, 'top_k': 5}):
        choices, drawn = {'do_sample': False, 'max_new_tokens': 12, **options}, []
        for added in ({}, {'use_cache': False}):
            torch.manual_seed(0)
            drawn.append(theirs.generate(ids_BxT, attention_mask=mask_BxT, **choices, **added))
        assert torch.equal(*drawn)
        num_steps = len(read) // 2
        assert read[:num_steps] == [first] + [1] * (num_steps - 1)
        assert read[num_steps:] == list(range(first, first + num_steps))
        read.clear()


def test_a_left_padded_text_is_continued_as_it_is_alone(load):
    torch = pytest.importorskip('torch')

    for name in ('lstm', 'transformer', 'direct'):
        _, theirs = load(CASES[name])
        lines = [[3, 4, 5, 6, 7, 8], [9], [4, 2, 11]]
        ids_BxT, mask_BxT = (torch.tensor(x) for x in pad(lines, 'left'))
        choices = {'do_sample': False, 'max_new_tokens': 8, 'eos_token_id': None}
        drawn = theirs.generate(ids_BxT, attention_mask=mask_BxT, **choices)
        for line, words in zip(lines, drawn.tolist()):
            assert theirs.generate(torch.tensor([line]), **choices)[0].tolist() == words[-len(line) - 8 :]


def test_assisted_generation_is_refused_since_a_state_cannot_be_taken_back(load):
    torch = pytest.importorskip('torch')

    _, theirs = load(CASES['gru'])
    with pytest.raises(ValueError, match='stateful'):
        theirs.generate(torch.tensor([[1, 2, 1, 2]]), prompt_lookup_num_tokens=2, max_new_tokens=3)


def test_the_loss_is_the_mean_over_the_labelled_words(load):
    torch = pytest.importorskip('torch')

    ours, theirs = load(CASES['direct'])
    line = np.array([3, 1, 4, 1, 5])
    log_p = [ours.next_word(line[None, :t])[0, line[t]] for t in range(1, 5)]
    labels = torch.tensor(line)[None]
    padding = torch.full((1, 2), V)
    for ids in (labels, torch.cat([padding, labels], 1), torch.cat([labels, padding], 1)):
        assert theirs(ids, labels=ids).loss.item() == pytest.approx(-np.mean(log_p), abs=1e-5)
    last = torch.tensor([[-100, -100, -100, -100, 5]])
    loss, logits = theirs(labels, labels=last, return_dict=False)
    assert loss.item() == pytest.approx(-log_p[-1], abs=1e-5) and logits.shape == (1, 5, V)


def test_saving_and_loading_again_changes_nothing_and_generation_is_ours(load, tmp_path):
    torch, transformers = map(pytest.importorskip, ('torch', 'transformers'))

    ours, theirs = load(CASES['lstm_tied'])
    theirs.save_pretrained(tmp_path / 'again')
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'again', trust_remote_code=True)
    ids = torch.tensor([[5, 6, 7], [V, V, 9]])
    assert torch.equal(theirs(ids).logits, again(ids).logits)
    drawn = again.generate(ids, attention_mask=(ids < V).int(), max_new_tokens=4, do_sample=False, eos_token_id=None)
    for line in drawn.tolist():
        words = [i for i in line if i < V]
        for t in range(len(words) - 4, len(words)):
            assert words[t] == ours.next_word(np.array([words[:t]]))[0].argmax()


def test_minicons_gives_the_surprisals_of_nplm_score(folders, tmp_path, monkeypatch, nplm_command):
    torch = pytest.importorskip('torch', reason='pip install torch')
    scorers = pytest.importorskip('minicons.scorer', reason='pip install minicons')
    transformers = pytest.importorskip('transformers', reason='pip install transformers')
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    nplm_command('export', folders / 'network', '--to=hf', f'--output={tmp_path / "folder"}')
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'folder', trust_remote_code=True)
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / 'folder', trust_remote_code=True)
    scorer = scorers.IncrementalLMScorer(network, 'cpu', tokenizer=tokenizer)
    loaded = loading.load(folders / 'network')
    words, model = loaded.vocabulary, loaded.model
    texts = ['I like zebras', 'i hate Dog']
    for text, scored in zip(texts, scorer.token_score(texts, bos_token=True, surprisal=True)):
        ids = words.encode(['<p>', *text.lower().split()])
        expected = [-model.next_word(ids[None, :t])[0, ids[t]] for t in range(1, len(ids))]
        assert [token for token, _ in scored] == words.decode(ids)
        assert [bits for _, bits in scored[1:]] == pytest.approx(expected, abs=1e-4)
    assert torch.is_grad_enabled()


def test_numpy_computes_the_papers_network_from_the_tensors(tmp_path):
    ours = write(tmp_path / 'folder', CASES['direct'])
    tensors = pytest.importorskip('safetensors.numpy').load_file(tmp_path / 'folder' / 'model.safetensors')
    contexts_BxN = np.random.default_rng(0).integers(0, V, (9, 3))
    x_BxP = tensors['C.weight'][contexts_BxN[:, ::-1]].reshape(9, -1)
    a_BxK = np.tanh(x_BxP @ tensors['body.H.weight'].T + tensors['body.H.bias'])
    y_BxV = np.concatenate([a_BxK, x_BxP], axis=1) @ tensors['U.weight'].T + tensors['b']
    log_p_BxV = y_BxV - np.log(np.exp(y_BxV).sum(1, keepdims=True))
    assert np.abs(log_p_BxV - ours.next_word(contexts_BxN)).max() < 1e-5


def test_the_folder_has_what_transformers_reads(tmp_path):
    write(tmp_path / 'folder', CASES['lstm_tied'])
    config = json.loads((tmp_path / 'folder' / 'config.json').read_text())
    assert config['auto_map']['AutoModelForCausalLM'] == 'modeling_nplm.NplmForCausalLM'
    assert (config['family'], config['layers'], config['tied'], config['vocab_size']) == ('lstm', 2, True, V)
    tokenizer = json.loads((tmp_path / 'folder' / 'tokenizer_config.json').read_text())
    roles = {role: word for role, word in tokenizer.items() if role.endswith('_token')}
    assert roles == {'unk_token': '<rare>', 'pad_token': '<pad>', 'bos_token': '<p>', 'eos_token': '<p>'}
    ids = json.loads((tmp_path / 'folder' / 'generation_config.json').read_text())
    assert (ids['bos_token_id'], ids['eos_token_id'], ids['pad_token_id']) == (1, 1, V)


def test_bytes_without_newlines_and_marks_have_no_tokens_at_line_ends(tmp_path):
    pytest.importorskip('safetensors', reason='pip install safetensors')
    words = dataclasses.replace(vocabulary.build(list('abc')), tokenizer=ByteTokenizer(boundary_tokens=False))
    huggingface.write_folder(make_model(len(words), {}), words, small_settings({}), tmp_path / 'folder')
    ids = json.loads((tmp_path / 'folder' / 'generation_config.json').read_text())
    assert ids == {'pad_token_id': len(words)}


def test_the_model_files_need_pytorch_and_transformers_alone():
    imported = set()
    nodes = (node for file in huggingface.MODEL_FILES for node in ast.walk(ast.parse(file.read_text())))
    for node in nodes:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        imported |= {name.split('.')[0] for name in names}
    assert imported - sys.stdlib_module_names == {'torch', 'transformers'}


@pytest.mark.parametrize(
    'changes, has',
    [
        (
            {'output.kind': 'two_level', 'output.classes': 3, 'output.num_shortlist': 5},
            ('nplm', 'two_level'),
        ),
        (
            {'model.family': SENSES},
            (SENSES, 'full'),
        ),
    ],
)
def test_what_the_folder_cannot_hold_is_one_line(changes, has, tmp_path):
    model, words = make_model(V, changes), vocabulary.numbered(V)
    with refuses('--to') as error:
        huggingface.write_folder(model, words, small_settings(changes), tmp_path / 'folder')
    assert all(name in error.value.problem for name in has)
    assert not (tmp_path / 'folder').exists()


def test_a_softmax_of_other_scores_is_refused_even_if_it_is_a_subclass(tmp_path):
    network = dataclasses.replace(make_model(V, {}).network, output=OffsetSoftmax())
    model = NeuralLanguageModel(network, network.init(jax.random.key(0)))
    with refuses('--to'):
        huggingface.write_folder(model, vocabulary.numbered(V), small_settings({}), tmp_path / 'folder')
    assert not (tmp_path / 'folder').exists()


class Letters(Tokenizer):
    split = list

    def cut(self, strings, known=None):
        return [list(string) for string in strings]


def test_a_folder_cannot_hold_a_tokenizer_of_another_class(tmp_path):
    words = dataclasses.replace(vocabulary.numbered(V), tokenizer=Letters('letters'))
    with refuses('--to') as error:
        huggingface.write_folder(make_model(V, {}), words, small_settings({}), tmp_path / 'folder')
    assert 'corpus.tokens=letters' in error.value.problem
