"""The mixture of trained models, weighted on validation in three ways, and its perplexity.

    python -m nplm_jax.cli mix --workdir=runs/brown-lstm --workdir=runs/brown-mlp9 --workdir=runs/brown-kneser_ney_5

Prints each model and their mixtures with equal weights, with weights learned by EM, and with such weights for each
frequency of the two words before (section 4.2). --output=FILE keeps them as JSON.
"""

import json
import shlex
import sys
from typing import Any

from nplm_jax.cli import trained
from nplm_jax.data import dataset
from nplm_jax.inference import perplexity as evaluation
from nplm_jax.models import mixture
from nplm_jax.models.ngram.counts import count
from nplm_jax.models.ngram.interpolated import FrequencyBins
from nplm_jax.runs import loading, provenance
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.text import markdown_table

HEADER = ['model', 'valid', 'test', 'weight: equal', 'learned']
SPLITS = ('valid', 'test')


def main() -> None:
    """Reads the flags, mixes, prints."""
    parser = trained.Parser(__doc__)
    parser.add_argument('--output', default='', help='a JSON file for what comes out')
    flags = parser.parse_args()
    require(len(flags.workdir) > 1, '--workdir', flags.workdir[0], 'give two or more')
    models = trained.load(flags.workdir)
    for folder, settings in zip(flags.workdir, models.settings):
        same = settings.corpus == models.settings[0].corpus
        require(same, '--workdir', folder, f'its corpus.* are not those of {flags.workdir[0]}')
    found = mix(models, loading.prepare_recorded(models.settings[0], *flags.workdir))
    if flags.output:
        command = shlex.join(['python', '-m', 'nplm_jax.cli', 'mix', *sys.argv[1:]])
        found |= {'command': command, **provenance.provenance()}
        write_atomically(expand('--output', flags.output), json.dumps(found, indent=2) + '\n')
    print(make_table(found))


def mix(trained_models: trained.Trained, data: dataset.Dataset) -> dict[str, Any]:
    """Perplexities of the models and their mixtures, and the weights of the learned one.

    Args:
        trained_models: of one corpus.
        data: that corpus.

    Returns:
        What `--output` holds, less the provenance.
    """
    models = [mixture.CachedScores(model) for model in trained_models.models]
    bins = FrequencyBins(count(data.tokens_T, data.train, 3, len(data.vocabulary)))
    ways = mixture.paper_mixtures(models, data.tokens_T, data.valid, bins)
    mixtures = dict(zip(('equal', 'learned', 'by_frequency'), ways))

    def perplexities(model):
        return {s: evaluation.evaluate(model, data.tokens_T, data.splits[s]).perplexity for s in SPLITS}

    weights = mixtures['learned'].weights_QxM[0].tolist()
    each = zip(trained_models.names, models, weights)
    return {
        'models': [{'name': name, **perplexities(model), 'weight': weight} for name, model, weight in each],
        'mixtures': {name: perplexities(model) for name, model in mixtures.items()},
    }


def make_table(found: dict[str, Any]) -> str:
    """The models, then their mixtures."""
    models = found['models']
    rows = [[m['name'], *(m[s] for s in SPLITS), f'{1 / len(models):.2f}', f'{m["weight"]:.2f}'] for m in models]
    rows += [[f'mixed, {n.replace("_", " ")}', *(p[s] for s in SPLITS), '', ''] for n, p in found['mixtures'].items()]
    return markdown_table(HEADER, rows)
