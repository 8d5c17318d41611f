"""Tests that the explorer and `nplm score` assign the same probability to a text."""

import numpy as np

from nplm_jax.apps.explorer import view


def test_the_explorer_shows_the_probability_of_a_text_as_scored(scored_text):
    line, _, models, expected = scored_text
    prediction = view.summarize(models, view.score(models, models.tokenize(line, '')), 1)[0]
    assert -prediction.bits_T.sum() * np.log10(2) == expected
