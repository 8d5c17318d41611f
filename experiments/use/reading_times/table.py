"""Prints the tables of the committed results.

    python -m experiments.use.reading_times.table                  the gain of every model
    python -m experiments.use.reading_times.table --questions      the answers to the protocol's questions
    python -m experiments.use.reading_times.table --figure         draws perplexity against gain

Dims: M models, S stories, R resamples.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import results, study
from nplm_jax.apps.psycholinguistics import gains
from nplm_jax.reporting.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
ALL_WORDS = '800000'
KN5 = 'modified_kneser_ney_5'
COLOURS = {'kneser_ney': 'tab:blue', 'interpolated': 'tab:cyan', 'classes': 'tab:green', 'mlp': 'tab:red'}
COLOURS |= {'residual': 'tab:brown', 'rnn': 'tab:olive', 'gru': 'tab:orange', 'lstm': 'tab:purple'}


class Model(NamedTuple):
    """A model, averaged over its seeds.

    Attributes:
        name: The name of the model.
        words: The number of training words as recorded; '' for GPT-3 and the control.
        perplexity: The perplexity of the stories, the geometric mean over seeds.
        sums_S: The gain in log-likelihood of each story, nats, the mean over seeds.
        counts_S: The number of words of each story.
        gains: The gain of each seed, nats per word.
    """

    name: str
    words: str
    perplexity: float
    sums_S: np.ndarray
    counts_S: np.ndarray
    gains: list[float]

    @property
    def gain(self) -> float:
        """The gain per word, the mean over seeds, nats."""
        return float(self.sums_S.sum() / self.counts_S.sum())


def read(folder: pathlib.Path = RESULTS) -> dict[str, Any]:
    """Returns the results. Raises BadInput if they are missing."""
    return results.read(folder, 'gains')


def models(measured: dict[str, Any], measure: str = 'log') -> list[Model]:
    """Returns all models by name and training words, with GPT-3 and the control last."""
    trained = [
        _model(name, words, list(seeds.values()), measured, measure)
        for name, sizes in measured['models'].items()
        for words, seeds in sorted(sizes.items(), key=lambda item: int(item[0]))
    ]
    anchors = measured['anchors'].items()
    return trained + [_model(name, '', [anchor], measured, measure) for name, anchor in anchors]


def _model(name: str, words: str, seeds: Sequence[Any], measured: dict[str, Any], measure: str) -> Model:
    return Model(
        name,
        words,
        math.exp(np.mean([math.log(seed['perplexity']) for seed in seeds])),
        np.mean([seed[measure]['sums'] for seed in seeds], axis=0),
        np.array(measured['stories']['counts']),
        [seed[measure]['gain'] for seed in seeds],
    )


def make_table(measured: dict[str, Any]) -> str:
    """Returns one row per model; gains are in thousandths of a nat per word."""
    header = ['model', 'training words', 'seeds', 'perplexity', 'gain', '95%', 'of seeds', 'gain, mean ms']
    header += ['95%, mean ms']
    lines = []
    for model, other in zip(models(measured), models(measured, 'mean')):
        spread = f'{1000 * min(model.gains):.1f} to {1000 * max(model.gains):.1f}' if len(model.gains) > 1 else '-'
        words = f'{int(model.words):,}' if model.words else '-'
        perplexity = '-' if 'shuffled' in model.name else f'{model.perplexity:.1f}'
        cells = [*_cells(model.sums_S, model.counts_S)[:2], spread, *_cells(other.sums_S, other.counts_S)[:2]]
        lines.append([model.name, words, f'{len(model.gains)}', perplexity, *cells])
    return markdown_table(header, lines)


def _cells(sums_S: np.ndarray, counts_S: np.ndarray) -> tuple[str, str]:
    """Returns a gain and its interval over stories."""
    low, high = gains.interval(gains.mean_gain(sums_S, counts_S), len(counts_S))
    return f'{1000 * sums_S.sum() / counts_S.sum():.1f}', f'{1000 * low:.1f} to {1000 * high:.1f}'


def make_questions(measured: dict[str, Any]) -> str:
    """Returns the answers to questions 2 to 4, one line each, with intervals over stories."""
    by_name = {(model.name, model.words): model for model in models(measured)}
    own = [model for (_, words), model in by_name.items() if words]
    lines = []
    for name, chosen in {'all sizes': own, 'all words': [m for m in own if m.words == ALL_WORDS]}.items():
        value, (low, high) = correlate(chosen)
        lines.append([f'correlation of log perplexity with gain, {name}', f'{value:.2f}', f'{low:.2f} to {high:.2f}'])
    anchor = by_name['GPT-3', '']
    value, (low, high) = above_line(own, anchor)
    lines.append(
        ['GPT-3 above the line through all sizes', f'{1000 * value:.1f}', f'{1000 * low:.1f} to {1000 * high:.1f}']
    )
    pairs = [((name, ALL_WORDS), (name, '100000')) for name in ('lstm', 'mlp9', 'kneser_ney_5')]
    pairs += [((name, ALL_WORDS), (KN5, ALL_WORDS)) for name in ('lstm', 'residual')]
    pairs += [(('lstm, adapted', ALL_WORDS), ('lstm', ALL_WORDS))]
    for first, second in pairs:
        if first in by_name and second in by_name:
            names = [f'{name} on {int(words):,}' for name, words in (first, second)]
            difference_S = by_name[first].sums_S - by_name[second].sums_S
            lines.append([' minus '.join(names), *_cells(difference_S, by_name[first].counts_S)])
    return markdown_table(['question', 'answer', '95%'], lines)


def correlate(chosen: Sequence[Model]) -> tuple[float, tuple[float, float]]:
    """Returns Pearson's correlation of log perplexity with gain over models, and its interval over stories."""
    log_perplexity_M, statistic = _standardized(chosen), _gains_of(chosen)

    def correlation(stories_RxS: np.ndarray) -> np.ndarray:
        gains_RxM = statistic(stories_RxS)
        centred_RxM = gains_RxM - gains_RxM.mean(1, keepdims=True)
        return (centred_RxM @ log_perplexity_M) / np.linalg.norm(centred_RxM, axis=1)

    num_stories = len(chosen[0].counts_S)
    return float(correlation(np.arange(num_stories)[None])[0]), gains.interval(correlation, num_stories)


