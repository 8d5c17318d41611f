"""Compares the data of the explorer's page with direct evaluation of the models."""

import dataclasses

import jax
import numpy as np
import pytest
from helpers import others_nightly

from nplm_jax.apps.explorer import view
from nplm_jax.config.registry import NETWORKS
from nplm_jax.runs import command_models as loaded_models
from tests.helpers import make_model

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

SIZES = {  # of any network
    **{'model.n': 4, 'model.m': 4, 'model.h': 6, 'model.layers': 2, 'model.direct': False, 'model.averages': 2},
    **{'model.heads': 2, 'train.batch_size': 8, 'model.bptt_length': 4},
}


@pytest.fixture(scope='module')
def models(folders):
    return loaded_models.load_models([str(folders / 'network'), str(folders / 'counts')])


@pytest.mark.nightly
@pytest.mark.parametrize('family', NETWORKS)
def test_texts_of_any_length_have_the_scores_that_the_models_give_them(models, family):
    network = make_model(len(models.vocabulary), {**SIZES, 'model.family': family})
    network.params = network.placed_params = jax.tree.map(
        lambda x: 2 * x + 0.1, network.params
    )  # far from zero, but not chaotic
    models = dataclasses.replace(models, models=[network, models.models[1]])
    for words in [[], ['i'], ['i', 'zzz', 'milk'], ['i', 'like', 'dog'] * 25, ['dog', 'hate'] * 200]:
        scores, line = view.score(models, words), models.encode_prompt(words)
        assert scores.words == words and scores.log_p_MxT.shape == (2, len(words))
        for model, next_V, log_p_T in zip(models.models, scores.next_MxV, scores.log_p_MxT):
            np.testing.assert_allclose(next_V, model.next_word(line[None])[0], rtol=0, atol=1e-4)
            expected_T = model.score_lines([line])[0][len(line) - len(words) :]
            np.testing.assert_allclose(log_p_T, expected_T, rtol=0, atol=1e-4)


@pytest.mark.parametrize('family', others_nightly(['nplm', 'residual', 'lstm', 'transformer_n'], ('nplm',)))
def test_after_the_warm_up_no_texts_compile_anything(models, family, caplog):
    network = make_model(len(models.vocabulary), {**SIZES, 'model.family': family, 'model.n': 20})
    models = dataclasses.replace(models, models=[network, models.models[1]])
    view.warm_up(models)
    with jax.log_compiles():
        for words in ([], ['i'], ['i', 'like'], ['i', 'like', 'dog'] * 7, ['i'] * 300):
            view.score(models, words)
    assert not [record.message for record in caplog.records if 'ompil' in record.message]
