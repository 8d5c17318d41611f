"""Measures the perplexity gain from calibration, for networks and for count-based models.

    python -m experiments.beyond.frontier.calibration RUN...    measures runs and writes results/calibration/NAME.json
    python -m experiments.beyond.frontier.calibration           the table of the committed results

`train.calibrate` does this at the end of training (nplm_jax/training/calibration.py). Train the networks with
`--config.train.calibrate=False`.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import tqdm

from experiments import results, study
from nplm_jax.data import mapped_arrays
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span, with_history
from nplm_jax.inference.perplexity import nll_to_perplexity
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import loading, workdir
from nplm_jax.training import calibration
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results' / 'calibration'
BATCH = 256  # contexts of which a count-based model computes all next words at once


def group_probabilities(model: LanguageModel, tokens_T: np.ndarray, span: Span, groups_V: np.ndarray) -> np.ndarray:
    """Returns the total probability of each group of words at each position of a span, len(span) x G."""
    if isinstance(model, NeuralLanguageModel):
        return model.group_probabilities(tokens_T, span, groups_V)
    assert model.n is not None
    num_before = model.n - 1
    contexts_TxN = np.lib.stride_tricks.sliding_window_view(with_history(tokens_T, span, num_before), num_before)
    is_member_VxG = np.eye(groups_V.max() + 1, dtype=np.float32)[groups_V]
    blocks = [
        np.exp(model.next_word(contexts_TxN[start : min(start + BATCH, len(span))])) @ is_member_VxG
        for start in tqdm.trange(0, len(span), BATCH, disable=None)
    ]
    return np.concatenate(blocks)


def measure(model: LanguageModel, data: Dataset) -> dict[str, Any]:
    """Returns the perplexities before and after calibration, and what describes each group of words.

    Args:
        model: A model that is not calibrated.
        data: Its corpus.
    """
    counts_V = mapped_arrays.bincount(data.train_words, len(data.vocabulary))
    groups_V = calibration.group_by_count(counts_V)
    tokens_T = np.asarray(data.tokens_T)
    spans = {name: data.splits[name] for name in ('valid', 'test')}
    probabilities = {name: group_probabilities(model, tokens_T, span, groups_V) for name, span in spans.items()}
    groups = {name: groups_V[tokens_T[span.start : span.stop]] for name, span in spans.items()}
    start = data.valid.start
    sample = np.concatenate([np.arange(s.start, s.stop) - start for s in calibration.calibration_spans(data)])
    d_G = calibration.fit_offsets(probabilities['valid'][sample], groups['valid'][sample])
    before, after = {}, {}
    for name, span in spans.items():
        log_p_T = model.score(tokens_T, span).astype(np.float64)
        gains_T = d_G[groups[name]] - np.log(probabilities[name] @ np.exp(d_G))
        before[name], after[name] = (nll_to_perplexity(-np.mean(x)) for x in (log_p_T, log_p_T + gains_T))
    return {
        'before': before,
        'after': after,
        'groups': [
            {
                'counts': [int(counts_V[groups_V == group].min()), int(counts_V[groups_V == group].max())],
                'num_words': int((groups_V == group).sum()),
                'share': float(np.mean(groups['valid'] == group)),
                'probability': float(probabilities['valid'][:, group].mean()),
                'offset': float(d_G[group]),
            }
            for group in np.unique(groups_V).tolist()
        ],
    }


def table() -> str:
    """Returns one row per model, with the groups of words seen at most twice in training."""
    header = [
        'model', 'valid', 'valid calibrated', 'test', 'test calibrated', 'gain', 'P(count 0, 1, 2)',
        'share of valid words',
    ]  # fmt: skip
    rows = []
    for path in sorted(RESULTS.glob('*.json')):
        recorded = results.read(RESULTS, path.stem)
        before, after = recorded['before'], recorded['after']
        rare = [group for group in recorded['groups'] if group['counts'][1] <= 2]
        shown = [', '.join(f'{group[key]:.2%}' for group in rare) or '-' for key in ('probability', 'share')]
        perplexities = [number for split in ('valid', 'test') for number in (before[split], after[split])]
        rows.append([path.stem, *perplexities, f'{1 - after["test"] / before["test"]:.1%}', *shown])
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the runs."""
    parser.add_argument('runs', nargs='*', metavar='RUN', help='folders of runs; default: print the committed results')


def main(flags: study.Flags) -> None:
    """Measures the runs and writes a file of each."""
    for folder in flags.runs:
        calibrate = workdir.read_settings(pathlib.Path(folder)).train.calibrate
        require(not calibrate, 'train.calibrate', calibrate, f'must be False: {folder} is calibrated already')
    for folder in flags.runs:
        loaded = loading.load(folder)
        settings, model = loaded.settings, loaded.model
        data = loading.prepare_recorded(settings, folder)
        measured = {'name': settings.name, **measure(model, data), **provenance.provenance()}
        RESULTS.mkdir(exist_ok=True)
        results.write(RESULTS / f'{settings.name.replace("brown-", "")}.json', measured)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=lambda _: table(), measure_if='runs')
