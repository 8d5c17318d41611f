"""Prints Table 2: the paper's figures on AP News beside ours on WikiText-2, from the committed results.

    python -m experiments.table2.table

results/ROW.json is the results.json of `python launch.py --config=configs/wikitext2.py:ROW`; the network's, with
`--config.output.kind=sampled`.
"""

import pathlib

from configs import ap_news, wikitext2
from experiments import results
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
YARDSTICK = 'kneser_ney_5'  # what the ratios are to, on the same words


def rows(folder: pathlib.Path = RESULTS) -> list[list[str]]:
    """One row a model. Raises: BadInput when the JSON of a row that was run is missing."""
    here = {row: _perplexities(results.read(folder, row)) for row in wikitext2.ROWS}
    paper = {row: figures[1:] for row, figures in ap_news.PAPER.items()}
    return [
        [
            'mlp10, mixed with the trigram' if row == 'mlp10' else row,
            *_cells(paper.get(row), paper[YARDSTICK], '{:.0f}'),
            *_cells(here[row], here[YARDSTICK], '{:.1f}'),
        ]
        for row in wikitext2.ROWS
    ]


def make() -> str:
    """The table."""
    ratio = f'test / {YARDSTICK}'
    header = ['row', 'paper, AP News: valid', 'test', ratio, 'here, WikiText-2: valid', 'test', ratio]
    return markdown_table(header, rows())


def _perplexities(found: dict) -> tuple[float, float]:
    """Of a network those of the fixed mixture with the trigram, as the paper's Table 2 has it."""
    scores = found['mixture']['fixed'] if 'mixture' in found else found['perplexity']
    return scores['valid'], scores['test']


def _cells(figures: tuple[float, ...] | None, yardstick: tuple[float, ...], shown: str) -> list[str]:
    if figures is None:
        return ['-'] * 3
    return [*(shown.format(f) for f in figures), f'{figures[1] / yardstick[1]:.3f}']


if __name__ == '__main__':
    results.show(make)
