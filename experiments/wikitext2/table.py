"""Prints the perplexities of WikiText-2's published words, ours beside published ones, from the committed results.

    python -m experiments.wikitext2.table

results/ROW.json is the results.json of `python launch.py --config=configs/wikitext2.py:ROW`.
"""

from __future__ import annotations

import pathlib

from experiments import results, study
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
ROWS = ('modified_kneser_ney_5', 'kneser_ney_5')
# exp of the mean of -ln P over the 217,645 and 245,568 numbers of WikiText-2/{valid,test}/KneserNey-5gram.txt.
PUBLISHED = {'5-gram Kneser-Ney of sota_lm': (233.93, 219.27)}


def make() -> str:
    """Returns the table. Raises: BadInput when a row's JSON is missing."""
    recorded = {f'`{row}`': results.read(RESULTS, row)['perplexity'] for row in ROWS}
    ours = [[row, f'{scores["valid"]:.1f}', f'{scores["test"]:.1f}'] for row, scores in recorded.items()]
    published = [[name, *(f'{value:.1f}' for value in values)] for name, values in PUBLISHED.items()]
    return markdown_table(['model', 'valid', 'test'], [*ours, *published])


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: make())
