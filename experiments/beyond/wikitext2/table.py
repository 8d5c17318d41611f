"""Compares the committed perplexities on the words of WikiText-2 with published ones, and shows adaptive models.

    python -m experiments.beyond.wikitext2.table

results/ROW.json is the results.json of `python launch.py --config=configs/wikitext2.py:ROW`, or of a mixture.
`python -m experiments.runs wikitext2` trains the models.
"""

from __future__ import annotations

import pathlib

from experiments import results, study
from nplm_jax.apps.adaptive import command as adapt
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
ROWS = ['modified_kneser_ney_5', 'kneser_ney_5', 'one_minute', 'five_minutes', 'twenty_minutes', 'one_hour']
# exp of the mean of -ln P over the 217,645 and 245,568 numbers of WikiText-2/{valid,test}/KneserNey-5gram.txt.
PUBLISHED = {'5-gram Kneser-Ney of sota_lm': (233.93, 219.27)}
HEADER = ['model', 'family', 'parameters', 'epochs', 'seconds', 'processor s', 'valid', 'test', '/ KN5']


def make() -> str:
    """Returns the tables of static and of adaptive models. Raises BadInput if the results of a row are missing."""
    recorded = {row: results.read(RESULTS, row) for row in ROWS}
    baseline, table = recorded['modified_kneser_ney_5']['perplexity']['test'], []
    for row, found in recorded.items():
        valid, test = (found['perplexity'][split] for split in ('valid', 'test'))
        parameters, epochs = found.get('parameters'), found.get('epochs')
        facts = [f'{parameters:,}' if parameters else '-', f'{epochs:.1f}' if epochs else '-']
        facts += [f'{found[key]:,.0f}' if key in found else '-' for key in ('seconds', 'processor_seconds')]
        table.append([f'`{row}`', found['family'], *facts, f'{valid:.1f}', f'{test:.1f}', f'{test / baseline:.2f}'])
    for name, (valid, test) in PUBLISHED.items():
        table.append([name, *5 * '-', f'{valid:.1f}', f'{test:.1f}', f'{test / baseline:.2f}'])
    return '\n\n'.join([markdown_table(HEADER, table), adapt.make_table(results.read(RESULTS, 'adapted')['rows'])])


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: make())
