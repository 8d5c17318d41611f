"""Tests that every command assigns the same probability to the same words; apps have separate tests."""

import numpy as np

from nplm_jax.inference import generation
from nplm_jax.kenlm.model import Model


def by_generation(models, line):
    """Returns log10 P of the tokens of a line, under the distributions from which generation samples."""
    total, tokens = 0.0, models.tokenize(line, '')
    for position, token in enumerate(tokens):
        context_N = generation.encode_prompt(tokens[:position], models.vocabulary)
        total += float(models.mixture.next_word(context_N[None])[0][models.vocabulary.ids[token]])
    return total / np.log(10)


def test_a_text_has_one_probability_as_scored_and_generated_and_by_kenlm(scored_text):
    line, folders, models, expected = scored_text
    assert by_generation(models, line) == expected
    assert Model(folders if len(folders) > 1 else folders[0]).score(line, eos=False) == expected
