"""The models of the studies in experiments/use: presets of Brown. `python -m experiments.runs use` trains them.

The paper's networks are trained with sampled losses, which takes a sixth of the time and does not change the
perplexities (experiments/beyond/cheaper).
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.beyond.cheaper.points import POINTS
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.reporting import catalog
from nplm_jax.utils.errors import require

SEEDS = (1, 2)  # of the networks
_SAMPLED = POINTS['sampled_1000']
# Model -> the preset for Brown and the keys that are set.
COUNTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    **{f'kneser_ney_{n}': ('kneser_ney_5', {'model.n': n}) for n in (2, 3, 4, 5)},
    **{name: (name, {}) for name in ('modified_kneser_ney_5', 'interpolated', 'classes_500')},
}
NETWORKS: dict[str, tuple[str, Mapping[str, Any]]] = {
    **{name: (name, _SAMPLED) for name in ('mlp1', 'mlp9')},
    **{name: (name, {}) for name in ('default', 'one_minute', 'five_minutes')},
}
ROWS = {**COUNTS, **NETWORKS}
BEST, COUNTED = 'five_minutes', 'modified_kneser_ney_5'  # the network and the n-gram model in the mixture
MIXED, ADAPTED = f'{BEST} + {COUNTED}', f'{BEST}, adapted'
MIXING_WORDS = 50_000  # validation words for learning the weights of the mixture


class Run(NamedTuple):
    """A model to train.

    Attributes:
        model: A key of COUNTS or NETWORKS.
        seed: The random seed; 1 for a count-based model.
    """

    model: str
    seed: int = 1

    @property
    def name(self) -> str:
        """The name of the run's folder and of its results: MODEL-SEED, or MODEL for a count-based model."""
        return self.model if self.model in COUNTS else f'{self.model}-{self.seed}'

    @property
    def config(self) -> str:
        """The config file and the preset."""
        preset, _ = ROWS[self.model]
        return 'configs/brown.py' if preset == 'default' else f'configs/brown.py:{preset}'

    @property
    def keys(self) -> dict[str, Any]:
        """The keys to set with --config.KEY=VALUE."""
        return {**ROWS[self.model][1], 'seed': self.seed}


def runs() -> Iterator[Run]:
    """Yields the count-based models, and the networks ordered by seed."""
    yield from map(Run, COUNTS)
    for seed in SEEDS:
        yield from (Run(model, seed) for model in NETWORKS)


def finished(folder: pathlib.Path) -> dict[Run, pathlib.Path]:
    """Returns the folders of the finished runs in a folder, and prints the names of the others.

    Raises:
        BadInput: There is no finished run.
    """
    found = {run: folder / run.name for run in runs() if catalog.is_finished(folder / run.name)}
    reason = 'contains no finished runs of these studies; train some with `python -m experiments.runs use`'
    require(len(found) > 0, '--runs', str(folder), reason)
    if missing := [run.name for run in runs() if run not in found]:
        print(f'skipped, because they are not finished: {", ".join(missing)}', file=sys.stderr)
    return found


def mixed(models: Sequence[LanguageModel], data: Dataset) -> mixture.Mixture:
    """Returns the mixture of models with weights learned on the first validation words."""
    first = Span(data.valid.start, min(data.valid.start + MIXING_WORDS, data.valid.stop))
    return mixture.fit(models, data.tokens_T, first)
