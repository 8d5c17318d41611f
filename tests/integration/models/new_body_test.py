"""Tests that a new body needs only a class and a line in KINDS to support all features of a run.

`seams_test` trains the body with every output layer.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bag_of_features import BagOfFeatures
from helpers import check_resumed, make_corpus, make_network, refuses, register, small_settings
from value_projection import SCALED_SCORES, ScaledWords

from configs import text
from nplm_jax.config import settings as config_lib
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import Span
from nplm_jax.inference import generation, scoring
from nplm_jax.inference.induction import append_rows
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models.mixture import equal
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs import experiment, loading

NCE = {'output.kind': 'nce', 'output.samples': 5}


@pytest.fixture(autouse=True)
def one_line_in_the_list_of_parts(monkeypatch):
    register(monkeypatch, 'model.family', 'bag', 'bag_of_features:BagOfFeatures')


def test_an_output_layer_that_cannot_use_the_scores_of_a_body_is_refused(monkeypatch):
    register(monkeypatch, 'model.family', 'scaled', 'value_projection:ScaledWords')
    with refuses('output.kind'):
        make_network(31, {'model.family': 'scaled', 'model.direct': False})


def make_config(folder, **changes):
    (folder / 'text').write_text(' '.join(make_corpus().words))
    config = text.get_config()
    config.corpus.path, config.corpus.boundary_tokens, config.corpus.min_count = str(folder / 'text'), False, 1
    config = config_lib.override(config, {'model.family': 'bag', 'model.n': 3, 'model.m': 8})
    config.train.batch_size, config.train.epochs = 16, 2
    return config_lib.override(config, changes)


def test_a_run_goes_from_config_to_a_model_that_generates_and_scores(tmp_path):
    results = experiment.run(make_config(tmp_path), tmp_path / 'run')
    loaded = experiment.load(tmp_path / 'run')
    settings, words, model = loaded.settings, loaded.vocabulary, loaded.model
    data = loading.load_dataset(settings)
    assert results['family'] == 'bag' and results['parameters'] == len(words) * (2 * 8 + 1)
    test_score = evaluate(model, data.tokens_T, data.test)
    assert test_score.perplexity == pytest.approx(results['perplexity']['test'], rel=1e-6)
    assert 'learned' in results['mixture']
    assert experiment.run(make_config(tmp_path), tmp_path / 'run') == results  # finished runs are not trained again

    prompt = np.asarray(data.tokens_T[:4])
    ids_BxT = generation.sample(model, prompt, words=5, samples=3)
    assert ids_BxT.shape == (3, 5) and (ids_BxT > 0).all() and (ids_BxT < len(words)).all()
    lines = [np.asarray(data.tokens_T[a:b]) for a, b in ((0, 6), (6, 6), (9, 30))]
    for line, scores in zip(lines, scoring.score(model, lines, LineStart((5,))), strict=True):
        log_p = model.score(jnp.asarray([5, *line]), Span(1, 1 + len(line))) if len(line) else np.zeros(0)
        np.testing.assert_allclose(scores.log10_p_T * scoring.LOG_10, log_p, atol=1e-5)
    mixed = equal([model, model]).next_word(prompt[None])
    np.testing.assert_allclose(mixed, model.next_word(prompt[None]), atol=1e-6)


def test_a_body_with_a_parameter_of_the_output_layers_name_is_one_line():
    class WithBias(BagOfFeatures):
        def init(self, key, vocabulary_size):
            return {**super().init(key, vocabulary_size), 'b_V': jnp.zeros(self.m)}

    network = Network(WithBias(4, 4), make_network(9).output, 9)
    with refuses('WithBias.init'):
        network.init(jax.random.key(0))


def test_new_words_have_rows_of_the_tables_that_a_body_declares():
    network = Network(ScaledWords(4, 4), dataclasses.replace(make_network(9, NCE).output, scorer=SCALED_SCORES), 9)
    params = network.init(jax.random.key(0))
    assert set(network.tables.of_words) == {'C_VxM', 'U_VxM', 'b_V', 'scale'}
    grown, longer = append_rows(network, params, {name: params[name][:2] for name in network.tables.of_words})
    assert {name for name in params if np.shape(longer[name]) != np.shape(params[name])} == set(network.tables.of_words)
    tokens_T = jnp.arange(20) % 11
    log_p_BxV = NeuralLanguageModel(grown, longer).next_word(tokens_T[None, :3])
    np.testing.assert_allclose(np.exp(log_p_BxV).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(log_p_BxV[0, 9:], log_p_BxV[0, :2], rtol=1e-5)


def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    check_resumed(small_settings({'model.family': 'bag', 'optimizer.name': 'adam'}), tmp_path)
