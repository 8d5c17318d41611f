"""Runs over words and over pieces, and what a text has to score the same in every way of reading it."""

import pathlib
import warnings
from collections.abc import Callable, Sequence

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
TEXTS = {'words': 'i like coffee', 'pieces': 'The dog sat'}
NAMES = [('ngram',), ('window',), ('lstm',), ('ngram', 'window', 'lstm')]  # the last is a mixture


def make_runs(root: pathlib.Path) -> pathlib.Path:
    """Makes a run of each family over words, and one over pieces. Returns `root`."""
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


def check(
    runs: pathlib.Path,
    tokens: str,
    names: Sequence[str],
    read: Callable[[Sequence[pathlib.Path], LoadedModels, str], float],
) -> None:
    """Asserts that `read(folders, models, line)` returns the log10 P of the line that `nplm score` prints."""
    line, folders = TEXTS[tokens], [runs / f'{tokens}-{name}' for name in names]
    models = load_models(list(map(str, folders)))
    encoded = models.vocabulary.encode(models.tokenize(line, ''))
    (scored,) = scoring.score(models.mixture, [encoded], models.line_start)
    assert read(folders, models, line) == pytest.approx(scored.log10_p_T.sum(), abs=1e-6)
