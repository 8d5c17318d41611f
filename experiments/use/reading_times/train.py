"""Trains the models of this study and of experiments/use/minimal_pairs on Brown. Finished runs are skipped.

    python -m experiments.use.reading_times.train --runs=runs/ladder           all words of the paper: about an hour
    python -m experiments.use.reading_times.train --runs=runs/ladder --words 100000 200000 400000 --seeds 1

A run's folder is NAME for a count-based model, NAME-SEED for a network, with `-100000` at the end for so many words.
--rows=lstm,mlp9 takes some rows alone. A row is `launch.py --config=configs/brown.py:ROW` with the overrides of ROWS.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments import study
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import is_neural
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import TEXT_BOUNDARY, Span
from nplm_jax.reporting import catalog
from nplm_jax.runs import experiment, loading, process
from nplm_jax.runs.command_line import load_config
from nplm_jax.training.train import Interrupted
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

ALL_WORDS = 800_000
SIZES = (100_000, 200_000, 400_000, ALL_WORDS)
SEEDS = (1, 2, 3)


class Row(NamedTuple):
    """A model.

    Attributes:
        config: Its row of configs/brown.py.
        overrides: What --config.KEY=VALUE sets.
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
    **{f'kneser_ney_{n}': Row('kneser_ney_5', {'model.n': n}) for n in (2, 3, 4, 5)},
    **{name: Row(name, {}) for name in ('modified_kneser_ney_5', 'interpolated', 'classes_500')},
}
NETWORKS = {
    'mlp9': Row('mlp9', _NCE),
    'rnn': Row('rnn', {'output.kind': 'nce', 'output.samples': 500, 'train.epochs': 4}),
    'gru': Row('one_minute,sgd', {'model.family': 'gru', **_UNSMOOTHED}),
    'lstm': Row('five_minutes,sgd', _UNSMOOTHED),
    'residual': Row('residual', _UNSMOOTHED),
    'mlp1': Row('mlp1', _NCE),
}
ROWS = {**COUNTS, **NETWORKS}


class Run(NamedTuple):
    """A model to train.

    Attributes:
        row: A key of ROWS.
        seed: The random seed; of a count-based model 1.
        words: The training words, one of SIZES.
    """

    row: str
    seed: int
    words: int

    @property
    def folder(self) -> str:
        """The name of the run's folder."""
        seed = [str(self.seed)] if self.row in NETWORKS else []
        words = [str(self.words)] if self.words != ALL_WORDS else []
        return '-'.join([self.row, *seed, *words])


def runs(rows: Sequence[str], seeds: Sequence[int], sizes: Sequence[int]) -> Iterator[Run]:
    """Yields the runs of these rows, seed by seed; a count-based model has one seed."""
    for seed in seeds:
        for row in rows:
            if row in NETWORKS or seed == seeds[0]:
                yield from (Run(row, seed if row in NETWORKS else 1, words) for words in sizes)


def make_config(run: Run) -> ConfigDict:
    """Returns the config of a run.

    A network reads n/8 of the words sqrt(8/n) times as often, and is validated as many times as on all words, so that a
    small sample is neither read too seldom nor trained for as many updates as all words.
    """
    row = ROWS[run.row]
    config = load_config(f'configs/brown.py:{row.config}')
    config = config_lib.override(config, {**row.overrides, 'seed': run.seed})
    if run.words != ALL_WORDS:
        config.name = f'{config.name}-{run.words}'
        if is_neural(experiment.load_settings(config).model.name):
            epochs = round(config.train.epochs * math.sqrt(ALL_WORDS / run.words))
            updates = run.words // config.train.batch_size * epochs
            config.train.evaluate_every = updates // config.train.epochs
            config.train.epochs = epochs
    return config


def sample_texts(data: Dataset, words: int) -> Dataset:
    """Returns every k-th text of the training words, k = ALL_WORDS / words, before the same validation and test words.

    Brown's texts have some 2,000 words and are sorted by genre, so that each genre keeps its share. The sample has
    `words` words within one or two per cent; a smaller sample is part of a larger one. The vocabulary stays.
    """
    require(words in SIZES, '--words', words, f'must be among {", ".join(map(str, SIZES))}')
    step = ALL_WORDS // words
    starts = np.flatnonzero(data.train_words == data.vocabulary.ids[TEXT_BOUNDARY])
    kept = np.concatenate(np.split(data.train_words, starts[1:])[::step])
    rest = data.tokens_T[data.train.stop :]
    tokens_T = np.concatenate([kept, rest])
    train, valid, test = (Span(s.start, s.stop) for s in data.splits.values())
    shift = len(kept) - len(train)
    moved = [Span(s.start + shift, s.stop + shift) for s in (valid, test)]
    return dataclasses.replace(data, train=Span(0, len(kept)), valid=moved[0], test=moved[1], tokens_T=tokens_T)


def train(run: Run, folder: pathlib.Path, data: Dataset, command: str) -> None:
    """Trains a run into its folder, or goes on where it was interrupted."""
    experiment.run(make_config(run), folder, command, data if run.words == ALL_WORDS else sample_texts(data, run.words))


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument('--runs', required=True, help='the folder of the runs')
    parser.add_argument('--rows', default=','.join(ROWS), help='rows between commas')
    parser.add_argument('--seeds', type=int, nargs='+', default=SEEDS, help='seeds of the networks; default: 1 2 3')
    parser.add_argument('--words', type=int, nargs='+', choices=SIZES, default=[ALL_WORDS], help='training words')


def main(flags: study.Flags) -> None:
    """Trains the runs that are not finished."""
    process.set_up_process()
    folder, rows = expand('--runs', flags.runs), flags.rows.split(',')
    require(set(rows) <= set(ROWS), '--rows', flags.rows, f'must be among {", ".join(ROWS)}')
    wanted = list(runs(rows, flags.seeds, flags.words))
    missing = [run for run in wanted if catalog.finished(folder / run.folder) is None]
    print(f'{len(wanted) - len(missing)} of {len(wanted)} runs are finished', flush=True)
    if not missing:
        return
    data = loading.load_dataset(experiment.load_settings(load_config('configs/brown.py')))
    command = shlex.join(['python', '-m', 'experiments.use.reading_times.train', *sys.argv[1:]])
    try:
        for run in missing:
            train(run, folder / run.folder, data, command)
    except Interrupted as error:
        sys.exit(str(error))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
