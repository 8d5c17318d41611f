"""Tests that ONNX Runtime computes the same probabilities as the exported networks, word by word."""

import json
import re
import types

import jax
import numpy as np
import pytest
from helpers import ROOT, SENSES, make_model, refuses, small_settings

from nplm_jax.apps.export import onnx_graph
from nplm_jax.config.registry import KINDS, NETWORKS
from nplm_jax.data import vocabulary
from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel

V, T = 200, 50
OUTPUTS = {'two_level': {'output.num_shortlist': 20, 'output.classes': 30}}
OUTPUTS |= dict.fromkeys(('sampled', 'nce'), {'output.samples': 9})


def changes_of(family='nplm', kind='full', **changes):
    streams = {'model.bptt_length': 4, 'train.batch_size': 8} if family != 'nplm' else {}
    base = {'model.family': family, 'output.kind': kind, 'model.direct': False, 'optimizer.name': 'sgd', 'model.h': 6}
    base |= {'model.heads': 2} if family.startswith('transformer') else {}
    return base | streams | OUTPUTS.get(kind, {}) | changes


def make(changes, size=V, scale=0.5):
    """Returns a network with large random parameters."""
    model, rng = make_model(size, changes), np.random.default_rng(0)
    noise = lambda x: x + rng.normal(0, scale, x.shape).astype(np.float32)  # noqa: E731
    return NeuralLanguageModel(model.network, jax.tree.map(noise, model.params))


def write(changes, path, int8=False, model=None):
    """Exports a network, and returns it."""
    model = model or make(changes)
    size = model.network.vocabulary_size
    words = vocabulary.build(['<p>', *(f'w{i}' for i in range(size - 2))])
    onnx_graph.write_onnx(model, words, small_settings(changes), path, int8)
    return model


class Reader:
    """An ONNX graph with the state of some streams."""

    def __init__(self, path, num_streams):
        onnxruntime = pytest.importorskip('onnxruntime', reason='pip install onnxruntime')
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=['CPUExecutionProvider'])
        self.metadata = self.session.get_modelmeta().custom_metadata_map
        self.names = [output.name for output in self.session.get_outputs()]
        starts = json.loads(self.metadata['state'])
        self.state = {
            name: np.full([num_streams, *x['shape'][1:]], x['fill'], x['dtype']) for name, x in starts.items()
        }

    def read(self, ids_S):
        """Returns log P of all words after one more word of each stream, S x V."""
        found = dict(zip(self.names, self.session.run(None, {'ids': np.asarray(ids_S, np.int64), **self.state})))
        self.state = {name: found[name.replace('state', 'next', 1)] for name in self.state}
        return found['log_probabilities']

    def read_all(self, ids_SxT):
        """Returns log P of each word, S x T, and of all words after the last word, S x V."""
        log_p_SxV, found = self.read(np.zeros(len(ids_SxT), np.int64)), []
        for ids_S in ids_SxT.T:
            found.append(np.take_along_axis(log_p_SxV, ids_S[:, None], axis=1)[:, 0])
            log_p_SxV = self.read(ids_S)
        return np.stack(found, axis=1), log_p_SxV


def difference(model, path, num_streams):
    """Returns the largest difference in log P from the model, for T words of each stream and all next words."""
    ids_SxT = np.random.default_rng(num_streams).integers(0, V, (num_streams, T))
    log_p_SxT, log_p_SxV = Reader(path, num_streams).read_all(ids_SxT)
    assert log_p_SxV.shape == (num_streams, V)
    lines = np.abs(log_p_SxT - np.stack(model.score_lines(list(ids_SxT)))).max()
    return max(lines, np.abs(log_p_SxV - model.next_word(ids_SxT)).max())


@pytest.fixture
def path(tmp_path):
    pytest.importorskip('jax2onnx', reason='pip install --no-deps jax2onnx')
    return tmp_path / 'model.onnx'


@pytest.mark.nightly
@pytest.mark.parametrize('family', NETWORKS)
def test_every_network_is_the_same_readers(family, path):
    model = write(changes_of(family), path)
    differences = [difference(model, path, S) for S in (1, 2, 3)]
    assert max(differences) < 1e-5, differences
    ids_T = np.random.default_rng(9).integers(0, V, T)
    log_p_1xT, _ = Reader(path, 1).read_all(ids_T[None])
    np.testing.assert_allclose(log_p_1xT[0], model.score(ids_T, Span(0, T)), atol=1e-5)


