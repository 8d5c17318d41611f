"""The models of the studies in experiments/use: presets of Brown with overrides.

`python -m experiments.runs reading_times` trains them. A run's folder is ladder/NAME for a count-based model
and ladder/NAME-SEED for a network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

SEEDS = (1, 2, 3)  # of the networks


class Row(NamedTuple):
    """A model.

    Attributes:
        config: The config file and the preset.
        overrides: The keys set by --config.KEY=VALUE.
    """

    config: str
    overrides: Mapping[str, Any]


_NCE = {
    'output.kind': 'nce',
    'output.samples': 500,
    'optimizer.learning_rate': 6.0,
    'train.batch_size': 256,
    'eval.train_words': 20_000,
}
_UNSMOOTHED = {'train.suffix_smoothing': 0.0, 'train.calibrate': False}  # as in the committed results
COUNTS = {
    **{f'kneser_ney_{n}': Row('configs/brown.py:kneser_ney_5', {'model.n': n}) for n in (2, 3, 4, 5)},
    **{name: Row(f'configs/brown.py:{name}', {}) for name in ('modified_kneser_ney_5', 'interpolated', 'classes_500')},
}
NETWORKS = {
    'mlp9': Row('configs/brown.py:mlp9', _NCE),
    'rnn': Row('configs/brown.py:rnn', {'output.kind': 'nce', 'output.samples': 500, 'train.epochs': 4}),
    'gru': Row('experiments/tied_lstm.py:gru', _UNSMOOTHED),
    'lstm': Row('experiments/tied_lstm.py:five_minutes', _UNSMOOTHED),
    'residual': Row('configs/brown.py:residual', _UNSMOOTHED),
    'mlp1': Row('configs/brown.py:mlp1', _NCE),
}
ROWS = {**COUNTS, **NETWORKS}


class Run(NamedTuple):
    """A model to train.

    Attributes:
        row: A key of ROWS.
        seed: The random seed; 1 for a count-based model.
    """

    row: str
    seed: int

    @property
    def folder(self) -> str:
        """The name of the run's folder."""
        return f'{self.row}-{self.seed}' if self.row in NETWORKS else self.row


def runs() -> Iterator[Run]:
    """Yields all runs, ordered by seed; a count-based model has one seed."""
    for seed in SEEDS:
        yield from (Run(row, seed) for row in ROWS if row in NETWORKS or seed == SEEDS[0])
