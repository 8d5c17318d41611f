"""The count-based models as parts of a run."""

import numpy as np
import pytest

from configs import sentences
from nplm_jax.config import parts
from nplm_jax.config.registry import NGRAM_MODELS, PARTS
from nplm_jax.config.settings import from_config
from nplm_jax.runs import estimation, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


def prepare(family):
    config = sentences.get_config()
    config.update_from_flattened_dict({'model.family': family, 'model.n': 3, 'ngram.classes': 3})
    config.update_from_flattened_dict(parts.resets(config, PARTS))
    settings = from_config(config)
    return settings, loading.load_dataset(settings)


@pytest.mark.parametrize('family', NGRAM_MODELS)
def test_every_family_is_estimated(family, tmp_path):
    settings, data = prepare(family)
    model = estimation.estimate(settings, data, tmp_path)
    assert model.n == 3
    log_p_BxV = model.next_word(np.arange(len(data.vocabulary))[:, None])
    np.testing.assert_allclose(np.exp(log_p_BxV.astype(np.float64)).sum(1), 1, atol=1e-6)