@pytest.mark.parametrize(
    'changes',
    [
        changes_of(**{'model.direct': True}),
        changes_of(**{'model.direct': True, 'model.h': 0}),
        changes_of(**{'model.n': 2}),
        changes_of('lstm', **{'model.tied': True, 'model.layers': 2, 'model.m': 5}),
        changes_of('transformer', **{'model.tied': True, 'model.layers': 2}),
        changes_of('transformer_n', **{'model.n': 2}),
        changes_of(SENSES, 'nce'),
    ],
    ids=['direct', 'linear', 'bigram', 'tied_lstm', 'tied_transformer', 'transformer_2', 'plug_in'],
)
def test_options_of_networks_are_the_same(changes, path):
    assert difference(write(changes, path), path, 2) < 1e-5


@pytest.mark.parametrize('kind', KINDS['output.kind'].paths)
def test_every_output_layer_is_the_same(kind, path):
    assert difference(write(changes_of(kind=kind), path), path, 2) < 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize('family', NETWORKS)
def test_eight_bits_are_a_smaller_file_and_nearly_the_same(family, path):
    pytest.importorskip('onnxruntime', reason='pip install onnxruntime')
    changes = changes_of(family, **{'model.h': 128, 'model.m': 128})
    model = make(changes, scale=0.05)
    write(changes, path, model=model)
    size = path.stat().st_size
    write(changes, path, int8=True, model=model)
    found = difference(model, path, 2)
    assert 1e-4 < found < 0.1 and path.stat().st_size < 0.4 * size


def test_the_states_are_named_and_words_are_kept(path):
    write(changes_of('transformer'), path)
    reader = Reader(path, 1)
    assert {'state.body.kept_S', 'state.body.layers.0.keys', 'state.body.layers.0.values'} == set(reader.state)
    assert json.loads(reader.metadata['words'])[:3] == ['<rare>', '<p>', 'w0']
    assert json.loads(reader.metadata['config'])['model']['family'] == 'transformer'
    assert json.loads(reader.metadata['state'])['state.body.kept_S'] == {'shape': ['S'], 'dtype': 'int32', 'fill': 0}


def test_states_that_no_word_changes_are_left_out():
    _, carried = onnx_graph._make_step((m := make(changes_of('window_lstm'))).network, m.params)
    assert list(carried) == ['recent_SxR']
    _, carried = onnx_graph._make_step((m := make(changes_of('lstm'))).network, m.params)
    assert list(carried) == ['body.0.0', 'body.0.1']


def test_a_part_that_cannot_be_converted_is_one_line(path, monkeypatch):
    model = make(changes_of())
    output = types.SimpleNamespace(log_probabilities=lambda params, features: np.asarray(features['U_VxK']))
    monkeypatch.setattr(type(model.network), 'output', output, raising=False)
    network = types.SimpleNamespace(
        body=model.network.body, features=model.network.features, output=output, vocabulary_size=model.vocabulary_size
    )
    broken = NeuralLanguageModel(network, model.params)
    with refuses('--to'):
        onnx_graph.write_onnx(broken, None, small_settings(changes_of()), path)
    assert not path.exists()


def test_the_loop_of_the_documentation(path, monkeypatch):
    pytest.importorskip('onnxruntime', reason='pip install onnxruntime')
    model = make(changes_of(), size=6)
    words = vocabulary.build(['<p>', 'the', 'jury', 'said', '.'])
    onnx_graph.write_onnx(model, words, small_settings(changes_of()), path.with_name('mlp9.onnx'))
    page = (ROOT / 'docs' / 'howto' / 'export.md').read_text()
    (code,) = re.findall('```python\n(.*?)```', page, re.DOTALL)
    monkeypatch.chdir(path.parent)
    exec(code, found := {})
    ids = words.encode('the jury said .'.split())
    assert found['log_p'] == pytest.approx(model.score_lines([ids])[0].sum(), abs=1e-5)
