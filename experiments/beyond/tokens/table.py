"""Prints the tables of the committed results.

python -m experiments.beyond.tokens.table             bits per byte, speed and memory
python -m experiments.beyond.tokens.table --reading   the fit to reading times
python -m experiments.beyond.tokens.table --figure    bits per byte, and draws bits.png
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import results
from experiments import study as entry
from experiments.beyond.tokens import study, texts
from experiments.beyond.tokens.study import HERE, RESULTS, Run
from nplm_jax.apps.psycholinguistics import gains
from nplm_jax.reporting.text import markdown_table, save_figure

CORPORA = {'brown': 'Brown', 'wikitext2': 'WikiText-2'}


def read(row: str, corpus: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the available results by system, one per seed. Systems without results are skipped."""
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in study.SEEDS:
        for system in study.SYSTEMS:
            name = Run(row, corpus, system, seed).name
            if (RESULTS / f'{name}.json').exists():
                found.setdefault(system, []).append(results.read(RESULTS, name))
    return dict(sorted(found.items(), key=lambda item: _mean(item[1], 'bits_per_byte')))


def _mean(measured: list[dict[str, Any]], *keys: str) -> float:
    """Returns the mean of a value over the seeds."""
    values = measured
    for key in keys:
        values = [value[key] for value in values]
    return float(np.mean(values))  # type: ignore[arg-type]


def make_table(row: str, corpus: str) -> str:
    """Returns one row per system, best first."""
    header = [
        f'{CORPORA[corpus]}, {row}', '|V|', 'tokens/word', 'passes', 'seeds', 'bits/byte', 'of seeds',
        'perplexity/word', 'processor s', 'and after', 'train bytes/s', 'train words/s', 'test bytes/s', 'peak MB',
    ]  # fmt: skip
    lines = []
    for system, of_seeds in read(row, corpus).items():
        bits = [measured['bits_per_byte'] for measured in of_seeds]
        first = of_seeds[0]
        lines.append(
            [
                system,
                f'{first["vocabulary"]:,}',
                f'{first["tokens"]["test"] / first["words"]["test"]:.2f}',
                f'{_mean(of_seeds, "passes"):.2f}',
                len(of_seeds),
                f'{np.mean(bits):.3f}',
                f'{min(bits):.3f} to {max(bits):.3f}',
                _mean(of_seeds, 'perplexity_per_word'),
                _mean(of_seeds, 'seconds', 'updates'),
                _mean(of_seeds, 'seconds', 'after'),
                *(
                    f'{_mean(of_seeds, key):,.0f}'
                    for key in ('train_bytes_per_second', 'train_words_per_second', 'test_bytes_per_second')
                ),
                f'{_mean(of_seeds, "peak_memory_megabytes"):,.0f}',
            ]
        )
    return markdown_table(header, lines)


def make_tables() -> str:
    """Returns one table for each row and corpus with results."""
    pairs = [(row, corpus) for row in study.BUDGETS for corpus in texts.CORPORA if read(row, corpus)]
    return '\n\n'.join(make_table(*pair) for pair in pairs)


def make_reading_table() -> str:
    """Returns one row per system, network and corpus. Gains are in thousandths of a nat per word."""
    header = ['corpus', 'row', 'tokens', 'seeds', 'gain, known words', '95%', 'of seeds', 'gain, all words', '95%']
    header += ['of seeds', 'perplexity of all words']
    lines = []
    for name, systems in results.read(RESULTS, 'reading_times')['runs'].items():
        row, corpus = name.split('-')
        for system, seeds in systems.items():
            cells = [cell for words in ('known', 'all') for cell in _gain(list(seeds.values()), words)]
            nats = np.mean([np.log(seed['all']['perplexity']) for seed in seeds.values()])
            lines.append([CORPORA[corpus], row, system, len(seeds), *cells, float(np.exp(nats))])
    return markdown_table(header, lines)


def _gain(seeds: list[dict[str, Any]], words: str) -> tuple[str, str, str]:
    """Returns the gain for the log reading time, its interval over stories, and its range over seeds."""
    sums_S = np.mean([seed[words]['log']['sums'] for seed in seeds], axis=0)
    counts_S = np.array(seeds[0][words]['counts'])
    low, high = gains.gain_interval(sums_S, counts_S)
    of_seeds = [1000 * seed[words]['log']['gain'] for seed in seeds]
    mean = 1000 * sums_S.sum() / counts_S.sum()
    return f'{mean:.1f}', f'{1000 * low:.1f} to {1000 * high:.1f}', f'{min(of_seeds):.1f} to {max(of_seeds):.1f}'


def draw() -> None:
    """Draws the bits per byte by system, with a point for each seed and a line for each row."""
    import matplotlib.figure  # noqa: PLC0415 (only --figure needs it)

    figure = matplotlib.figure.Figure(figsize=(9, 4), layout='constrained')
    for axes, corpus in zip(figure.subplots(1, len(texts.CORPORA)), texts.CORPORA):
        for row in study.BUDGETS:
            if not (found := read(row, corpus)):
                continue
            systems = [system for system in study.SYSTEMS if system in found]
            means = [_mean(found[system], 'bits_per_byte') for system in systems]
            label = f'{row}, {study.BUDGETS[row]:.0f} processor seconds'
            (line,) = axes.plot(systems, means, '_', markersize=16, label=label)
            points = [(system, m['bits_per_byte']) for system in systems for m in found[system]]
            axes.plot(*zip(*points), 'o', color=line.get_color(), markersize=4)
        axes.set(title=CORPORA[corpus], ylabel='bits per byte of the test text')
        axes.tick_params(axis='x', labelrotation=30)
        axes.grid(axis='y', alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=8)
    save_figure(figure, HERE / 'bits.png')


def define(parser: entry.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--reading', 'print how well the surprisals of the models predict reading times')
    parser.add_switch('--figure', 'also draw bits.png')


def show(flags: entry.Flags) -> str:
    """Returns a table. Draws the figure if requested."""
    if flags.figure:
        draw()
    return make_reading_table() if flags.reading else make_tables()


if __name__ == '__main__':
    entry.run(__doc__, define=define, show=show)
