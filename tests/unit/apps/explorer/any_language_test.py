"""Tests the explorer with pieces, characters or bytes as tokens, for texts in any language."""

import pytest
from language_runs import RUNS, make_runs

from nplm_jax.apps.explorer import view
from nplm_jax.data.tokenizers import cutting
from nplm_jax.runs import command_models as loaded_models

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp('runs'), RUNS)


@pytest.mark.parametrize('name', RUNS)
def test_the_explorer_appends_and_drops_tokens(runs, name):
    models = loaded_models.load_models([str(runs / name)])
    text = ''
    for _ in range(8):
        tokens = models.tokenize(text, '')
        (prediction,) = view.summarize(models, view.score(models, tokens), 3)
        longer = view.append(models, tokens, text, prediction.next_words[0][0])
        assert longer.startswith(text) and len(longer) > len(text) and '\ufffd' not in longer
        text = longer
    assert len(prediction.bits_T) == len(tokens)
    while text:
        shorter = cutting.drop_last(models.vocabulary.tokenizer, text)
        assert text.startswith(shorter) and shorter != text
        text = shorter
    assert all(view.examples(models))
