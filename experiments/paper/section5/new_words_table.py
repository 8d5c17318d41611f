"""The tables of new_words.md, from what experiments/paper/section5/new_words.py measured.

Dims: W words, R resamples of the words.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments import results
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
RESAMPLES = 2000
INTERVAL = 2.5, 97.5  # percent
RARE, TRAINED = 'share of <rare>', 'trained'
KINDS = {'word': 'the word itself', 'after': 'the words after it'}


def read(network: str) -> dict[str, Any]:
    """Returns what was measured of a network. Raises BadInput where its file is missing."""
    return results.read(RESULTS, f'new_words_{network}')


def interval(statistic: Callable[[np.ndarray], Any], num_words: int, seed: int) -> tuple[float, float]:
    """Returns the bootstrap interval of a statistic of resampled words.

    Args:
        statistic: A function of the numbers of the words.
        num_words: W.
        seed: Seed of the resampling.
    """
    numbers_RxW = np.random.default_rng(seed).integers(0, num_words, (RESAMPLES, num_words))
    low, high = np.percentile([statistic(numbers_W) for numbers_W in numbers_RxW], INTERVAL)
    return float(low), float(high)


def values(measured: dict[str, Any], split: str, method: str, kind: str, shown: str) -> np.ndarray:
    """Returns the mean log P of each word by a method, W; those that need no occurrence have one for all numbers."""
    by_shown = measured[split][method]
    return np.asarray(by_shown[shown][kind] if shown in by_shown else by_shown[kind])


def shown_of(measured: dict[str, Any]) -> list[str]:
    """Returns the numbers of occurrences, as the keys of JSON."""
    return list(measured['test'][measured['chosen']])


def share_of_the_way(
    measured: dict[str, Any], split: str, method: str, kind: str, shown: str, numbers_W: Any = slice(None)
) -> float:
    """Returns how far the mean log P of some words is on the way from the share of <rare> to full training."""
    rare, reached, trained = (
        values(measured, split, name, kind, shown)[numbers_W].mean() for name in (RARE, method, TRAINED)
    )
    return float((reached - rare) / (trained - rare))


def test_table(measured: dict[str, Any], kind: str) -> str:
    """Returns the mean log P of the test words by method and number of occurrences, with an interval over words."""
    rows = []
    for method in measured['test']:
        cells = []
        for shown in shown_of(measured):
            log_p_W = values(measured, 'test', method, kind, shown)
            low, high = interval(lambda numbers_W, x_W=log_p_W: x_W[numbers_W].mean(), len(log_p_W), measured['seed'])
            cells.append(f'{log_p_W.mean():.3f} ({low:.2f}, {high:.2f})')
        rows.append([method if method != measured['chosen'] else f'posterior: {method}', *cells])
    return markdown_table([f'{measured["network"]}: {KINDS[kind]}', *shown_of(measured)], rows)


def share_table(networks: Sequence[dict[str, Any]]) -> str:
    """Returns how far the chosen variant is on the way from the share of <rare> to full training, with intervals."""
    rows, all_shown = [], shown_of(networks[0])
    for measured in networks:
        for kind, name in KINDS.items():
            cells = []
            for shown in all_shown:
                if shown not in shown_of(measured):
                    cells.append('-')
                    continue
                arguments = measured, 'test', measured['chosen'], kind, shown
                low, high = interval(
                    lambda numbers_W, a=arguments: share_of_the_way(*a, numbers_W),
                    len(measured['words']['test']),
                    measured['seed'],
                )
                cells.append(f'{share_of_the_way(*arguments):.2f} ({low:.2f}, {high:.2f})')
            rows.append([measured['network'], name, *cells])
    return markdown_table(['network', 'log P of', *all_shown], rows)


def choice_table(measured: dict[str, Any]) -> str:
    """Returns that share for every variant on the validation words, of the word itself and of the words after it."""
    shown = shown_of(measured)
    variants = [name for name in measured['valid'] if name not in (RARE, TRAINED)]
    rows = [
        [name, *(f'{share_of_the_way(measured, "valid", name, kind, k):.2f}' for kind in KINDS for k in shown)]
        for name in variants
    ]
    header = [f'{measured["network"]}, validation words', *(f'{kind}, {k}' for kind in KINDS for k in shown)]
    return markdown_table(header, rows)


def neighbour_table(measured: dict[str, Any]) -> str:
    """Returns the nearest words by induced and by trained features."""
    rows = [[w['word'], ' '.join(w['induced']), ' '.join(w['trained'])] for w in measured['neighbours']]
    return markdown_table([f'{measured["network"]}', 'induced from 5 occurrences', 'trained'], rows)


def facts(measured: dict[str, Any]) -> str:
    """Returns the further numbers in sentences."""
    later, words = measured['later_occurrences'], measured['words']
    shift = ', '.join(f'{shift:+.2f}' for shift in measured['log_rate_from_reading'])
    trainings = ' and '.join(f'{network["seconds"]:.0f} s' for network in measured['networks'].values())
    change = measured['effect_on_others']
    return (
        f'{measured["network"]}: {len(words["valid"])} validation words with {later["valid"]:,} later occurrences, '
        f'{len(words["test"])} test words with {later["test"]:,}; two trainings of {trainings}. With the validation '
        f'words added, the mean log P of other words changes by {change:+.4f} nats. With the rate of a word as '
        f'read up to its last shown occurrence, each log P of a new word but the trained one changes by {shift} nats '
        f'on average.'
    )


def make(names: Sequence[str]) -> str:
    """Returns the tables of the networks that were measured, the first of which must be."""
    networks = [read(name) for name in names if name == names[0] or (RESULTS / f'new_words_{name}.json').exists()]
    parts = [share_table(networks)]
    parts += [test_table(measured, kind) for measured in networks for kind in KINDS]
    parts += [choice_table(networks[0]), *(neighbour_table(measured) for measured in networks)]
    return '\n\n'.join([*parts, *map(facts, networks)])
