"""Tests count-based models in runs."""

import numpy as np
import pytest
from helpers import ESTIMATED, fitted

from configs import sentences
from nplm_jax.config.settings import from_config
from nplm_jax.runs import estimation, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


def prepare(family):
    settings = from_config(fitted(sentences.get_config(), {'model.family': family, 'model.n': 3, 'model.classes': 3}))
    return settings, loading.load_dataset(settings)


@pytest.mark.parametrize('family', ESTIMATED)
def test_every_family_is_estimated(family, tmp_path):
    settings, data = prepare(family)
    model = estimation.estimate(settings, data, tmp_path)
    assert model.n == 3
    log_p_BxV = model.next_word(np.arange(len(data.vocabulary))[:, None])
    np.testing.assert_allclose(np.exp(log_p_BxV.astype(np.float64)).sum(1), 1, atol=1e-6)
