"""Prints the tables of the minimal pairs from results/*.json, and draws the figure.

python -m experiments.use.minimal_pairs.table                 accuracy by subset and by phenomenon
python -m experiments.use.minimal_pairs.table --paradigms     accuracy by paradigm
python -m experiments.use.minimal_pairs.table --figure        draws phenomena.png
"""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments import results, study
from experiments.use.models import COUNTS, NETWORKS
from nplm_jax.apps.psycholinguistics import minimal_pairs
from nplm_jax.apps.psycholinguistics.minimal_pairs import SUBSETS
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.untrusted import read_json

HERE = pathlib.Path(__file__).parent
PUBLISHED = {'ngram': '5-gram', 'lstm': 'LSTM', 'txl': 'Transformer-XL', 'gpt2': 'GPT-2'}
MODELS = (*COUNTS, *NETWORKS, 'mixture')
SHOWN = ('kneser_ney_5', 'classes_500', *NETWORKS, 'mixture')  # by phenomenon
Results = dict[str, list[dict[str, Any]]]  # model -> the results of its seeds


def read(folder: pathlib.Path = HERE / 'results') -> Results:
    """Returns the results by model, in the order of MODELS. Models that were not measured are omitted.

    Raises:
        BadInput: There are no results.
    """
    runs = [results.load(path) for path in sorted(folder.glob('*.json')) if path.name != 'published.json']
    if not runs:
        raise BadInput(folder, 'contains no results; run experiments.use.minimal_pairs.measure')
    by_model = {model: [run for run in runs if run['model'] == model] for model in MODELS}
    return {model: seeds for model, seeds in by_model.items() if seeds}


def accuracy(counts: Iterable[Sequence[int]]) -> float:
    """Returns `minimal_pairs.accuracy` over all paradigms, given the three numbers of `count` for each."""
    return minimal_pairs.accuracy([sum(column) for column in zip(*counts)] or [0, 0, 0])


def of_seeds(seeds: Sequence[Mapping[str, Any]], subset: str, paradigms: Iterable[str]) -> str:
    """Returns the mean accuracy over seeds in percent, with the standard deviation if there are several."""
    kept = list(paradigms)
    values = [100 * accuracy(seed['counts'][subset][paradigm] for paradigm in kept) for seed in seeds]
    spread = f' ± {statistics.stdev(values):.1f}' if len(values) > 1 else ''
    return f'{statistics.mean(values):.1f}{spread}'


def subsets_table(by_model: Results, published: Mapping[str, Any]) -> str:
    """Returns the accuracy of each model on each subset, followed by published results."""
    first = next(iter(by_model.values()))[0]
    sizes = [sum(row[0] for row in first['counts'][subset].values()) for subset in SUBSETS]
    titles = ('all pairs', 'differing words known', 'all words known')
    header = ['model', 'seeds', *(f'{title} ({size:,})' for title, size in zip(titles, sizes)), 'ties']
    rows = []
    for model, seeds in by_model.items():
        ties = statistics.mean(sum(row[2] for row in seed['counts']['all'].values()) for seed in seeds)
        cells = [of_seeds(seeds, subset, first['paradigms']) for subset in SUBSETS]
        rows.append([model, str(len(seeds)), *cells, f'{ties:,.0f}'])
    for key, title in PUBLISHED.items():
        mean = statistics.mean(published['accuracy'][paradigm][key] for paradigm in first['paradigms'])
        rows.append([f'{title}, published', '', f'{100 * mean:.1f}', '', '', ''])
    return markdown_table(header, rows)


def groups(first: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the paradigms of each phenomenon, keyed by its name and field."""
    grouped: dict[str, list[str]] = {}
    for paradigm, (phenomenon, field) in first['paradigms'].items():
        grouped.setdefault(f'{phenomenon.replace("_", " ")} ({field})', []).append(paradigm)
    return dict(sorted(grouped.items()))


def phenomena_table(by_model: Results, published: Mapping[str, Any]) -> str:
    """Returns the accuracy by phenomenon, on all pairs."""
    return _by_group(by_model, published, groups(next(iter(by_model.values()))[0]), 'phenomenon (field)')


def paradigms_table(by_model: Results, published: Mapping[str, Any]) -> str:
    """Returns the accuracy by paradigm, on all pairs."""
    return _by_group(by_model, published, {p: [p] for p in next(iter(by_model.values()))[0]['paradigms']}, 'paradigm')


def _by_group(by_model: Results, published: Mapping[str, Any], rows: Mapping[str, Sequence[str]], title: str) -> str:
    first, shown = next(iter(by_model.values()))[0], [model for model in SHOWN if model in by_model]
    table = []
    for name, paradigms in rows.items():
        known = sum(first['counts']['full'][p][0] for p in paradigms) / sum(
            first['counts']['all'][p][0] for p in paradigms
        )
        others = [100 * statistics.mean(published['accuracy'][p][key] for p in paradigms) for key in PUBLISHED]
        cells = [of_seeds(by_model[model], 'all', paradigms) for model in shown]
        table.append([name, f'{known:.0%}', *cells, *(f'{value:.1f}' for value in others)])
    return markdown_table([title, 'all words known', *shown, *PUBLISHED.values()], table)


def draw(by_model: Results, published: Mapping[str, Any], path: pathlib.Path) -> None:
    """Draws the accuracy by phenomenon, with one row of points per model."""
    import matplotlib.figure  # noqa: PLC0415 (only the figure needs it)

    figure = matplotlib.figure.Figure(figsize=(9, 6), layout='constrained')
    axes, rows = figure.subplots(), groups(next(iter(by_model.values()))[0])
    places = range(len(rows))
    for model, marker in zip((m for m in SHOWN if m in by_model), 'sDv^<>oP'):
        values = [[accuracy(seed['counts']['all'][p] for p in ps) for seed in by_model[model]] for ps in rows.values()]
        axes.plot([100 * statistics.mean(v) for v in values], places, marker, label=model, alpha=0.8)
    for key, marker in zip(PUBLISHED, '1234'):
        values = [100 * statistics.mean(published['accuracy'][p][key] for p in ps) for ps in rows.values()]
        axes.plot(values, places, marker, color='black', label=f'{PUBLISHED[key]}, published', markersize=9)
    axes.axvline(50, color='grey', linewidth=0.8)
    axes.set_yticks(places, list(rows))
    axes.set_xlabel('accuracy on all pairs, %')
    axes.grid(axis='y', alpha=0.3)
    figure.legend(loc='outside right upper')
    save_figure(figure, path)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--paradigms', 'print the table of paradigms')
    parser.add_switch('--figure', 'also draw phenomena.png')


def make(flags: study.Flags) -> str:
    """Returns the tables. Draws the figure if requested."""
    by_model, published = read(), read_json(HERE / 'results' / 'published.json')
    if flags.figure:
        draw(by_model, published, HERE / 'phenomena.png')
    if flags.paradigms:
        return paradigms_table(by_model, published)
    return '\n\n'.join([subsets_table(by_model, published), phenomena_table(by_model, published)])


if __name__ == '__main__':
    study.run(__doc__, define=define, show=make)
