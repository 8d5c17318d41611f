"""A text has the same probability in `nplm surprisal` and in `nplm score`."""

import beginning_runs
import numpy as np
import pytest
from beginning_runs import NAMES, TEXTS

import nplm_jax
from nplm_jax.apps.psycholinguistics import measurement, stimuli


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return beginning_runs.make_runs(tmp_path_factory.mktemp('runs'))


def by_surprisal(folders, models, line):
    loaded = {name: nplm_jax.load(folder) for name, folder in zip(models.names, folders)}
    if len(loaded) > 1:
        loaded = measurement.add_mixture(loaded, models.mixture.weights_QxM.mean(0).tolist())
    options = measurement.Options(word_probability='sum' if models.vocabulary.tokenizer.is_lossless else 'corrected')
    columns = measurement.measure(loaded, stimuli.from_text(line, 'text'), options)
    return -sum(columns[f'surprisal_{list(loaded)[-1]}']) * np.log10(2)


@pytest.mark.parametrize('names', NAMES, ids='+'.join)
@pytest.mark.parametrize('tokens', TEXTS)
def test_a_text_has_the_probability_of_score(runs, tokens, names):
    beginning_runs.check(runs, tokens, names, by_surprisal)
