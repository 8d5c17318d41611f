"""What the corpora's configs share: the count-based rows of the paper's tables, and its own recipe."""

from collections.abc import Mapping

from ml_collections import ConfigDict

Perplexities = tuple[float, float, float]  # the paper's to train (0: none given), validate and test

_KNESER_NEY = 'Kneser-Ney back-off'
# Family, n and the name in the paper's tables, '' for a model that came after it.
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
    """Makes the config that of a row of NGRAMS, beside the figures that `paper` has for it."""
    c.model.family, c.model.n, name = NGRAMS[row]
    if row in paper:
        set_paper(c, name, paper[row])


def set_paper(c: ConfigDict, name: str, perplexities: Perplexities) -> None:
    """Sets `paper.*`: the row that the result is shown beside."""
    c.paper.row = name
    c.paper.train, c.paper.valid, c.paper.test = perplexities


def set_table2_network(c: ConfigDict) -> None:
    """The one network of the paper's Table 2, trained by the recipe of Brown's networks but for what follows.

    Decay 1e-5 and 5 passes are the paper's; that a text this long needs no dropout is a guess that was not measured.
    """
    c.model.n, c.model.h, c.model.m, c.model.direct = 6, 60, 100, True
    c.model.dropout, c.optimizer.learning_rate = 0.0, 1.5
    c.optimizer.decay = c.optimizer.paper.decay = 1e-5
    c.train.epochs = 5


def set_paper_recipe(c: ConfigDict) -> None:
    """The paper's training to the letter: a step a word, no dropout."""
    c.optimizer.name = 'paper'
    c.model.dropout, c.model.unigram_bias = 0.0, False
    c.train.batch_size = 1
    c.train.checkpoint_every, c.train.log_every, c.train.steps_per_execution = 100_000, 10_000, 1000
