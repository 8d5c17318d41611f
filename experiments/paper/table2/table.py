"""Prints Table 2: the paper's results on AP News and ours on WikiText-2, from the committed files.

    python -m experiments.paper.table2.table

results/ROW.json is the results.json of `python launch.py --config=configs/wikitext2.py:ROW
--config.corpus.paragraphs=auto`, for the network of `mlp10,sampled`.
"""

from __future__ import annotations

import pathlib
from typing import Any

from configs import ap_news, wikitext2
from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
REFERENCE = 'kneser_ney_5'  # the model to which the ratios refer, on the same words


def rows(folder: pathlib.Path = RESULTS) -> list[list[str]]:
    """Returns one row per model. Raises BadInput if the results of a row are missing."""
    here = {row: _perplexities(results.read(folder, row)) for row in wikitext2.TABLE2}
    paper = {row: figures[1:] for row, figures in ap_news.PAPER.items()}
    return [
        [
            'mlp10, mixed with the trigram' if row == 'mlp10' else row,
            *_cells(paper.get(row), paper[REFERENCE], '{:.0f}'),
            *_cells(here[row], here[REFERENCE], '{:.1f}'),
        ]
        for row in wikitext2.TABLE2
    ]


def make() -> str:
    """Returns the table."""
    ratio = f'test / {REFERENCE}'
    header = ['row', 'paper, AP News: valid', 'test', ratio, 'here, WikiText-2: valid', 'test', ratio]
    return markdown_table(header, rows())


def _perplexities(recorded: dict[str, Any]) -> tuple[float, float]:
    """Returns the valid and test perplexity. As in Table 2, a network is mixed with the trigram at fixed weights."""
    scores = recorded['mixture']['fixed'] if 'mixture' in recorded else recorded['perplexity']
    return scores['valid'], scores['test']


def _cells(figures: tuple[float, ...] | None, reference: tuple[float, ...], template: str) -> list[str]:
    if figures is None:
        return ['-'] * 3
    return [*(template.format(f) for f in figures), f'{figures[1] / reference[1]:.3f}']


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: make())