def above_line(chosen: Sequence[Model], anchor: Model) -> tuple[float, tuple[float, float]]:
    """Returns the residual of a model's gain from the regression line of other models, and its interval."""
    log_perplexity_M, statistic = np.log([m.perplexity for m in chosen]), _gains_of(chosen)
    slope_M = (log_perplexity_M - log_perplexity_M.mean()) / np.var(log_perplexity_M) / len(chosen)
    distance = math.log(anchor.perplexity) - log_perplexity_M.mean()

    def above(stories_RxS: np.ndarray) -> np.ndarray:
        gains_RxM = statistic(stories_RxS)
        line_R = gains_RxM.mean(1) + distance * (gains_RxM @ slope_M)
        return gains.mean_gain(anchor.sums_S, anchor.counts_S)(stories_RxS) - line_R

    num_stories = len(anchor.counts_S)
    return float(above(np.arange(num_stories)[None])[0]), gains.interval(above, num_stories)


def _standardized(chosen: Sequence[Model]) -> np.ndarray:
    """Returns centred log perplexities with norm one."""
    log_perplexity_M = np.log([model.perplexity for model in chosen])
    centred_M = log_perplexity_M - log_perplexity_M.mean()
    return centred_M / np.linalg.norm(centred_M)


def _gains_of(chosen: Sequence[Model]) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the gain of each model as a statistic for `interval`, R x M."""
    sums_SxM, counts_S = np.stack([model.sums_S for model in chosen], axis=1), chosen[0].counts_S
    return lambda stories_RxS: sums_SxM[stories_RxS].sum(1) / counts_S[stories_RxS].sum(1)[:, None]


def draw(measured: dict[str, Any], path: pathlib.Path) -> None:
    """Draws the gain of each model by perplexity, with a line through the sizes of each family."""
    import matplotlib.figure  # noqa: PLC0415 (only the figure needs it)

    figure = matplotlib.figure.Figure(figsize=(8, 5), layout='constrained')
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(6, 1))
    families: dict[str, list[Model]] = {}
    for model in models(measured):
        if 'shuffled' not in model.name:
            families.setdefault(model.name, []).append(model)
    for name, sizes in families.items():
        axes, last = (right if name == 'GPT-3' else left), sizes[-1]
        colour = next((c for family, c in COLOURS.items() if family in name.split(' + ')[0]), 'black')
        marker = '*' if ',' in name or '+' in name else name[-1] if 'kneser_ney' in name else 'o'
        marker = f'${marker}$' if marker.isdigit() else marker
        x, y = [m.perplexity for m in sizes], [1000 * m.gain for m in sizes]
        axes.plot(x, y, marker=marker, color=colour, markersize=6, linewidth=1, alpha=0.8, label=name)
        ends = gains.interval(gains.mean_gain(last.sums_S, last.counts_S), len(last.counts_S))
        axes.plot([last.perplexity] * 2, [1000 * end for end in ends], color=colour, linewidth=0.8, alpha=0.35)
    for axes, ticks in ((left, (1400, 1200, 1000, 800, 700, 600, 500, 400)), (right, (20, 10, 5))):
        axes.set(xscale='log', xlim=(ticks[0] * 1.1, ticks[-1] / 1.1))
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.axhline(0, color='black', linewidth=0.8)
        axes.grid(alpha=0.3)
    left.set(xlabel='perplexity on the stories, per word', ylabel='gain, thousandths of a nat per word')
    left.set(title='Reading times: lines join 100,000 to 800,000 words')
    left.legend(fontsize=8, loc='upper left')
    right.set(title='GPT-3')
    save_figure(figure, path)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--questions', "print the answers to the protocol's questions")
    parser.add_switch('--figure', 'also draw a figure of the perplexities and gains')


def show(flags: study.Flags) -> str:
    """Returns a table; draws the figure if requested."""
    measured = read()
    if flags.figure:
        draw(measured, HERE / 'gains.png')
    return (make_questions if flags.questions else make_table)(measured)


if __name__ == '__main__':
    study.run(__doc__, define=define, show=show)
