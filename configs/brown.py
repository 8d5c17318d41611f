"""The Brown corpus, the paper's smaller one (section 4): 1,181,041 words there, 1,183,224 here.

    python launch.py --config=configs/brown.py            the best network for about ten minutes on 2 CPU cores
    python launch.py --config=configs/brown.py:mlp9       a network of the paper's Table 1: mlp1, mlp3, 5, 7, 9
    python launch.py --config=configs/brown.py:mlp9,cased the same on words as they are printed
    python launch.py --config=configs/brown.py:mlp9,paper the same by the paper's recipe, a step a word
    python launch.py --config=configs/brown.py:mlp9 --config.model.h=50 --config.seed=2

Expected results and minutes: the table in experiments/table1/README.md.
"""

from ml_collections import ConfigDict

from configs import default
from nplm_jax.errors import BadInput

# Table 1 of the paper: n, h, m, direct connections; then its train, valid and test perplexity.
ROWS = {
    'mlp1': ((5, 50, 60, True), (182.0, 284.0, 268.0)),
    'mlp3': ((5, 0, 60, True), (201.0, 327.0, 310.0)),
    'mlp5': ((5, 50, 30, True), (209.0, 296.0, 279.0)),
    'mlp7': ((3, 50, 30, True), (210.0, 309.0, 293.0)),
    'mlp9': ((5, 100, 30, False), (175.0, 280.0, 276.0)),
}


def get_config(row: str = '') -> ConfigDict:
    """The config of a row of Table 1, of the best network when none is given.

    After the row may stand `,cased` (words as printed) and `,paper` (the paper's recipe to the letter).
    """
    c = default.get_config()
    name, *presets = row.split(',')
    c.name = '-'.join(('brown', *filter(None, row.split(','))))
    c.corpus.name = 'brown'
    c.corpus.min_count = 4
    c.corpus.max_vocabulary = 16_383
    c.corpus.train = 800_000.0
    c.corpus.valid = 200_000.0
    if name in ROWS:
        (c.model.n, c.model.h, c.model.m, c.model.direct), perplexities = ROWS[name]
        c.model.dropout, c.optimizer.learning_rate = (0.25, 1.5) if c.model.direct else (0.1, 2.0)
        c.train.epochs = 6
        c.paper.row = name.upper()
        c.paper.train, c.paper.valid, c.paper.test = perplexities
    elif name:
        raise BadInput(f'configs/brown.py:{row}: no such row; rows are {", ".join(ROWS)}')
    for preset in presets:
        if preset not in _PRESETS:
            raise BadInput(f'configs/brown.py:{row}: after the row may stand {" and ".join(_PRESETS)}')
        _PRESETS[preset](c)
    return c


def _cased(c: ConfigDict) -> None:
    c.corpus.lowercase = c.corpus.split_possessive = c.corpus.marks = False
    c.corpus.max_vocabulary = 0


def _paper(c: ConfigDict) -> None:
    c.optimizer.name = 'paper'
    c.model.dropout, c.model.unigram_bias = 0.0, False
    c.train.batch_size, c.train.epochs = 1, 20
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_dispatch = 100_000, 10_000, 1000


_PRESETS = {'cased': _cased, 'paper': _paper}
