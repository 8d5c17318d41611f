"""The runs that the studies need, one per committed result. `python -m experiments.runs` trains these runs."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from configs import brown, wikitext2
from experiments import results
from experiments.beyond.cheaper.points import POINTS as CHEAPER
from experiments.beyond.lineage import ladder
from experiments.beyond.tokens import study as tokens_study
from experiments.paper.table1 import seeds
from experiments.paper.versions import table as versions_table
from experiments.use import models
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.settings import CHOOSERS, override
from nplm_jax.runs.command_line import load_config

SEEDS = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Point:
    """A result to measure.

    Attributes:
        result: The file of the committed result.
        name: The name of the run's folder.
        needs: The points that must be trained first.
    """

    result: pathlib.Path
    name: str
    needs: tuple[Point, ...] = ()


@dataclasses.dataclass(frozen=True)
class Training(Point):
    """A run of launch.py.

    Attributes:
        config: The config file and its preset, such as `configs/brown.py:mlp9`.
        keys: The keys to set on the command line.
    """

    config: str = ''
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def words(self) -> list[str]:
        """Returns the arguments of launch.py except --workdir."""
        components = [self.keys[key] for key in CHOOSERS if key in self.keys]
        keys = {key: value for key, value in self.keys.items() if key not in CHOOSERS}
        config = ','.join([self.config, *components])
        if components:  # a component chosen by name has the defaults of the config file
            defaults, values = flatten(load_config(config)), flatten(override(load_config(self.config), self.keys))
            keys = {key: value for key, value in values.items() if key in keys or value != defaults[key]}
        return [f'--config={config}', *(f'--config.{key}={value}' for key, value in keys.items())]


@dataclasses.dataclass(frozen=True)
class Program(Point):
    """A run of a study's own program. The folder is passed as --workdir, and the results file as --output.

    Attributes:
        command: The module, and the other flags.
    """

    command: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Mixture(Point):
    """A mixture of the required runs, with weights learned on the validation words."""


@dataclasses.dataclass(frozen=True)
class Adaptation(Point):
    """Adaptive models made from the required runs, with settings chosen on the validation words."""


def _preset(folder: pathlib.Path, corpus: str, preset: str, **changes: Any) -> Training:
    """Returns the point for a preset, which is named after the preset, with some fields changed."""
    config = f'configs/{corpus}.py:{preset}'
    made = Training(folder / f'{preset}.json', f'{corpus}-{preset}', config=config)
    return dataclasses.replace(made, **changes)


def seed_result(folder: pathlib.Path, preset: str, seed: int) -> pathlib.Path:
    """Returns the results file for a preset and a seed. The results of the first seed are rows of the tables."""
    return folder / f'{preset}.json' if seed == 1 else folder / 'seeds' / f'{preset}-{seed}.json'


def _seeded(folder: pathlib.Path, corpus: str, preset: str, seed: int) -> Training:
    name = f'{corpus}-{preset}' if seed == 1 else f'{corpus}-{preset}-{seed}'
    return _preset(folder, corpus, preset, result=seed_result(folder, preset, seed), name=name, keys={'seed': seed})


def table1() -> Iterator[Point]:
    """Yields the runs of Table 1: every row, additional seeds for two networks, and two additional networks."""
    folder = results.folder('table1')
    for preset in (*brown.TABLE1, 'large'):
        yield _preset(folder, 'brown', preset)
    yield Training(folder / 'default.json', 'brown', config='configs/brown.py')
    for preset in seeds.SEEDED:
        for seed in seeds.SEEDS:
            result = folder / f'{preset}_seed{seed}.json'
            yield _preset(folder, 'brown', preset, result=result, name=f'brown-{preset}-{seed}', keys={'seed': seed})
    sums = {'train.batch_size': 128, 'train.epochs': 15, 'train.steps_per_execution': 50}
    saved = {'train.checkpoint_every': 6250, 'train.log_every': 250}
    paper = 'configs/brown.py:mlp9,paper'
    yield Training(folder / 'mlp9_paper.json', 'brown-mlp9_paper', config=paper, keys={**sums, **saved})


def table2() -> Iterator[Point]:
    """Yields the runs of Table 2 on WikiText-2, with marks before articles and lines."""
    for preset in wikitext2.TABLE2:
        config = f'configs/wikitext2.py:{preset}{",sampled" if preset == "mlp10" else ""}'
        result = results.folder('table2') / f'{preset}.json'
        yield Training(result, f'table2-{preset}', config=config, keys=wikitext2.BY_ARTICLES)


def versions() -> Iterator[Point]:
    """Yields the runs for comparing JAX versions. Train these runs with an older Python and JAX."""
    for name in versions_table.RUNS:
        config = 'configs/brown.py' if name == 'default' else f'configs/brown.py:{name}'
        yield Training(versions_table.RESULTS / f'{name}.json', f'versions-{name}', config=config)


def recurrent() -> Iterator[Point]:
    """Yields the recurrent networks and a mixture of an LSTM, MLP9 and a 5-gram."""
    folder = results.folder('recurrent')
    for preset in brown.RECURRENT:
        yield _preset(folder, 'brown', preset)
    others = (_preset(results.folder('table1'), 'brown', preset) for preset in ('mlp9', 'modified_kneser_ney_5'))
    members = _preset(folder, 'brown', 'lstm'), *others
    yield Mixture(folder / 'mixture.json', 'brown-lstm_mlp9_5gram', members)


def cheaper() -> Iterator[Point]:
    """Yields the runs of MLP9 with cheaper gradients."""
    for name, keys in CHEAPER.items():
        result = results.folder('cheaper') / f'{name}.json'
        yield Training(result, f'cheaper-{name}', config='configs/brown.py:mlp9', keys={'name': name, **keys})


# Corpus -> the presets of the frontier and their seeds. On Brown, mixing gains more than an hour of training does.
FRONTIER = {
    'brown': {'one_minute': SEEDS, 'five_minutes': SEEDS, 'twenty_minutes': (1,)},
    'wikitext2': {'one_minute': SEEDS, 'five_minutes': SEEDS, 'twenty_minutes': (1,), 'one_hour': (1,)},
}

# Name of a result -> changes to `one_minute` of Brown, whose gains the frontier measures.
CHANGES: dict[str, dict[str, Any]] = {
    'no_attention': {'model.family': 'mogrifier'},
    'memory_64': {'model.memory': 64},
    'memory_128': {'model.memory': 128},
    'memory_512': {'model.memory': 512},
    'no_affixes': {'train.affixes': False},
    'dropout': {'model.dropout': 0.1, 'model.output_dropout': 0.2},
    'less_decay': {'optimizer.decay': 0.1},
    'more_decay': {'optimizer.decay': 0.3},
    'lower_rate': {'optimizer.learning_rate': 0.006},
    'trapezoid': {'optimizer.schedule': 'trapezoid'},
    'average': {'train.average': 0.995, 'train.average_start': 0.8},
}


def _minutes(folder: pathlib.Path, corpus: str) -> Iterator[Point]:
    for preset, numbers in FRONTIER[corpus].items():
        for seed in numbers:
            yield _seeded(folder, corpus, preset, seed)


def frontier() -> Iterator[Point]:
    """Yields the runs on Brown: networks for each time, changes to one of them, mixtures, adaptive models."""
    folder = results.folder('frontier')
    yield from _minutes(folder, 'brown')
    for name, keys in CHANGES.items():
        result = folder / 'changes' / f'{name}.json'
        yield _preset(folder, 'brown', 'one_minute', result=result, name=f'brown-one_minute-{name}', keys=keys)
    five = [_seeded(folder, 'brown', 'five_minutes', seed) for seed in (1, 2, 3, 4)]
    twenty = _seeded(folder, 'brown', 'twenty_minutes', 1)
    five_gram = _preset(results.folder('table1'), 'brown', 'modified_kneser_ney_5')
    mixtures = {'five_minutes_x4': five, 'mixture_of_6': [*five, twenty, five_gram]}
    for name, members in mixtures.items():
        yield Mixture(folder / f'{name}.json', f'brown-{name}', tuple(members))
    for name, adapted in {'adapted': (twenty, five_gram), 'adapted_kn5': (five_gram,)}.items():
        yield Adaptation(folder / f'{name}.json', f'brown-{name}', adapted)


def on_wikitext2() -> Iterator[Point]:
    """Yields the runs on WikiText-2: 5-gram models, networks for each time, mixtures, adaptive models."""
    folder = results.folder('wikitext2')
    for preset in ('kneser_ney_5', 'modified_kneser_ney_5'):
        yield _preset(folder, 'wikitext2', preset)
    yield from _minutes(folder, 'wikitext2')
    five = [_seeded(folder, 'wikitext2', 'five_minutes', seed) for seed in SEEDS]
    twenty, hour = (_seeded(folder, 'wikitext2', preset, 1) for preset in ('twenty_minutes', 'one_hour'))
    five_gram = _preset(folder, 'wikitext2', 'modified_kneser_ney_5')
    mixtures = {'mixture_of_5': [*five, twenty, five_gram], 'mixture_of_6': [*five, twenty, hour, five_gram]}
    for name, members in mixtures.items():
        yield Mixture(folder / f'{name}.json', f'wikitext2-{name}', tuple(members))
    yield Adaptation(folder / 'adapted.json', 'wikitext2-adapted', (five[0], five_gram))


def lineage() -> Iterator[Point]:
    """Yields the runs of the ladder on Brown, and some on WikiText-2. Networks are trained with two seeds."""
    for corpus in ladder.CORPORA:
        for seed in (1, 2):
            for rung in ladder.RUNGS:
                is_studied = corpus == ladder.BROWN or rung in (*ladder.ON_WIKITEXT_2, 'counts')
                if is_studied and (seed == 1 or rung != 'counts'):
                    result = ladder.RESULTS / corpus / f'{rung}-{seed}.json'
                    config = f'experiments/beyond/lineage/ladder.py:{ladder.row_of(rung, corpus)}'
                    yield Training(result, f'lineage-{corpus}-{rung}-{seed}', config=config, keys={'seed': seed})


def use() -> Iterator[Point]:
    """Yields the models for the studies in experiments/use. Their folders are in `use`."""
    folder = results.folder('reading_times') / 'runs'
    for run in models.runs():
        yield Training(folder / f'{run.name}.json', f'use/{run.name}', config=run.config, keys=run.keys)


def tokens() -> Iterator[Point]:
    """Yields the networks over words, subwords and bytes. Their texts and runs are in `tokens`."""
    for run in tokens_study.all_runs():
        command = 'experiments.beyond.tokens.study', f'--run={run.name}'
        yield Program(tokens_study.RESULTS / f'{run.name}.json', 'tokens', command=command)


STUDIES: dict[str, Callable[[], Iterator[Point]]] = {
    'table1': table1,
    'table2': table2,
    'versions': versions,
    'recurrent': recurrent,
    'cheaper': cheaper,
    'lineage': lineage,
    'frontier': frontier,
    'wikitext2': on_wikitext2,
    'use': use,
    'tokens': tokens,
}
ON_REQUEST = ('use',)  # studies that are trained only if they are named; the results of experiments/use include theirs
