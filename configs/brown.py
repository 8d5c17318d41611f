"""The Brown corpus, the paper's smaller one (section 4): 1,181,041 words there, 1,183,224 here.

    python launch.py --config=configs/brown.py            the paper's network, for at most four minutes
    python launch.py --config=configs/brown.py --sweep    16 points: n, m, h, with and without direct connections
    python launch.py --config=configs/brown.py:quick      a small network of the paper's kind, in less than a minute
    python launch.py --config=configs/brown.py:large      the paper's network with the exact loss, in about ten minutes
    python launch.py --config=configs/brown.py:mlp9       a network of the paper's Table 1: mlp1, mlp3, 5, 7, 9
    python launch.py --config=configs/brown.py:kneser_ney_5   a count-based model: interpolated, kneser_ney_3 to _5,
                                 modified_kneser_ney_3 to _5, classes_150 to _2000, classes_500_4, classes_500_5
    python launch.py --config=configs/brown.py:lstm       a recurrent network: rnn, gru, lstm
    python launch.py --config=configs/brown.py:residual   a window network with residual layers, in four minutes
    python launch.py --config=configs/brown.py:tied_lstm  a regularised lstm with C as its output matrix, in 12 passes
    python launch.py --config=configs/brown.py:one_minute the best network for so much time: one_minute, five_minutes,
                                 ten_minutes, one_hour
    python launch.py --config=configs/brown.py:mogrifier  the best network for an hour
    python launch.py --config=configs/brown.py:mlp9,cased mlp9 on words in upper and lower case
    python launch.py --config=configs/brown.py:mlp9,paper mlp9 trained by the paper's recipe, one word an update
    python launch.py --config=configs/brown.py:one_minute,sgd   trained by gradient descent and NCE, also five_minutes
    python launch.py --config=configs/brown.py:mlp9 --config.model.h=50 --config.seed=2

Expected results and minutes: experiments/table1/README.md, and experiments/recurrent/README.md for recurrent networks.
"""

from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from configs import default, rows
from nplm_jax.utils.errors import BadInput

VOCABULARY = 16_383  # the paper's |V|
# Table 1 of the paper: n, h, m, direct connections; then its train, valid and test perplexity.
NETWORKS = {
    'mlp1': ((5, 50, 60, True), (182.0, 284.0, 268.0)),
    'mlp3': ((5, 0, 60, True), (201.0, 327.0, 310.0)),
    'mlp5': ((5, 50, 30, True), (209.0, 296.0, 279.0)),
    'mlp7': ((3, 50, 30, True), (210.0, 309.0, 293.0)),
    'mlp9': ((5, 100, 30, False), (175.0, 280.0, 276.0)),
}
MIXTURES = {f'mlp{int(name[3:]) + 1}': name for name in NETWORKS}  # the paper's mixed rows, and what they mix
# Count-based models: the paper's train (0: not printed), valid and test perplexity.
PAPER = {
    'interpolated': (31.0, 352.0, 336.0),
    'kneser_ney_3': (0.0, 334.0, 323.0),
    'kneser_ney_4': (0.0, 332.0, 321.0),
    'kneser_ney_5': (0.0, 332.0, 321.0),
}
# Class-based models: n, the number of classes; the paper's train, valid and test perplexity.
CLASSES = {
    'classes_150': (3, 150, (0.0, 348.0, 334.0)),
    'classes_200': (3, 200, (0.0, 354.0, 340.0)),
    'classes_500': (3, 500, (0.0, 326.0, 312.0)),
    'classes_1000': (3, 1000, (0.0, 335.0, 319.0)),
    'classes_2000': (3, 2000, (0.0, 343.0, 326.0)),
    'classes_500_4': (4, 500, (0.0, 327.0, 312.0)),
    'classes_500_5': (5, 500, (0.0, 327.0, 312.0)),
}
# Not in the paper: m, h, epochs and learning rate.
RECURRENT = {'rnn': (100, 200, 6, 5.0), 'gru': (100, 200, 6, 20.0), 'lstm': (128, 256, 10, 20.0)}
# A tied LSTM for so much time on 2 cores: m = h, dropout, output dropout, word dropout, samples, epochs.
MINUTES = {
    'one_minute': (200, 0.0, 0.0, 0.0, 500, 2),
    'five_minutes': (320, 0.3, 0.45, 0.0, 1000, 4),
    'ten_minutes': (320, 0.4, 0.5, 0.0, 1000, 8),
    'one_hour': (400, 0.45, 0.55, 0.05, 1000, 24),
}
ROWS = (*NETWORKS, *rows.NGRAMS, *CLASSES)


