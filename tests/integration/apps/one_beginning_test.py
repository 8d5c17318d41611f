"""The same words have the same probability everywhere; each app has a test of its own, as lm_eval_test.py."""

import numpy as np
import pytest

from nplm_jax.inference import generation, scoring
from nplm_jax.kenlm.model import Model
from nplm_jax.runs.command_models import load_models

CASES = [
    (line, [f'{tokens}-{name}' for name in names])
    for tokens, line in (('words', 'i like coffee'), ('pieces', 'The dog sat'))
    for names in (('ngram',), ('window',), ('lstm',), ('ngram', 'window', 'lstm'))
]


def by_generation(folders, models, line):
    """log10 P of the tokens of a line, each drawn from what generation draws it from."""
    total, tokens = 0.0, models.tokenize(line, '')
    for position, token in enumerate(tokens):
        context_N = generation.encode_prompt(tokens[:position], models.vocabulary)
        total += float(models.mixture.next_word(context_N[None])[0][models.vocabulary.ids[token]])
    return total / np.log(10)


@pytest.mark.parametrize('line,names', CASES)
def test_a_text_has_one_probability_as_scored_and_generated_and_by_kenlm(three_families, line, names):
    folders = [three_families / name for name in names]
    models = load_models(list(map(str, folders)))
    encoded = models.vocabulary.encode(models.tokenize(line, ''))
    (scored,) = scoring.score(models.mixture, [encoded], models.line_start)
    expected = pytest.approx(scored.log10_p_T.sum(), abs=1e-6)
    assert by_generation(folders, models, line) == expected
    assert Model(folders if len(folders) > 1 else folders[0]).score(line, eos=False) == expected
