"""Reports the results of a search in a table of trials and figures, with the command line of the best trial."""

import itertools
import math
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from nplm_jax.reporting import catalog, figures
from nplm_jax.reporting.text import markdown_table, null_to_inf
from nplm_jax.utils.io import write_atomically


def trial_name(trial: FrozenTrial) -> str:
    """Returns the name of a trial's folder. A retried trial uses the folder of the original trial."""
    return f'trial-{trial.system_attrs.get("failed_trial", trial.number):04}'


def write(study: optuna.Study, folder: pathlib.Path, command_of: Callable[[Mapping[str, Any]], str]) -> str:
    """Writes table.md, and the figures importance.png and slices.png.

    Figures are drawn only if two or more complete trials predict the same words.

    Args:
        study: The study.
        folder: The folder of the search.
        command_of: A function that returns the command line that trains a point.

    Returns:
        The table (best trial first), the paths of the figures, and the command line of the best trial. If the trials
        predict different words, the figures and the command line are omitted.
    """
    finished = study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))
    finished.sort(key=lambda trial: (trial.state != TrialState.COMPLETE, null_to_inf(trial.value)))
    points = [trial.user_attrs.get('point', {}) for trial in finished]
    keys = [key for key in dict.fromkeys(itertools.chain(*points)) if len({point.get(key) for point in points}) > 1]
    rows = []
    for trial, point in zip(finished, points):
        state, seconds = trial.user_attrs.get('state', trial.state.name.lower()), trial.user_attrs.get('seconds', '-')
        of_keys = (_format(point.get(key, '-')) for key in keys)
        rows.append([trial_name(trial), *of_keys, null_to_inf(trial.value), state, seconds])
    table = markdown_table(['trial', *keys, 'valid', 'state', 'seconds'], rows)
    write_atomically(folder / 'table.md', table + '\n')
    complete = [trial for trial in finished if trial.state == TrialState.COMPLETE and math.isfinite(trial.value)]
    lines = [table]
    folders = [path for trial in complete if (path := folder / trial_name(trial)).exists()]
    if len({catalog.read_run(path).text for path in folders}) > 1:
        lines.append('The trials differ in their words or vocabulary, so their perplexities are not comparable')
        return '\n'.join(lines)
    if len(complete) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # hide warnings about too few trials
            importances = optuna.importance.get_param_importances(study)
        values = [(trial.params, trial.value) for trial in complete]
        figure = figures.draw_importances(importances, folder / 'importance.png')
        lines += [f'Figure: {figure}', f'Figure: {figures.draw_slices(values, folder / "slices.png")}']
    if complete:
        best = complete[0]
        lines.append(f'Best on validation: {folder / trial_name(best)}; to train it again:')
        lines.append(f'  {command_of(best.user_attrs["point"])}')
    else:
        lines.append('No trial is complete.')
    return '\n'.join(lines)


def _format(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)
