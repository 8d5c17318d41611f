"""Prints the test perplexity by training time on 2 cores, and the gain from adaptation, from the committed results.

    python -m experiments.beyond.frontier.table [--summary | --seeds | --changes | --figure]

--summary prints the five rows of the README, --seeds prints the rows with several seeds, --changes prints the gains
from changes to a network, and --figure draws frontier.png.
"""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from configs import brown
from experiments import results, study
from experiments.points import CHANGES, FRONTIER, seed_result
from nplm_jax.apps.adaptive import command as adapt
from nplm_jax.reporting.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
ADAPTED = 'adapted', 'adapted_kn5'  # the second uses the cache that mixes best with the 5-gram
# Results folder -> file names, which are presets of configs/brown.py.
OTHERS = {'table1': ('modified_kneser_ney_5', 'default', 'mlp9', 'mlp1', 'large'), 'recurrent': ('rnn', 'gru', 'lstm')}
HEADER = [
    'run', 'family', 'parameters', 'epochs', 'seconds', 'processor s', 'calibrated', 'valid', 'test', '/ KN5',
    'mixed: test',
]  # fmt: skip
KN5 = 'modified_kneser_ney_5'
TABLE1 = results.folder('table1')
SUMMARY = {  # preset -> its description and the location of its results
    'kneser_ney_5': ('5-gram, back-off Kneser-Ney', TABLE1),
    'mlp1': ("the paper's MLP1: n=5, m=60, h=50, direct connections", TABLE1),
    'default': ("the paper's network, larger: n=13, m=80, h=200", TABLE1),
    'one_minute': ('Mogrifier LSTM with attention', RESULTS),
    'five_minutes': ('a larger Mogrifier LSTM with attention', RESULTS),
}
SUMMARY_HEADER = ['model', 'nplm train', 'time', 'test perplexity', 'in the paper']
MINUTES = (1, 5, 20, 60)
NAMED = {  # labels in the figure: name of a run, offset from its marker (points), and alignment
    'modified_kneser_ney_5': ('5-gram', 9, 4, 'left'),
    'mlp1': ("the paper's MLP1", 0, 11, 'center'),
    'default': ("the paper's network, larger", 0, 11, 'center'),
    'residual': ('residual window network', 0, -12, 'center'),
    'lstm': ('LSTM', 9, 2, 'left'),
    'one_minute': ('Mogrifier LSTM with attention', -9, -8, 'right'),
    'five_minutes': ('larger', -4, -11, 'right'),
    'mixture_of_6': ('six models mixed', -9, -10, 'right'),
}
COLOURS = {(True, True): 'tab:blue', (True, False): 'tab:orange', (False, True): '#a9c7e8', (False, False): '#f3cfa8'}


class Point(NamedTuple):
    """A finished run.

    Attributes:
        name: The preset of configs/brown.py.
        recorded: The content of results.json. Its `processor_seconds` cover all threads and include the evaluation.
    """

    name: str
    recorded: dict[str, Any]

    @property
    def seconds(self) -> float:
        """The wall time until the end of training."""
        return self.recorded['seconds']

    @property
    def test(self) -> float:
        """Test perplexity."""
        return self.recorded['perplexity']['test']


def points() -> list[Point]:
    """Returns all runs on Brown, fastest first: the runs of this study and those of other studies."""
    own = [Point(path.stem, results.read(RESULTS, path.stem)) for path in RESULTS.glob('*.json')]
    elsewhere = [
        Point(name, results.read(results.folder(other), name)) for other, names in OTHERS.items() for name in names
    ]
    runs = [point for point in (*own, *elsewhere) if point.name not in ADAPTED]
    return sorted(runs, key=lambda point: point.seconds)


def rows(all_points: Iterable[Point]) -> list[list[Any]]:
    """Returns one row per run. On Brown, calibrated networks are compared with the calibrated 5-gram."""
    (reference,) = (point.test for point in all_points if point.name == KN5)
    references = {'-': reference, 'yes': results.read(RESULTS / 'calibration', KN5)['after']['test']}
    table = []
    for name, recorded in all_points:
        numbers = [
            f'{recorded[key]:,.0f}' if key in recorded else '-'
            for key in ('parameters', 'epochs', 'seconds', 'processor_seconds')
        ]
        calibrated = 'yes' if 'calibration_words' in recorded else '-'
        perplexities = [recorded['perplexity'][split] for split in ('valid', 'test')]
        ratio = f'{perplexities[1] / references[calibrated]:.2f}'
        mixed = recorded.get('mixture', {}).get('by_frequency', {}).get('test', '-')
        table.append([name, recorded['family'], *numbers, calibrated, *perplexities, ratio, mixed])
    return table


def frontier(sorted_points: list[Point]) -> list[Point]:
    """Returns the Pareto front, that is, the runs that no faster run beats."""
    best: list[Point] = []
    for point in sorted_points:
        if not best or point.test < best[-1].test:
            best.append(point)
    return best


