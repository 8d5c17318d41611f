"""Runs that tests of several apps read."""

import warnings

import pytest

from configs import sentences, text
from nplm_jax.config import settings as config_lib
from nplm_jax.ngram.kneser_ney import DiscountWarning
from nplm_jax.runs import experiment

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
    """Runs of three families over words and over pieces, in folders such as words-lstm."""
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
