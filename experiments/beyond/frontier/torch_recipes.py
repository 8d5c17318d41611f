"""Trains three popular PyTorch recipes on the same words for the same time, for comparison.

    python -m experiments.beyond.frontier.torch_recipes --recipes=nanogpt --corpora=brown --minutes=1
    python -m experiments.beyond.frontier.torch_recipes --show    the table of the committed results

- `word_language_model`: the defaults of the PyTorch example with this name. Two LSTM layers of 200 units, dropout of
  0.2, gradient descent at a rate of 20 that is divided by 4 after an epoch without a better validation perplexity.
- `awd_lstm`: AWD-LSTM (Merity et al., 2018) with its recipe for the Penn Treebank.
- `nanogpt`: nanoGPT's settings for a CPU, at the size of `one_minute`. Four layers of 200 features, AdamW, cosine decay
  of the rate.

The time is the processor time of updates, divided by the number of threads. It excludes other work on the machine.
Writes results/outside/CORPUS/RECIPE-MINUTES.json. Requires PyTorch, which is not in requirements.txt.
"""

from __future__ import annotations

import pathlib

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results' / 'outside'
RECIPES = 'word_language_model', 'awd_lstm', 'nanogpt'
CORPORA = 'brown', 'wikitext2'


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--recipes', RECIPES, 'recipes to train')
    parser.add_names('--corpora', CORPORA, 'corpora to train on')
    parser.add_argument('--minutes', type=study.positive(float), default=1.0, help='training time [min]; default: 1')
    parser.add_output_path(RESULTS, folder=True)


def measure(flags: study.Flags) -> None:
    """Trains the recipes and writes their results."""
    from experiments.beyond.frontier import torch_networks  # noqa: PLC0415 (needs PyTorch)

    for corpus in flags.corpora:
        for recipe in flags.recipes:
            path = flags.output / corpus / f'{recipe}-{flags.minutes:g}.json'
            results.write(path, torch_networks.train(recipe, corpus, flags.minutes))


def show(flags: study.Flags) -> str:
    """Returns the table of the available results."""
    table = []
    for path in sorted(flags.output.glob('*/*.json')):
        found = results.load(path)
        perplexities = (f'{found["perplexity"][split]:.1f}' for split in ('valid', 'test'))
        facts = [f'{found["minutes"]:g}', f'{found["parameters"]:,}', f'{found["epochs"]:.2f}']
        table.append([found['corpus'], found['name'], *facts, *perplexities])
    return markdown_table(['corpus', 'recipe', 'minutes', 'parameters', 'epochs', 'valid', 'test'], table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure, show=show)
