"""Parts that the configs of several corpora share: rows of the paper's tables, and the paper's recipe."""

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from ml_collections import ConfigDict

from nplm_jax.config import default_config
from nplm_jax.utils.errors import BadInput, did_you_mean

Perplexities = tuple[float, float, float]  # of the paper on training (0: not printed), validation and test words

_KNESER_NEY = 'Kneser-Ney back-off'
# model.family, model.n and the name in the paper's tables; '' for a model that the paper does not have.
NGRAMS = {
    'interpolated': ('interpolated', 3, 'Del. Int.'),
    'kneser_ney_3': ('kneser_ney', 3, _KNESER_NEY),
    'kneser_ney_4': ('kneser_ney', 4, _KNESER_NEY),
    'kneser_ney_5': ('kneser_ney', 5, _KNESER_NEY),
    'modified_kneser_ney_3': ('modified_kneser_ney', 3, ''),
    'modified_kneser_ney_4': ('modified_kneser_ney', 4, ''),
    'modified_kneser_ney_5': ('modified_kneser_ney', 5, ''),
}


def set_ngram(c: ConfigDict, row: str, paper: Mapping[str, Perplexities] = {}) -> None:
    """Sets a count-based model.

    Args:
        c: The config to change.
        row: A key of NGRAMS.
        paper: The paper's perplexities by row; the row need not be among them.
    """
    c.model.family, c.model.n, name = NGRAMS[row]
    if row in paper:
        set_paper(c, name, paper[row])


def get_row(c: ConfigDict, file: str, row: str, more: Mapping[str, Callable[[ConfigDict], None]] = {}) -> ConfigDict:
    """Returns the config of a corpus: that of a row, or the config itself for no row.

    Args:
        c: The config, which is changed.
        file: The config file, for the message.
        row: A key of NGRAMS, of NETWORKS or of `more`, or ''.
        more: The rows of the corpus, and what sets each.

    Raises:
        BadInput: There is no such row.
    """
    if row:
        set_row(c, file, row, more)
        c.name = f'{c.name}-{row}'
    return c


def set_row(c: ConfigDict, file: str, row: str, more: Mapping[str, Callable[[ConfigDict], None]] = {}) -> None:
    """Sets a shared row, or one that a corpus has besides.

    Args:
        c: The config to change.
        file: The config file, for the message.
        row: A key of NGRAMS, of NETWORKS or of `more`.
        more: The rows of the corpus, and what sets each.

    Raises:
        BadInput: There is no such row.
    """
    networks = {**more, **NETWORKS}
    if row in NGRAMS:
        set_ngram(c, row)
    elif row in networks:
        networks[row](c)
    else:
        refuse_row(file, row, (*more, *NGRAMS, *NETWORKS))


def refuse_row(file: str, row: str, known: Iterable[str]) -> NoReturn:
    """Raises BadInput, which lists the rows of a config file, '' for the one without a name left out."""
    names = list(filter(None, known))
    raise BadInput(f'{file}:{row}: no such row; rows are {", ".join(names)}{did_you_mean(row, names)}')


def set_paper(c: ConfigDict, name: str, perplexities: Perplexities) -> None:
    """Sets `paper.*`: the row of the paper's table that is printed beside the result, which is of all words."""
    c.eval.train_words = 0
    c.paper.row = name
    c.paper.train, c.paper.valid, c.paper.test = perplexities


def set_table2_network(c: ConfigDict) -> None:
    """Sets the network of the paper's Table 2.

    The weight decay of 1e-5 and the 5 epochs are the paper's. The learning rate is that of Brown's networks. No dropout
    is a guess for a text of this length; it was not measured.
    """
    c.model.n, c.model.h, c.model.m, c.model.direct = 6, 60, 100, True
    c.model.dropout, c.optimizer.learning_rate = 0.0, 1.5
    c.optimizer.decay = 1e-5
    c.train.epochs = 5


