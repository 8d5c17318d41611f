"""Prints the tables of the committed results.

    python -m experiments.use.reading_times.table                  the gain of every model
    python -m experiments.use.reading_times.table --questions      the answers to the protocol's questions
    python -m experiments.use.reading_times.table --figure         draws perplexity against gain

Dims: M models, S stories, R resamples.
"""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import results, study
from experiments.use.models import ADAPTED, BEST, COUNTED, MIXED, NETWORKS
from experiments.use.reading_times.natural_stories import CONTROL, GPT3
from nplm_jax.apps.psycholinguistics import gains
from nplm_jax.reporting.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'


class Model(NamedTuple):
    """A model, averaged over its seeds.

    Attributes:
        perplexity: The perplexity on the stories, as the geometric mean over seeds.
        sums_S: The gain in log-likelihood on each story, nats, as the mean over seeds.
        counts_S: The number of words in each story.
        gains: The gain of each seed, nats per word.
    """

    perplexity: float
    sums_S: np.ndarray
    counts_S: np.ndarray
    gains: list[float]

    @property
    def gain(self) -> float:
        """The gain per word, in nats, averaged over seeds."""
        return float(self.sums_S.sum() / self.counts_S.sum())


def read(folder: pathlib.Path = RESULTS) -> dict[str, Any]:
    """Returns the results. Raises BadInput if they are missing."""
    return results.read(folder, 'gains')


def models(measured: dict[str, Any], measure: str = 'log') -> dict[str, Model]:
    """Returns the models by name, with GPT-3 and the control last."""
    trained = {name: [*seeds.values()] for name, seeds in measured['models'].items()}
    anchors = {name: [anchor] for name, anchor in measured['anchors'].items()}
    counts_S = np.array(measured['stories']['counts'])
    return {name: _average(seeds, measure, counts_S) for name, seeds in {**trained, **anchors}.items()}


def _average(seeds: Sequence[Any], measure: str, counts_S: np.ndarray) -> Model:
    perplexity = math.exp(np.mean([math.log(seed['perplexity']) for seed in seeds]))
    sums_S = np.mean([seed[measure]['sums'] for seed in seeds], axis=0)
    return Model(perplexity, sums_S, counts_S, [seed[measure]['gain'] for seed in seeds])


def make_table(measured: dict[str, Any]) -> str:
    """Returns one row per model. Gains are in thousandths of a nat per word."""
    header = ['model', 'seeds', 'perplexity', 'gain', '95%', 'of seeds', 'gain, mean ms', '95%, mean ms']
    lines, in_ms = [], models(measured, 'mean')
    for name, model in models(measured).items():
        spread = f'{1000 * min(model.gains):.1f} to {1000 * max(model.gains):.1f}' if len(model.gains) > 1 else '-'
        perplexity = '-' if name == CONTROL else f'{model.perplexity:.1f}'
        cells = [*_cells(model.sums_S, model.counts_S), spread, *_cells(in_ms[name].sums_S, model.counts_S)]
        lines.append([name, f'{len(model.gains)}', perplexity, *cells])
    return markdown_table(header, lines)


def _cells(sums_S: np.ndarray, counts_S: np.ndarray) -> tuple[str, str]:
    """Returns a gain and its interval over stories."""
    return _thousandths(sums_S.sum() / counts_S.sum(), *gains.gain_interval(sums_S, counts_S))


def _thousandths(value: float, low: float, high: float) -> tuple[str, str]:
    return f'{1000 * value:.1f}', f'{1000 * low:.1f} to {1000 * high:.1f}'


