"""Measures what a softmax temperature would gain after training: log P^(1/T) of finished runs, on validation words.

    python -m experiments.beyond.frontier.temperature RUN...    measures runs and writes results/temperature/NAME.json
    python -m experiments.beyond.frontier.temperature           the table of the committed results

References:
    Guo et al., On calibration of modern neural networks, 2017: temperature scaling.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import tqdm

from experiments import results, study
from nplm_jax.data.dataset import Dataset
from nplm_jax.inference.perplexity import nll_to_perplexity
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import loading, workdir

RESULTS = pathlib.Path(__file__).parent / 'results' / 'temperature'
INVERSE_TEMPERATURES = 0.9, 0.95, 0.975, 1.0, 1.025, 1.05, 1.1
STRETCHES, READ, PREDICTED = 60, 96, 64  # stretches of words, the words read first in each, and the words predicted


def measure(model: LanguageModel, data: Dataset) -> dict[str, Any]:
    """Returns the perplexity of validation words at each inverse temperature."""
    starts = np.linspace(data.valid.start, data.valid.stop - READ - PREDICTED - 1, STRETCHES).astype(int)
    nll, num_words = np.zeros(len(INVERSE_TEMPERATURES)), STRETCHES * PREDICTED
    for start in tqdm.tqdm(starts, disable=None):
        ids_1xL = np.asarray(data.tokens_T[start : start + READ + PREDICTED])[None]
        state = model.prefill(ids_1xL[:, :READ])
        first_1xV = model.predict(state)
        others_1xLxV, _ = model.read(state, ids_1xL[:, READ:-1])
        log_p_LxV = np.concatenate([first_1xV, others_1xLxV[0]]).astype(np.float64)
        log_p_L = log_p_LxV[np.arange(PREDICTED), ids_1xL[0, READ:]]
        for i, power in enumerate(INVERSE_TEMPERATURES):
            nll[i] += np.sum(np.log(np.exp(power * log_p_LxV).sum(axis=1)) - power * log_p_L)
    perplexities = [nll_to_perplexity(each / num_words) for each in nll]
    return {'words': num_words, 'perplexity': dict(zip(map(str, INVERSE_TEMPERATURES), perplexities))}


def table() -> str:
    """Returns a row for each run."""
    found = [results.read(RESULTS, path.stem) for path in sorted(RESULTS.glob('*.json'))]
    rows = [[each['name'], each['words'], *each['perplexity'].values()] for each in found]
    return markdown_table(['run', 'words', *(f'1/T = {power}' for power in INVERSE_TEMPERATURES)], rows)


def define(parser: study.StudyParser) -> None:
    """Adds the runs."""
    parser.add_argument('runs', nargs='*', metavar='RUN', help='folders of runs; default: print the committed results')


def main(flags: study.Flags) -> None:
    """Measures the runs and writes a file of each."""
    for folder in flags.runs:
        workdir.read_settings(pathlib.Path(folder))
    for folder in flags.runs:
        loaded = loading.load(folder)
        settings, model = loaded.settings, loaded.model
        data = loading.prepare_recorded(settings, folder)
        measured = {'name': settings.name, **measure(model, data), **provenance.provenance()}
        RESULTS.mkdir(exist_ok=True)
        results.write(RESULTS / f'{settings.name.replace("brown-", "")}.json', measured)
    print(table())


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=lambda _: table(), measure_if='runs')
