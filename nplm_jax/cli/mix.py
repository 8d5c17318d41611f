"""The mixture of trained models, weighted on the validation words in three ways, and its perplexity.

    nplm mix runs/brown-lstm runs/brown-mlp9 runs/brown-kneser_ney_5 --output=weights.json
    nplm generate runs/brown-lstm runs/brown-mlp9 runs/brown-kneser_ney_5 --weights=weights.json

Prints each model and three mixtures: with equal weights, with weights learned by EM, and with weights learned for each
frequency of the two words before (section 4.2). --output=FILE writes them as JSON; --weights=FILE of the other commands
reads the learned weights from there. It has a digest of each run: a run may be moved or renamed, and another one of the
same name is refused. The runs need one corpus, which is read again.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.cli.parser import Parser, print_results
from nplm_jax.utils.errors import require
from nplm_jax.utils.text import markdown_table

if TYPE_CHECKING:
    from nplm_jax.models.language_model import LanguageModel

HEADER = ['model', 'valid', 'test', 'weight: equal', 'learned']
SPLITS = ('valid', 'test')


def main(argv: Sequence[str]) -> None:
    """Mixes the models and prints the table."""
    parser = Parser('mix', __doc__)
    parser.add_runs()
    parser.add_results()
    flags = parser.parse_args(argv)
    require(len(flags.workdir) > 1, 'RUN', flags.workdir[0], 'give two or more')

    from nplm_jax.cli.loaded_models import load_models
    from nplm_jax.inference import perplexity
    from nplm_jax.models import mixture
    from nplm_jax.models.ngram.counts import count
    from nplm_jax.models.ngram.interpolated import FrequencyBins
    from nplm_jax.runs import catalog

    loaded = load_models(flags.workdir)
    data = loaded.read_corpus(flags.workdir)
    models = [mixture.CachedScores(model) for model in loaded.models]
    bins = FrequencyBins.from_counts(count(data.tokens_T, data.train, 3, len(data.vocabulary)))
    equal, learned, by_frequency = mixture.paper_mixtures(models, data.tokens_T, data.valid, bins)

    def perplexities(model: LanguageModel) -> dict[str, float]:
        return {s: perplexity.evaluate(model, data.tokens_T, data.splits[s]).perplexity for s in SPLITS}

    rows = []
    for name, folder, model, weight in zip(loaded.names, flags.workdir, models, learned.weights_QxM[0].tolist()):
        path = catalog.expand_run(folder)
        row = {'name': name, **perplexities(model), 'weight': weight}
        rows.append({**row, 'folder': str(path.resolve()), 'digest': catalog.digest(path)})
    mixtures = {'equal': equal, 'learned': learned, 'by_frequency': by_frequency}
    results = {'models': rows, 'mixtures': {name: perplexities(model) for name, model in mixtures.items()}}
    print_results(flags, shlex.join(['nplm', 'mix', *argv]), results, make_table(results))


def make_table(results: dict[str, Any]) -> str:
    """Returns a Markdown table of the models, then of their mixtures."""
    models = results['models']
    rows = [[m['name'], *(m[s] for s in SPLITS), f'{1 / len(models):.2f}', f'{m["weight"]:.2f}'] for m in models]
    for name, perplexities in results['mixtures'].items():
        rows.append([f'mixed, {name.replace("_", " ")}', *(perplexities[s] for s in SPLITS), '', ''])
    return markdown_table(HEADER, rows)