def set_residual(c: ConfigDict) -> None:
    """Sets a window network with residual layers and tied features, for a few minutes of training."""
    c.model.family, c.model.n, c.model.m, c.model.h = 'residual', 6, 200, 400
    c.model.tied = c.model.variational = True
    c.model.dropout = 0.25
    c.output.kind = 'nce'
    c.train.suffix_smoothing, c.train.calibrate = 3.0, True
    c.optimizer.name, c.optimizer.learning_rate, c.optimizer.clip_norm, c.optimizer.decay = 'adam', 0.003, 1.0, 0.0
    c.train.batch_size, c.train.bptt_length, c.train.epochs = 1024, 32, 4
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_execution = 500, 100, 20


def set_tied_lstm(c: ConfigDict) -> None:
    """Sets an LSTM with tied features and variational dropout, trained by gradient descent."""
    c.model.family, c.model.m, c.model.h = 'lstm', 320, 400
    c.model.tied = c.model.variational = True
    c.model.dropout, c.model.output_dropout = 0.35, 0.45
    c.train.suffix_smoothing, c.train.calibrate = 3.0, True
    set_gradient_descent(c)
    c.train.batch_size, c.train.bptt_length, c.train.epochs = 512, 16, 12
    c.train.evaluate_every, c.train.patience = 4686, 4  # three epochs
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_execution = 500, 100, 20


def set_gradient_descent(c: ConfigDict) -> None:
    """Sets the recipe of tied_lstm: the best for an LSTM that makes twelve passes or more."""
    c.output.kind = 'nce'
    c.optimizer.name, c.optimizer.learning_rate, c.optimizer.table_rate = 'sgd', 20.0, 1.0
    c.optimizer.clip_norm, c.optimizer.decay = 0.25, 3e-6


def set_rowwise_adam(c: ConfigDict) -> None:
    """Sets the best recipe for an LSTM that makes a few passes: one second moment per row of C, Adam for the gates."""
    c.output.kind = 'sampled'
    c.optimizer.name, c.optimizer.learning_rate, c.optimizer.table_rate = 'rowwise_adam', 0.003, 2.0
    c.optimizer.clip_norm, c.optimizer.decay = 1.0, 0.0


def set_mogrifier(c: ConfigDict) -> None:
    """Sets a Mogrifier LSTM with more dropout, for an hour."""
    set_tied_lstm(c)
    c.model.family, c.model.m = 'mogrifier', 400
    c.model.dropout, c.model.output_dropout, c.model.word_dropout = 0.5, 0.6, 0.05
    c.recurrent.weight_dropout = 0.2
    c.train.epochs, c.train.evaluate_every, c.train.checkpoint_every = 26, 7810, 1000  # validated after 5 of Brown's


def set_window_lstm(c: ConfigDict) -> None:
    """Sets that LSTM over the last 32 words, from zeros for every prediction."""
    set_tied_lstm(c)
    c.model.family, c.model.n = 'window_lstm', 33
    c.model.dropout, c.model.output_dropout = 0.4, 0.5
    c.train.batch_size, c.train.bptt_length, c.train.epochs = 1024, 32, 14
    c.train.evaluate_every = 10_934  # 14 epochs of Brown; a validation reads each word 32 times


# Networks for any corpus of a million words or more. Not in the paper.
NETWORKS = {
    'residual': set_residual,
    'tied_lstm': set_tied_lstm,
    'mogrifier': set_mogrifier,
    'window_lstm': set_window_lstm,
}


def set_paper_recipe(c: ConfigDict) -> None:
    """Sets the training of the paper: one word an update, no dropout, b initialised with zeros."""
    c.optimizer.update(default_config().optimizer)  # none of the row's
    c.optimizer.name = 'paper'
    c.model.dropout, c.model.unigram_bias = 0.0, False
    c.train.batch_size = 1
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_execution = 100_000, 10_000, 1000
