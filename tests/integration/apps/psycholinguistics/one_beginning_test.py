"""Surprisals add up to the probability that `nplm score` gives a text."""

import numpy as np
import pytest

import nplm_jax
from nplm_jax.apps.psycholinguistics import measurement, stimuli
from nplm_jax.inference import scoring
from nplm_jax.runs.command_models import load_models

CASES = [
    (line, [f'{tokens}-{name}' for name in names])
    for tokens, line in (('words', 'i like coffee'), ('pieces', 'The dog sat'))
    for names in (('ngram',), ('window',), ('lstm',), ('ngram', 'window', 'lstm'))
]


@pytest.mark.parametrize('line,names', CASES)
def test_surprisals_add_up_to_the_probability_of_a_text_as_scored(three_families, line, names):
    folders = [three_families / name for name in names]
    models = load_models(list(map(str, folders)))
    encoded = models.vocabulary.encode(models.tokenize(line, ''))
    (scored,) = scoring.score(models.mixture, [encoded], models.line_start)
    expected = pytest.approx(scored.log10_p_T.sum(), abs=1e-6)
    loaded = {name: nplm_jax.load(folder) for name, folder in zip(models.names, folders)}
    if len(loaded) > 1:
        loaded = measurement.add_mixture(loaded, models.mixture.weights_QxM.mean(0).tolist())
    options = measurement.Options(word_probability='sum' if models.vocabulary.tokenizer.is_lossless else 'corrected')
    columns = measurement.measure(loaded, stimuli.from_text(line, 'text'), options)
    assert -sum(columns[f'surprisal_{list(loaded)[-1]}']) * np.log10(2) == expected
