"""The explorer gives a text the probability that `nplm score` gives it."""

import numpy as np
import pytest

from nplm_jax.apps.explorer import view
from nplm_jax.inference import scoring
from nplm_jax.runs.command_models import load_models

CASES = [
    (line, [f'{tokens}-{name}' for name in names])
    for tokens, line in (('words', 'i like coffee'), ('pieces', 'The dog sat'))
    for names in (('ngram',), ('window',), ('lstm',), ('ngram', 'window', 'lstm'))
]


@pytest.mark.parametrize('line,names', CASES)
def test_the_explorer_shows_the_probability_of_a_text_as_scored(three_families, line, names):
    folders = [three_families / name for name in names]
    models = load_models(list(map(str, folders)))
    encoded = models.vocabulary.encode(models.tokenize(line, ''))
    (scored,) = scoring.score(models.mixture, [encoded], models.line_start)
    expected = pytest.approx(scored.log10_p_T.sum(), abs=1e-6)
    prediction = view.predict(models, models.tokenize(line, ''), 1)[0]
    assert -prediction.bits_T.sum() * np.log10(2) == expected
