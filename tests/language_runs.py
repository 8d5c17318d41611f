"""Creates runs with pieces, characters or bytes as tokens, on texts in several languages."""

import pathlib
from collections.abc import Iterable

from texts import CHINESE, GERMAN, repeated

from configs import text as text_config
from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment

RUNS = {
    'german': (GERMAN, 'pieces'),
    'chinese': (CHINESE, 'pieces'),
    'characters': (CHINESE, 'characters'),
    'bytes': (CHINESE, 'bytes'),
}
KNESER_NEY = {'model.family': 'modified_kneser_ney', 'model.n': 4}
NETWORK = {'model.n': 4, 'model.m': 8, 'model.h': 12, 'train.epochs': 2, 'train.batch_size': 32}
HOSTILE = 'שלום עולם\te\u0301 👩\u200d👩\u200d👧 \u202e ﷽\x1b[0m'


def make_runs(root: pathlib.Path, names: Iterable[str]) -> pathlib.Path:
    """Creates a Kneser-Ney model of each named text; `network` is a network of the German pieces. Returns `root`."""
    for name in names:
        of = 'german' if name == 'network' else name
        text, kind = RUNS[of]
        (root / f'{of}.txt').write_text(repeated(text), encoding='utf-8')
        changes = {'corpus.path': str(root / f'{of}.txt'), 'corpus.tokens': kind}
        changes |= {'corpus.pieces': 400} if kind == 'pieces' else {}
        changes |= NETWORK if name == 'network' else KNESER_NEY
        experiment.run(config_lib.override(text_config.get_config(), changes), root / name)
    return root