def get_config(row: str = '') -> ConfigDict:
    """Returns the config of a row; the paper's network at its best after four minutes for an empty row.

    `,cased` after the row keeps upper and lower case, `,paper` trains by the paper's recipe, and `,sgd` trains a row of
    MINUTES by gradient descent.
    """
    c = default.get_config()
    name, *presets = row.split(',')
    c.name = '-'.join(('brown', *filter(None, row.split(','))))
    c.corpus.name = 'brown'
    c.corpus.min_count = 4
    c.corpus.max_vocabulary = VOCABULARY
    c.corpus.train = 800_000.0
    c.corpus.valid = 200_000.0
    if name in rows.NGRAMS:
        rows.set_ngram(c, name, PAPER)
    elif name in CLASSES:
        c.model.family = 'classes'
        c.model.n, c.ngram.classes, perplexities = CLASSES[name]
        rows.set_paper(c, 'class-based back-off', perplexities)
    elif name in NETWORKS:
        set_network(c, name)
        direct = 'direct' if c.model.direct else 'no direct'
        shape = f'n={c.model.n} h={c.model.h} m={c.model.m}, {direct}'  # the paper's, also where a run overrides a key
        rows.set_paper(c, f'{name.upper()}: {shape}', NETWORKS[name][1])
    elif name in RECURRENT:
        _set_recurrent(c, name)
    elif name in MIXTURES:
        mixed = MIXTURES[name]
        raise BadInput(
            f"configs/brown.py:{row}: {name.upper()} is the paper's {mixed.upper()} mixed with the trigram, half and "
            f'half; run {mixed}, whose table has it as "mixed with the trigram, fixed"'
        )
    elif name in OTHERS:
        OTHERS[name](c)
    elif name in MINUTES:
        set_minutes(c, name)
    else:
        rows.refuse_row('configs/brown.py', row, (*ROWS, *RECURRENT, *OTHERS, *MINUTES))
    if 'sgd' in presets and name not in MINUTES:
        raise BadInput(f'configs/brown.py:{row}: sgd may stand after {", ".join(MINUTES)}')
    for preset in presets:
        if preset not in _PRESETS:
            raise BadInput(f'configs/brown.py:{row}: after the row may stand {", ".join(_PRESETS)}')
        _PRESETS[preset](c)
    return c


def set_network(c: ConfigDict, row: str) -> None:
    """Sets a network of NETWORKS."""
    c.model.n, c.model.h, c.model.m, c.model.direct = NETWORKS[row][0]
    c.model.dropout, c.optimizer.learning_rate = (0.25, 1.5) if c.model.direct else (0.1, 2.0)
    c.train.epochs = 6


def _set_recurrent(c: ConfigDict, family: str) -> None:
    c.model.family = family
    c.model.m, c.model.h, c.train.epochs, c.optimizer.learning_rate = RECURRENT[family]
    c.model.dropout = 0.3
    c.optimizer.clip_norm, c.optimizer.decay = 0.25, 3e-6
    c.output.precision = 'bfloat16'
    c.train.batch_size, c.train.bptt_length = 512, 16
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_execution = 500, 100, 20


def set_minutes(c: ConfigDict, row: str) -> None:
    """Sets a row of MINUTES."""
    rows.set_tied_lstm(c)
    c.model.m, c.model.dropout, c.model.output_dropout, c.model.word_dropout, c.output.samples, c.train.epochs = (
        MINUTES[row]
    )
    c.model.h, c.train.evaluate_every = c.model.m, 0
    if row == 'one_hour':
        return
    rows.set_rowwise_adam(c)
    if row == 'ten_minutes':
        c.model.family, c.mogrifier.rounds, c.optimizer.decay = 'mogrifier', 2, 0.1


def _set_default(c: ConfigDict) -> None:
    """Sets the paper's network, trained for at most four minutes on 2 cores without AMX instructions.

    Dropout, the optimizer, the sampled loss and the steps after training are not the paper's. Weight decay is; C and U,
    which are not tied to each other, overfit without it.
    """
    c.model.n, c.model.m, c.model.h = 13, 80, 200
    c.output.kind = 'sampled'
    c.optimizer.name, c.optimizer.learning_rate, c.optimizer.decay = 'rowwise_adam', 0.003, 0.12
    c.optimizer.row_adaptivity = 0.5
    c.train.batch_size, c.train.epochs = 512, 5
    c.train.suffix_smoothing, c.train.calibrate = 3.0, True
    c.train.evaluate_every = 7810  # five epochs: a validation takes as long as half an epoch
    c.train.checkpoint_every, c.train.log_every = 2000, 100


def _set_quick(c: ConfigDict) -> None:
    """Sets a small window of the paper's kind: below 300 on validation, where the trigram has 344."""
    c.model.n, c.model.m, c.model.h, c.model.dropout = 5, 50, 50, 0.1
    c.output.kind, c.output.samples = 'nce', 500
    c.optimizer.learning_rate = 6.0
    c.train.batch_size, c.train.epochs = 256, 3
    c.train.evaluate_every, c.train.log_every = 5000, 100  # of 9,375 updates; a validation costs a fifth of an epoch
    c.train.checkpoint_every = 5000


def _cased(c: ConfigDict) -> None:
    c.corpus.lowercase = c.corpus.split_possessive = c.corpus.boundary_tokens = False
    c.corpus.max_vocabulary = 0


def _paper(c: ConfigDict) -> None:
    rows.set_paper_recipe(c)
    c.train.epochs = 20


# Rows that are not in the paper's tables. The empty row is the default; `large` is the network of the defaults.
OTHERS = {'': _set_default, 'quick': _set_quick, 'large': lambda c: None, **rows.NETWORKS}
_PRESETS = {'cased': _cased, 'paper': _paper, 'sgd': rows.set_gradient_descent}


def sweep() -> Iterator[dict[str, Any]]:
    """Yields 16 points around the paper's networks: m, h, n and direct connections."""
    for n in (3, 5):
        for m in (30, 60):
            for h in (50, 100):
                for direct in (False, True):
                    yield {'model.n': n, 'model.m': m, 'model.h': h, 'model.direct': direct}
