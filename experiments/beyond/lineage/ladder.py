"""The ladder from the network of 2003 to the Transformer. Each rung changes one idea in its parent rung.

    python launch.py --config=experiments/beyond/lineage/ladder.py:lstm             one rung
    python launch.py --config=experiments/beyond/lineage/ladder.py:lstm,wikitext2   on WikiText-2
    python -m experiments.runs lineage                                       all of them, with two seeds

Every rung trains for the number of updates that fit into five minutes on two cores (`results/updates.json`), or for
fewer if it overfits. The results therefore do not depend on the load of the machine. WikiText-2 is read with `<text>`
before articles and `<p>` before lines (corpus.paragraphs=auto).
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from configs import brown, presets, wikitext2
from experiments import results
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.registry import is_neural
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.untrusted import read_json

RESULTS = pathlib.Path(__file__).parent / 'results'  # CORPUS/RUNG-SEED.json
UPDATES = RESULTS / 'updates.json'  # {corpus: {rung: updates}}
BROWN, WIKITEXT_2 = CORPORA = 'brown', 'wikitext2'
VALIDATIONS = 3  # number of validations of a rung; the result has the best parameters


class Rung(NamedTuple):
    """A rung of the ladder.

    Attributes:
        parent: The rung to which the change applies, or '' for the first rung and the baseline.
        idea: A description of the change.
        keys: The changed values by flattened key.
    """

    parent: str
    idea: str
    keys: Mapping[str, Any]


_OVER_STREAMS: presets.Preset = {'model.bptt_length': 16, 'model.variational': True}
_REGULARISED: presets.Preset = {'model.dropout': 0.4, 'optimizer.decay': 0.1}
RUNGS = {
    'paper': Rung(
        '',
        'the network of 2003 (n=6, m=100, h=200) with its own recipe, one word per update',
        {**presets.PAPER_RECIPE, 'model.n': 6, 'model.m': 100, 'model.h': 200, 'model.direct': False},
    ),
    'batches': Rung(
        'paper',
        'gradient descent on 512 words per update, with cosine decay of the learning rate and without weight decay; '
        'b is initialised with the log-frequencies',
        {
            'optimizer.name': 'sgd',
            'optimizer.learning_rate': 4.0,
            'optimizer.decay': 0.0,
            'train.unigram_bias': True,
            'train.batch_size': 512,
            'train.steps_per_execution': 20,
            'train.log_every': 100,
            'train.checkpoint_every': 2000,
        },
    ),
    'sampled': Rung('batches', 'a loss over 1,000 sampled words', {'output.kind': 'sampled', 'output.samples': 1000}),
    'moments': Rung(
        'sampled',
        'Adam with a learning rate of 0.003, twice this rate and one second moment per row for C and U, and clipped '
        'gradients; one pass over the words, because the second pass overfits',
        {**presets.ROWWISE_ADAM, 'train.max_steps': 1600},
    ),
    'regularised': Rung(
        'moments',
        'dropout of 0.4 and weight decay of 0.1; training for the full five minutes',
        {**_REGULARISED, 'train.max_steps': 0},
    ),
    'residual': Rung(
        'regularised',
        'a residual layer with layer normalisation instead of tanh; windows along streams, with one dropout mask per '
        'stream',
        {'model.family': 'residual', 'model.averages': 0, 'model.expansion': 2, **_OVER_STREAMS},
    ),
    'tied': Rung('residual', 'the word features are also the output matrix', {'model.tied': True}),
    'wide': Rung('tied', 'm = h = 320', {'model.m': 320, 'model.h': 320}),
    'averages': Rung('wide', 'three averages of the 35 words before the window', {'model.averages': 3}),
    'attention': Rung(
        'wide',
        'a one-layer Transformer, in which each word attends to itself and the 64 words before it, instead of the '
        'concatenated features; a third of the learning rate, and 300 updates of warm-up',
        {
            'model.family': 'transformer',
            'model.expansion': 2,
            'model.memory': 64,
            'optimizer.learning_rate': 0.001,
            'optimizer.warmup': 300,
        },
    ),
    'both': Rung(
        'attention', 'attention over the concatenated features (Transformer-N)', {'model.family': 'transformer_n'}
    ),
    'qrnn': Rung(
        'wide', 'a gated sum of the past instead of the window (a quasi-recurrent layer)', {'model.family': 'qrnn'}
    ),
    'lstm': Rung('qrnn', 'gates that read the state (an LSTM)', {'model.family': 'lstm'}),
    'mogrifier': Rung(
        'lstm',
        'an input and a state that gate each other (a Mogrifier)',
        {'model.family': 'mogrifier', 'model.rounds': 2},
    ),
    'counts': Rung('', 'the baseline: a modified Kneser-Ney 5-gram', presets.NGRAMS['modified_kneser_ney_5']),
}
ON_WIKITEXT_2 = 'tied', 'both', 'lstm', 'mogrifier'  # the rungs also trained on WikiText-2, in addition to the baseline


def get_config(row: str = 'lstm') -> ConfigDict:
    """Returns the config of a rung on Brown, or on WikiText-2 with `,wikitext2` after its name.

    Raises:
        BadInput: The rung does not exist, or the number of updates that it makes in five minutes is unknown.
    """
    name, _, corpus = row.partition(',')
    if name not in RUNGS or corpus not in ('', WIKITEXT_2):
        allowed = f'must be one of {", ".join(RUNGS)}, optionally followed by ,{WIKITEXT_2}'
        raise BadInput(f'experiments/beyond/lineage/ladder.py:{row}', allowed)
    corpus = corpus or BROWN
    config = without_budget(name, corpus)
    if is_neural(config.model.family):
        updates = read_json(UPDATES).get(corpus, {}).get(name)
        require(
            bool(updates),
            'experiments/beyond/lineage/ladder.py',
            row,
            f'must have a number of updates in {UPDATES.name}',
        )
        updates = config.train.max_steps = min(config.train.max_steps or updates, updates)
        config.train.evaluate_every = -(-updates // VALIDATIONS)
        config.train.epochs = config.train.patience = 1000  # neither limit ends the training early
    return config


def row_of(name: str, corpus: str) -> str:
    """Returns the row for the argument of `get_config`."""
    return name if corpus == BROWN else f'{name},{corpus}'


def without_budget(name: str, corpus: str) -> ConfigDict:
    """Returns the config of a rung that trains for as long as a row of the paper's tables."""
    by_articles = config_lib.override(wikitext2.get_config(), wikitext2.BY_ARTICLES)
    config = _apply(name, by_articles if corpus == WIKITEXT_2 else brown.get_config('large'))
    config.name = f'lineage-{corpus}-{name}'
    return config


def differences(config: ConfigDict, recorded: Mapping[str, Any]) -> list[str]:
    """Returns the keys whose values differ between a rung's config and a run that `experiments.runs` recorded.

    When these runs were recorded, all components shared the defaults of the default config.
    """
    values, defaults = flatten(config), flatten(config_lib.default_config())
    others = (
        key for key, value in results.changed_keys(config).items() if key not in recorded and value != defaults.get(key)
    )
    return [*(key for key, value in recorded.items() if values.get(key) != value), *others]


def _apply(name: str, config: ConfigDict) -> ConfigDict:
    rung = RUNGS[name]
    if rung.parent:
        config = _apply(rung.parent, config)
    return config_lib.override(config, rung.keys)
