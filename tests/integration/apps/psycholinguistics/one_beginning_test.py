"""Tests that surprisals add up to the probability that `nplm score` assigns to a text."""

import numpy as np

import nplm_jax
from nplm_jax.apps.psycholinguistics import measurement, stimuli


def test_surprisals_add_up_to_the_probability_of_a_text_as_scored(scored_text):
    line, folders, models, expected = scored_text
    loaded = {name: nplm_jax.load(folder) for name, folder in zip(models.names, folders)}
    if len(loaded) > 1:
        loaded = measurement.add_mixture(loaded, models.mixture.weights_QxM.mean(0).tolist())
    options = measurement.Options(word_probability='sum' if models.vocabulary.tokenizer.is_lossless else 'corrected')
    columns = measurement.measure(loaded, stimuli.from_text(line, 'text'), options)
    assert -sum(columns[f'surprisal_{list(loaded)[-1]}']) * np.log10(2) == expected
