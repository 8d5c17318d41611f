"""Parts that the configs of several corpora share: rows of the paper's tables, and the paper's recipe."""

from collections.abc import Mapping

from ml_collections import ConfigDict

from nplm_jax.utils.errors import BadInput

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


def set_ngram(c: ConfigDict, row: str, paper: Mapping[str, Perplexities]) -> None:
    """Sets a count-based model.

    Args:
        c: The config to change.
        row: A key of NGRAMS.
        paper: The paper's perplexities by row; the row need not be among them.
    """
    c.model.family, c.model.n, name = NGRAMS[row]
    if row in paper:
        set_paper(c, name, paper[row])


def get_row(c: ConfigDict, file: str, row: str) -> ConfigDict:
    """Returns the config of a corpus without rows of its own: a count-based model, or the config itself for no row.

    Args:
        c: The config, which is changed.
        file: The config file, for the message.
        row: A key of NGRAMS, or ''.

    Raises:
        BadInput: There is no such row.
    """
    if row:
        if row not in NGRAMS:
            raise BadInput(f'{file}:{row}: no such row; rows are {", ".join(NGRAMS)}')
        set_ngram(c, row, {})
        c.name = f'{c.name}-{row}'
    return c


def set_paper(c: ConfigDict, name: str, perplexities: Perplexities) -> None:
    """Sets `paper.*`: the row of the paper's table that is printed beside the result."""
    c.paper.row = name
    c.paper.train, c.paper.valid, c.paper.test = perplexities


def set_table2_network(c: ConfigDict) -> None:
    """Sets the network of the paper's Table 2.

    The weight decay of 1e-5 and the 5 epochs are the paper's. The learning rate is that of Brown's networks. No dropout
    is a guess for a text of this length; it was not measured.
    """
    c.model.n, c.model.h, c.model.m, c.model.direct = 6, 60, 100, True
    c.model.dropout, c.optimizer.learning_rate = 0.0, 1.5
    c.optimizer.decay = c.optimizer.paper.decay = 1e-5
    c.train.epochs = 5


def set_paper_recipe(c: ConfigDict) -> None:
    """Sets the training of the paper: one word an update, no dropout, b initialised with zeros."""
    c.optimizer.name = 'paper'
    c.model.dropout, c.model.unigram_bias = 0.0, False
    c.train.batch_size = 1
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_execution = 100_000, 10_000, 1000