def draw(path: pathlib.Path) -> None:
    """Draws all runs on logarithmic axes, with labels for the runs in NAMED and a line through the Pareto front."""
    import matplotlib.figure  # noqa: PLC0415 (only --figure needs it)

    all_points = points()
    figure = matplotlib.figure.Figure(figsize=(8, 4.5), layout='constrained')
    axes = figure.subplots()
    best = frontier(all_points)
    axes.plot([p.seconds for p in best], [p.test for p in best], '-', color='gray', linewidth=1, zorder=0)
    for point in all_points:
        name, *side = NAMED.get(point.name, ('',))
        axes.plot(point.seconds, point.test, 'o', color=COLOURS[bool(name), point.recorded['family'] == 'nplm'])
        if name:
            x, y, aligned = side
            at: dict[str, Any] = {'xytext': (x, y), 'textcoords': 'offset points', 'ha': aligned, 'va': 'center'}
            axes.annotate(name, (point.seconds, point.test), fontsize=11, **at)
    ticks = (120, 130, 140, 160, 180, 200, 240, 280)
    axes.set(xscale='log', yscale='log', xlim=(0.3, 13_000), ylim=(110, 320))
    axes.set_xlabel('training time on two CPU cores', fontsize=11)
    axes.set_title('Test perplexity on Brown', loc='left', fontsize=12)
    axes.minorticks_off()
    axes.set_yticks(ticks, [str(tick) for tick in ticks], fontsize=11)
    axes.set_xticks([1, 10, *(60 * minutes for minutes in MINUTES)], ['1 s', '10 s', *(f'{m} min' for m in MINUTES)])
    axes.tick_params(axis='x', labelsize=11)
    axes.grid(axis='y', color='0.92')
    axes.spines[['top', 'right']].set_visible(False)
    save_figure(figure, path)


def summarize() -> str:
    """Returns the table of the README."""
    table = []
    for name, (what, folder) in SUMMARY.items():
        recorded = results.read(folder, name)
        seconds, (*_, paper) = recorded['seconds'], brown.PAPER.get(name, (0.0,))
        time = f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min'
        words = 'brown' if name == 'default' else f'brown:{name}'
        cells = [what, f'`{words}`', time, recorded['perplexity']['test'], f'{paper:.0f}' if paper else '-']
        table.append(cells)
    return markdown_table(SUMMARY_HEADER, table)


def seeds() -> str:
    """Returns the tables of rows with several seeds, and of the gains from calibration."""
    table = []
    for corpus, folder in {'brown': RESULTS, 'wikitext2': results.folder('wikitext2')}.items():
        for preset, numbers in FRONTIER[corpus].items():
            paths = (seed_result(folder, preset, seed) for seed in numbers)
            found = [results.read(path.parent, path.stem) for path in paths if path.exists()]
            tests = [each['perplexity']['test'] for each in found]
            shares = [1 - each['postprocessing']['after'] / each['postprocessing']['before'] for each in found]
            means = f'{statistics.mean(tests):.1f}', f'{statistics.mean(shares):.1%}'
            table.append([corpus, preset, ', '.join(f'{test:.1f}' for test in tests), *means])
    return markdown_table(['corpus', 'row', 'test, by seed', 'mean', 'calibration'], table)


def changes() -> str:
    """Returns the table of changes to `one_minute` that have a result, from the largest gain to the largest loss."""
    base = results.read(RESULTS, 'one_minute')
    table = []
    for name, keys in CHANGES.items():
        if (RESULTS / 'changes' / f'{name}.json').exists():
            found = results.read(RESULTS / 'changes', name)
            valid, unchanged = (each['perplexity']['valid'] for each in (found, base))
            changed = ', '.join(f'`{key}={value}`' for key, value in keys.items())
            time = f'{found["seconds"] / base["seconds"]:.2f}' if found['device'] == base['device'] else '-'
            table.append([changed, valid, found['perplexity']['test'], f'{1 - valid / unchanged:.1%}', time])
    table.sort(key=lambda row: row[1])
    return markdown_table(['change', 'valid', 'test', 'gain', 'time'], table)


def make() -> str:
    """Returns the table of the runs on Brown, and the tables of adaptive models."""
    adapted = (adapt.make_table(results.read(RESULTS, name)['rows']) for name in ADAPTED)
    return '\n\n'.join([markdown_table(HEADER, rows(points())), *adapted])


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--summary', 'print only the five rows that the README shows')
    parser.add_switch('--seeds', 'print the rows that have results for several seeds')
    parser.add_switch('--changes', 'print the gains from changes to a network')
    parser.add_switch('--figure', 'also draw frontier.png')


def show(flags: study.Flags) -> str:
    """Returns all tables or the summary. Draws the figure if requested."""
    if flags.summary:
        return summarize()
    if flags.seeds:
        return seeds()
    if flags.changes:
        return changes()
    if flags.figure:
        draw(HERE / 'frontier.png')
    return make()


if __name__ == '__main__':
    study.run(__doc__, define=define, show=show)
