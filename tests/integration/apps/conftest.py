"""Defines runs and scored texts for the tests of several apps."""

import pathlib
import warnings
from typing import Any, NamedTuple

import pytest

from configs import sentences, text
from nplm_jax.config import settings as config_lib
from nplm_jax.inference import scoring
from nplm_jax.ngram.kneser_ney import DiscountWarning
from nplm_jax.runs import experiment
from nplm_jax.runs.command_models import LoadedModels, load_models

FAMILIES = {
    'ngram': {'model.family': 'modified_kneser_ney', 'model.n': 5},
    'window': {'model.n': 3, 'model.m': 4, 'model.h': 4, 'train.epochs': 1, 'train.evaluate_every': 0},
    'lstm': {
        'model.family': 'lstm', 'model.m': 4, 'model.h': 4, 'train.batch_size': 4, 'model.bptt_length': 2,
        'train.epochs': 1, 'train.evaluate_every': 0,
    },
}  # fmt: skip


@pytest.fixture(scope='session')
def three_families(tmp_path_factory):
    """Runs of three families with words and with pieces, in folders such as words-lstm."""
    root = tmp_path_factory.mktemp('runs')
    nouns, verbs = ('dog', 'cat', 'horse', 'monkey', 'giraffe'), ('sat', 'jumped', 'slept', 'waited', 'danced')
    lines = [f'The {noun} {verb} under the {other}.\n' for noun in nouns for verb in verbs for other in nouns]
    (root / 'text.txt').write_text(''.join(lines))
    pieces = {'corpus.path': str(root / 'text.txt'), 'corpus.tokens': 'pieces', 'corpus.pieces': 300}
    for name, changes in FAMILIES.items():
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DiscountWarning)
            experiment.run(config_lib.override(sentences.get_config(), changes), root / f'words-{name}')
            experiment.run(config_lib.override(text.get_config(), {**pieces, **changes}), root / f'pieces-{name}')
    return root


CASES = [
    (line, [f'{tokens}-{name}' for name in names])
    for tokens, line in (('words', 'i like coffee'), ('pieces', 'The dog sat'))
    for names in (('ngram',), ('window',), ('lstm',), ('ngram', 'window', 'lstm'))
]


class ScoredText(NamedTuple):
    """A line, the models that score it, and log10 P of the line from `nplm score`, to 1e-6."""

    line: str
    folders: list[pathlib.Path]
    models: LoadedModels
    log10_p: Any


@pytest.fixture(params=CASES)
def scored_text(three_families, request):
    """A line of words or pieces, scored by one of three families or by their mixture."""
    line, names = request.param
    folders = [three_families / name for name in names]
    models = load_models(list(map(str, folders)))
    encoded = models.vocabulary.encode(models.tokenize(line, ''))
    (scored,) = scoring.score(models.mixture, [encoded], models.line_start)
    return ScoredText(line, folders, models, pytest.approx(scored.log10_p_T.sum(), abs=1e-6))
