"""A text has one probability: that of `nplm score`, of generation and of the interface of KenLM."""

import beginning_runs
import numpy as np
import pytest
from beginning_runs import NAMES, TEXTS

from nplm_jax.inference import generation
from nplm_jax.kenlm.model import Model


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return beginning_runs.make_runs(tmp_path_factory.mktemp('runs'))


def by_kenlm(folders, models, line):
    return Model(folders if len(folders) > 1 else folders[0]).score(line, eos=False)


def by_generation(folders, models, line):
    """log10 P of the tokens of a line, each drawn from what generation draws it from."""
    total, tokens = 0.0, models.tokenize(line, '')
    for position, token in enumerate(tokens):
        context_N = generation.encode_prompt(tokens[:position], models.vocabulary)
        total += float(models.mixture.next_word(context_N[None])[0][models.vocabulary.ids[token]])
    return total / np.log(10)


@pytest.mark.parametrize('read', [by_kenlm, by_generation])
@pytest.mark.parametrize('names', NAMES, ids='+'.join)
@pytest.mark.parametrize('tokens', TEXTS)
def test_a_text_has_the_probability_of_score(runs, tokens, names, read):
    beginning_runs.check(runs, tokens, names, read)