def make_questions(measured: dict[str, Any]) -> str:
    """Returns the answers to the protocol's questions, one line each, with intervals over stories."""
    by_name = models(measured)
    own = [by_name[name] for name in measured['models']]
    value, (low, high) = correlate(own)
    lines = [['correlation of log perplexity with gain', f'{value:.2f}', f'{low:.2f} to {high:.2f}']]
    value, (low, high) = above_line(own, by_name[GPT3])
    lines.append([f'{GPT3} above the line through the models', *_thousandths(value, low, high)])
    for first, second in [*((name, COUNTED) for name in NETWORKS), (MIXED, BEST), (ADAPTED, BEST)]:
        difference_S = by_name[first].sums_S - by_name[second].sums_S
        lines.append([f'{first} minus {second}', *_cells(difference_S, by_name[first].counts_S)])
    return markdown_table(['question', 'answer', '95%'], lines)


def correlate(chosen: Sequence[Model]) -> tuple[float, tuple[float, float]]:
    """Returns Pearson's correlation of log perplexity and gain across models, and its interval over stories."""
    log_perplexity_M, statistic = _standardized(chosen), _gains_of(chosen)

    def correlation(stories_RxS: np.ndarray) -> np.ndarray:
        gains_RxM = statistic(stories_RxS)
        centred_RxM = gains_RxM - gains_RxM.mean(1, keepdims=True)
        return (centred_RxM @ log_perplexity_M) / np.linalg.norm(centred_RxM, axis=1)

    num_stories = len(chosen[0].counts_S)
    return float(correlation(np.arange(num_stories)[None])[0]), gains.interval(correlation, num_stories)


def above_line(chosen: Sequence[Model], anchor: Model) -> tuple[float, tuple[float, float]]:
    """Returns the residual of a model's gain from the regression line of the other models, and its interval."""
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
    """Returns log perplexities, centred and scaled to norm one."""
    log_perplexity_M = np.log([model.perplexity for model in chosen])
    centred_M = log_perplexity_M - log_perplexity_M.mean()
    return centred_M / np.linalg.norm(centred_M)


def _gains_of(chosen: Sequence[Model]) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the gain of each model as a statistic for `interval`, R x M."""
    sums_SxM, counts_S = np.stack([model.sums_S for model in chosen], axis=1), chosen[0].counts_S
    return lambda stories_RxS: sums_SxM[stories_RxS].sum(1) / counts_S[stories_RxS].sum(1)[:, None]


def draw(measured: dict[str, Any], path: pathlib.Path) -> None:
    """Draws the gain of each model by perplexity, with its interval over stories."""
    import matplotlib.figure  # noqa: PLC0415 (only the figure needs it)

    figure = matplotlib.figure.Figure(figsize=(9, 5), layout='constrained')
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(6, 1))
    shown = {name: model for name, model in models(measured).items() if name != CONTROL}
    for (name, model), marker in zip(shown.items(), itertools.cycle('osD^v<>dPX*')):
        axes = right if name == GPT3 else left
        low, high = gains.gain_interval(model.sums_S, model.counts_S)
        (line,) = axes.plot(model.perplexity, 1000 * model.gain, marker, markersize=7, label=name)
        axes.vlines(model.perplexity, 1000 * low, 1000 * high, line.get_color(), linewidth=0.8, alpha=0.5)
    for axes, ticks in ((left, (1000, 800, 700, 600, 500, 400, 300)), (right, (20, 10, 5))):
        axes.set(xscale='log', xlim=(ticks[0] * 1.1, ticks[-1] / 1.1))
        axes.set_xticks(ticks, map(str, ticks))
        axes.set_xticks([], minor=True)
        axes.axhline(0, color='black', linewidth=0.8)
        axes.grid(alpha=0.3)
    left.set(xlabel='perplexity on the stories, per word', ylabel='gain, thousandths of a nat per word')
    figure.legend(fontsize=8, loc='outside right upper')
    right.set(title=GPT3)
    save_figure(figure, path)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--questions', "print the answers to the protocol's questions")
    parser.add_switch('--figure', 'also draw a figure of the perplexities and gains')


def show(flags: study.Flags) -> str:
    """Returns a table. Draws the figure if requested."""
    measured = read()
    if flags.figure:
        draw(measured, HERE / 'gains.png')
    return (make_questions if flags.questions else make_table)(measured)


if __name__ == '__main__':
    study.run(__doc__, define=define, show=show)
