"""Prints the tables of `open_vocabulary` from the committed results.

python -m experiments.paper.section5.open_vocabulary_table
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'


def make(_: study.Flags) -> str:
    """Returns the tables."""
    recorded = results.read(RESULTS, 'open_vocabulary')
    compress = [['-', name, *'------', f'{bits:.3f}'] for name, bits in recorded['compressed'].items()]
    main = [[f'{r["vocabulary"]:,}', r['name'], *_numbers(r)] for r in recorded['rows']]
    header = [
        'words',
        'model',
        'spelled',
        'closed',
        'network',
        '8-gram',
        'network: bits',
        '8-gram: bits',
        'printed: bits',
    ]
    ways = [
        [w['name'], w['trained_on'], *(f'{w[k]:.3f}' for k in ('valid', 'test', 'new', 'outside')), w['seconds'] or '-']
        for w in recorded['ways_to_spell']
    ]
    return '\n\n'.join(
        [
            markdown_table(header, main + compress),
            markdown_table(['spelled by', 'trained on', 'valid', 'test', 'new in test', 'outside', 'seconds'], ways),
            markdown_table(
                ['invented text by', 'words', 'spelled', 'perplexity', 'bits / char'],
                [
                    [t['name'], t['words'], t['spelled'], t['perplexity'], f'{t["bits_per_character"]:.3f}']
                    for t in recorded['text']
                ],
            ),
            _spelled_words(recorded['text']),
            f'written: {" ".join(recorded["written"])}',
        ]
    )


def _numbers(row: Mapping[str, Any]) -> list[str]:
    perplexities = (row.get(key) for key in ('closed_perplexity', 'perplexity_network', 'perplexity_ngram'))
    bits = (row.get(f'bits_{key}') for key in ('network', 'ngram', 'printed'))
    return [
        f'{row["rare"]:.2%}',
        *('-' if number is None else f'{number:.1f}' for number in perplexities),
        *('-' if number is None else f'{number:.3f}' for number in bits),
    ]


def _spelled_words(texts: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of the words of the text that were spelled, with the bits of each by each model."""
    body = [[word, *(t['spelled_words'][word] for t in texts)] for word in texts[0]['spelled_words']]
    return markdown_table(['bits of', *(t['name'] for t in texts)], body)


if __name__ == '__main__':
    study.run(__doc__, show=make)
