"""Tests networks that read each line separately (`corpus.context=line`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import loss_of, make_batch, make_network, others_nightly, refuses

from configs import sentences, text
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import KINDS, NETWORKS
from nplm_jax.data.batches import mark_lines
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.inference import scoring
from nplm_jax.models import body, recurrent
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs import evaluation, experiment, loading

FAMILIES = [*NETWORKS]
QUICK = 'residual', 'lstm', 'transformer'
V, END = 13, 5
LINES = [np.array(line) for line in ([3, 7, END], [1, 2, 9, 9, END], [END], [8, END], [4, 6, 4, 11, 12, 2, END])]
STREAM_T = np.concatenate([[END], *LINES])


def make(family, **changes):
    """Returns a network over lines, and parameters far from zero."""
    streams = {'train.batch_size': 16, 'model.bptt_length': 8, 'model.direct': False, 'model.dropout': 0.0}
    sizes = {'model.m': 4, 'model.h': 6, 'model.n': 4, 'model.averages': 2, 'model.layers': 2}
    sizes |= {'model.heads': 3, 'model.expansion': 2}
    network = make_network(V, {**streams, **sizes, 'model.family': family, **changes})
    params = jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0)))
    return network.__class__(network.body, network.output, V, END), params


@pytest.mark.parametrize('family', others_nightly(FAMILIES, (*QUICK, 'transformer_n')))
def test_the_scores_of_a_stream_are_those_of_each_line_alone(family):
    model = NeuralLanguageModel(*make(family))
    expected = np.concatenate(model.score_lines(LINES))
    np.testing.assert_allclose(model.score(STREAM_T, Span(1, len(STREAM_T))), expected, rtol=1e-5, atol=1e-5)
    alone = NeuralLanguageModel(model.network.__class__(model.network.body, model.network.output, V), model.params)
    np.testing.assert_allclose(np.concatenate(alone.score_lines(LINES)), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(alone.score(STREAM_T, Span(1, len(STREAM_T))) - expected).max() > 1e-3


@pytest.mark.parametrize('n', [2, 3])
def test_a_short_window_scores_a_stream_as_it_predicts_each_word(n):
    model = NeuralLanguageModel(*make('nplm', **{'model.n': n}))
    log_p_T = model.score(STREAM_T, Span(0, len(STREAM_T)))
    for t in range(1, len(STREAM_T)):
        assert log_p_T[t] == pytest.approx(float(model.next_word(STREAM_T[None, :t])[0, STREAM_T[t]]), abs=1e-5)


@pytest.mark.parametrize('family', others_nightly(FAMILIES, QUICK))
def test_a_decoder_begins_anew_after_the_end_of_a_line(family):
    model = NeuralLanguageModel(*make(family))
    fresh = model.predict(model.prefill(np.zeros((1, 0), int)))
    after = model.prefill(STREAM_T[None, :4])
    np.testing.assert_allclose(model.predict(after), fresh, rtol=1e-5, atol=1e-5)
    read, _ = model.read(model.prefill(np.array([[3]])), np.array([[7, END, 1]]))
    np.testing.assert_allclose(read[:, 1], fresh, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(read[:, 2], model.predict(model.prefill(np.array([[1]]))), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('family', others_nightly(filter('nplm'.__ne__, FAMILIES), ('lstm', 'transformer')))
def test_the_gradient_of_an_update_is_that_of_its_lines_alone(family):
    network, params = make(family)
    stream, key = network.__class__(network.body, network.output, V), jax.random.key(0)
    ids_SxL = np.array([[3, 7, END, 1, 2, 9, 9, END], [END, END, 8, END, 4, 6, 4, 11]])
    targets_SxT = np.roll(ids_SxL, -1, axis=1)
    cuts = [(0, 0, 2), (0, 2, 7), (0, 7, 8), (1, 0, 1), (1, 1, 3), (1, 3, 8)]
    ids, starts_SxL = mark_lines(jnp.asarray(ids_SxL), END)
    lines = make_batch(ids, targets_SxT)._replace(starts_SxL=starts_SxL)

    def together(params):
        return loss_of(network, params, lines, None, key)[0]

    def alone(params):
        total = 0.0
        for row, first, stop in cuts:
            ids = np.where(ids_SxL[row, first:stop] == END, RARE_ID, ids_SxL[row, first:stop])[None]
            batch = make_batch(ids, targets_SxT[row, first:stop])
            total += (stop - first) * loss_of(stream, params, batch, None, key)[0]
        return total / targets_SxT.size

    (loss, grads), (expected, expected_grads) = (jax.jit(jax.value_and_grad(f))(params) for f in (together, alone))
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, expected_grads)


def test_the_state_after_an_update_knows_the_last_line_alone():
    network, params = make('residual')
    ids_SxL = jnp.asarray([[3, 7, 2, 1, 2, END, 9, 4], [6, 6, 6, END, 8, 8, END, 1]])
    other = ids_SxL.at[:, :3].set(12)

    @jax.jit
    def read(ids_SxL):
        ids_SxL, starts_SxL = mark_lines(ids_SxL, END)
        return network.features(params, ids_SxL, starts_SxL=starts_SxL).state

    np.testing.assert_array_equal(read(ids_SxL), read(other))


class Forgetful(recurrent.Lstm):
    """A body over streams whose state cannot be reset."""

    def features(self, params, e_SxLxM, state, keys=None):
        """Never called."""


def test_a_body_that_cannot_begin_anew_refuses_lines(monkeypatch):
    assert all(body.reads_lines(make(family)[0].body) for family in FAMILIES)
    monkeypatch.setitem(KINDS['model.family'].paths, 'lstm', f'{__name__}:Forgetful')
    config = config_lib.override(sentences.get_config(), {'model.family': 'lstm', 'corpus.context': 'line'})
    with refuses('corpus.context'):
        experiment.load_settings(config)


@pytest.mark.nightly
@pytest.mark.parametrize('family', ['nplm', 'lstm'])
def test_a_run_over_lines_scores_a_line_as_it_does_in_the_text(family, tmp_path):
    changes = {'model.family': family, 'corpus.context': 'line', 'train.epochs': 2, 'name': 'lines'}
    streams = {'train.batch_size': 8, **({'model.bptt_length': 4} if family == 'lstm' else {})}
    config = config_lib.override(text.get_config(), {**changes, **streams})
    config.corpus.path, config.corpus.min_count, config.corpus.paragraphs = str(tmp_path / 'text'), 1, 'lines'
    (tmp_path / 'text').write_text('\n'.join(f'{a} plus {b} is {a + b}' for a in range(9) for b in range(9)) + '\n')
    results = experiment.run(config, tmp_path / 'run')
    loaded = loading.load(tmp_path / 'run')
    vocabulary, model = loaded.vocabulary, loaded.model
    data = loading.load_dataset(tmp_path / 'run')
    assert data.by_lines and model.network.line_end == vocabulary.ids['<p>']
    anew = evaluation.measure(model, data, trigram=lambda: evaluation.fit_trigram(data))
    for key in ('perplexity', 'mixture', 'words'):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), results[key], anew[key])
    test_T = np.asarray(data.tokens_T[data.test.start : data.test.stop])
    ends = np.flatnonzero(test_T == model.network.line_end) + 1
    lines = np.split(test_T, ends)[1:-1]  # complete lines
    scored = scoring.score(model, lines, LineStart.of(vocabulary))
    log_p_T = np.concatenate([line.log10_p_T for line in scored]) * scoring.LOG_10
    np.testing.assert_allclose(log_p_T, model.score(data.tokens_T, data.test)[ends[0] : ends[-1]], rtol=1e-4, atol=1e-4)
    assert results['words']['test'] == len(data.test)
    with refuses('corpus.context'):
        experiment.load_settings(config_lib.override(config, {'corpus.boundary_tokens': False}))
