"""A text has the same probability on the explorer's page and in `nplm score`."""

import beginning_runs
import numpy as np
import pytest
from beginning_runs import NAMES, TEXTS

from nplm_jax.apps.explorer import view


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return beginning_runs.make_runs(tmp_path_factory.mktemp('runs'))


def by_explorer(folders, models, line):
    prediction = view.predict(models, models.tokenize(line, ''), 1)[0]
    return -prediction.bits_T.sum() * np.log10(2)


@pytest.mark.parametrize('names', NAMES, ids='+'.join)
@pytest.mark.parametrize('tokens', TEXTS)
def test_a_text_has_the_probability_of_score(runs, tokens, names):
    beginning_runs.check(runs, tokens, names, by_explorer)
