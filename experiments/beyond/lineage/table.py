"""Prints the ladder from the committed results: the gain from each idea after five minutes of training.

python -m experiments.beyond.lineage.table                      both corpora
python -m experiments.beyond.lineage.table --figure             draws lineage.png from the results on Brown
"""

from __future__ import annotations

import pathlib
import statistics
from typing import Any, NamedTuple

from experiments import results, study
from experiments.beyond.lineage import ladder
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.utils.errors import BadInput

FIGURE = pathlib.Path(__file__).parent / 'lineage.png'
HEADER = ['rung', 'changes', 'what it changes', 'parameters', 'updates', 'epochs', 'train', 'valid', 'test', 'gain']
HEADER += ['seeds']
BASELINE = 'counts'


class Measured(NamedTuple):
    """The runs of a rung, one per seed."""

    runs: list[dict[str, Any]]

    def perplexity(self, split: str) -> float:
        """Returns the geometric mean over seeds."""
        return statistics.geometric_mean(run['perplexity'][split] for run in self.runs)


def read(corpus: str) -> dict[str, Measured]:
    """Returns the rungs with results, in the order of the ladder.

    Raises:
        BadInput: A file is damaged, or the settings of the run differ from the current settings of the rung.
    """
    found = {}
    for rung in ladder.RUNGS:
        names = sorted(path.stem for path in (ladder.RESULTS / corpus).glob(f'{rung}-*.json'))
        if not names:
            continue
        runs = [results.read(ladder.RESULTS / corpus, name) for name in names]
        config = ladder.get_config(ladder.row_of(rung, corpus))
        for name, run in zip(names, runs):
            if differing := ladder.differences(config, run['settings']):
                raise BadInput(
                    f'{corpus}/{name}.json',
                    f'the run used other values of {", ".join(differing)}; train the network again',
                )
        found[rung] = Measured(runs)
    return found


def gain(measured: dict[str, Measured], rung: str) -> float | None:
    """Returns the relative reduction in test perplexity compared with the parent rung, over their common seeds.

    The result is None if they have no common seed.
    """
    parent, own = (
        {run['seed']: run['perplexity']['test'] for run in measured[name].runs} if name in measured else {}
        for name in (ladder.RUNGS[rung].parent, rung)
    )
    ratios = [own[seed] / parent[seed] for seed in own.keys() & parent.keys()]
    return 1 - statistics.geometric_mean(ratios) if ratios else None


def rows(corpus: str) -> list[list[Any]]:
    """Returns one row per rung."""
    measured, table = read(corpus), []
    for rung, found in measured.items():
        run = found.runs[0]
        shape = [f'{run[key]:,.0f}' if key in run else '-' for key in ('parameters', 'updates')]
        epochs = f'{run["epochs"]:.1f}' if 'epochs' in run else '-'
        perplexities = [found.perplexity(split) for split in ('train', 'valid', 'test')]
        gained = gain(measured, rung)
        words = ladder.RUNGS[rung].parent or '-', ladder.RUNGS[rung].idea
        table.append(
            [rung, *words, *shape, epochs, *perplexities, '-' if gained is None else f'{gained:.1%}', len(found.runs)]
        )
    return table


def make() -> str:
    """Returns one table for each corpus with results."""
    found = {corpus: rows(corpus) for corpus in ladder.CORPORA}
    return '\n\n'.join(f'{corpus}:\n\n{markdown_table(HEADER, table)}' for corpus, table in found.items() if table)


def draw() -> None:
    """Draws each rung at its test perplexity, with a line from its parent rung."""
    import matplotlib.figure  # noqa: PLC0415 (only --figure needs it)

    measured = read(ladder.BROWN)
    if BASELINE not in measured:
        raise BadInput(
            f'{ladder.RESULTS}/{ladder.BROWN}',
            f'{BASELINE} is missing; train it with python -m experiments.runs lineage',
        )
    networks = [rung for rung in measured if rung != BASELINE]
    column = {rung: number for number, rung in enumerate(networks)}
    figure = matplotlib.figure.Figure(figsize=(11, 6.5), layout='constrained')
    axes = figure.subplots()
    for rung in networks:
        test = measured[rung].perplexity('test')
        if (parent := ladder.RUNGS[rung].parent) in column:
            ends = [column[parent], column[rung]], [measured[parent].perplexity('test'), test]
            axes.plot(*ends, color='0.7', zorder=1)
        tests = [run['perplexity']['test'] for run in measured[rung].runs]
        axes.scatter([column[rung]] * len(tests), tests, s=12, color='tab:blue', alpha=0.5, zorder=2)
        axes.scatter(column[rung], test, s=70, color='tab:blue', zorder=3)
        gained = gain(measured, rung)
        label = f'{test:.0f}' if gained is None else f'{test:.0f}\n{-gained:+.0%}'
        side: dict[str, Any] = {'xytext': (0, -9), 'va': 'top'} if column[rung] else {'xytext': (0, 9), 'va': 'bottom'}
        covers = {'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.5}  # over lines
        at = {'textcoords': 'offset points', 'ha': 'center', 'fontsize': 11, **side}
        axes.annotate(label, (column[rung], test), bbox=covers, zorder=2, **at)
    baseline = measured[BASELINE].perplexity('test')
    axes.axhline(baseline, color='tab:red', linestyle='--', linewidth=1)
    axes.annotate(
        f'modified Kneser-Ney 5-gram, {baseline:.0f}', (len(networks) - 1, baseline), xytext=(0, 5),
        textcoords='offset points', ha='right', color='tab:red', fontsize=11,
    )  # fmt: skip
    axes.set_yscale('log')
    axes.set_xticks(range(len(networks)), networks, rotation=40, ha='right')
    axes.set_yticks(ticks := [150, 200, 300, 400, 600, 1000], [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.margins(y=0.14)
    axes.set_ylabel('test perplexity on Brown (log scale)')
    axes.set_title('From 2003 to the Transformer: five minutes of training each, on 2 CPU cores')
    axes.spines[['top', 'right']].set_visible(False)
    save_figure(figure, FIGURE)
    print(FIGURE)


if __name__ == '__main__':
    study.run(
        __doc__,
        define=lambda parser: parser.add_switch('--figure', 'draw lineage.png from the committed results'),
        measure=lambda _: draw(),
        show=lambda _: make(),
        measure_if='figure',
    )
