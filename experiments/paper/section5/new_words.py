"""Induction of 500 words in Brown that are left out of training, from 1, 2, 5 and 10 occurrences (section 5).

    python -m experiments.paper.section5.new_words          trains four networks and measures them
    python -m experiments.paper.section5.new_words --show   prints the tables of new_words.md from the results

Dims: W left-out words, B occurrences, J words after an occurrence, R resamples of the bootstrap.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from configs import brown
from experiments import results
from experiments import study as studies
from experiments.paper.section5.new_words_task import NUM_AFTER, SEED, Task, make_task
from experiments.sources import of_module, of_runs
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.inference import induction as new_words
from nplm_jax.inference.embeddings import neighbours
from nplm_jax.inference.induction import CONTEXT_WORDS, Weighting
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import EMBEDDING
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import experiment, loading, process
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import train as train_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.reporter import Reporter
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_json

NUM_VALID, NUM_TEST = 100, 400  # number of words for choosing the variant, and of the following words for testing it
BATCH = 256  # number of occurrences scored at once
RARE_COUNT = 10  # maximum count of the words whose mean is a baseline
NEIGHBOURS, NEIGHBOURS_OF = 8, 10
SHOWN_ONCE = 5  # number of occurrences from which words are induced for the neighbours and the effect on other words
OTHER_WORDS = 20_000  # number of validation words for measuring this effect
RESULTS = pathlib.Path(__file__).parent / 'results'
RESAMPLES = 2000
INTERVAL = 2.5, 97.5  # percent
RARE, TRAINED = 'share of <rare>', 'trained'
KINDS = {'word': 'the word itself', 'after': 'the words after it'}
PLAIN = {'train.affixes': False, 'train.calibrate': False}  # as in the committed results
# Row of configs/brown.py, changed keys, and the numbers of occurrences from which words are induced.
NETWORKS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    'window': ('quick', {}, (1, 2, 5, 10)),
    'residual': ('', {'model.m': 100, 'model.h': 200, 'train.epochs': 3, **PLAIN}, (1, 5)),
}
FIRST = 'window'  # the network that chooses the variant
VARIANTS = {  # the weights, and the power to which they are raised
    "the paper's weights": (Weighting('mean'), 1.0),
    'posterior over all words': (Weighting(following=0, candidates=10**6, min_count=0), 1.0),
    'over the best 1024 of count 20': (Weighting(following=0, candidates=1024), 1.0),
    'over the best 256 of count 20': (Weighting(following=0, candidates=256), 1.0),
    'these, to the power of 0.5': (Weighting(following=0, candidates=256), 0.5),
    'these, to the power of 1.5': (Weighting(following=0, candidates=256), 1.5),
    'these, with the next word': (Weighting(following=1, candidates=256), 1.0),
}


def fit(
    settings: Settings, data: Dataset, folder: pathlib.Path, source: Mapping[str, Any]
) -> tuple[NeuralLanguageModel, dict[str, Any]]:
    """Trains a network, or resumes its training. Returns the best network and statistics of its training."""
    run = prepare_run(settings, data)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(CheckpointStore(folder, origin=source)) as store:
        params, _, progress = train_lib.fit(train_lib.train(run, store, Reporter()))
    facts = {
        'vocabulary': len(data.vocabulary),
        'updates': progress.step,
        'best_valid_nll': progress.best_valid_nll,
        'seconds': round(progress.train_seconds, 1),
        'origins': store.origins,
    }
    return NeuralLanguageModel(run.program.network, params), facts


def measure(model: NeuralLanguageModel, tokens_T: np.ndarray, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Scores the later occurrences and the words after them.

    Args:
        model: A network.
        tokens_T: The stream, in ids of its vocabulary.
        task: The words.

    Returns:
        For each word, the mean log P of its later occurrences, and the mean log P of the J following words, excluding
        words left out of training; W, nats.
    """
    scores, W = [], len(task.ids_W)
    for first in range(0, len(task.later_positions_B), BATCH):
        positions_B = task.later_positions_B[first : first + BATCH]
        state = model.prefill(tokens_T[positions_B[:, None] + np.arange(-CONTEXT_WORDS, 0)])
        columns = []
        for j in range(1 + NUM_AFTER):
            ids_B = tokens_T[np.minimum(positions_B + j, len(tokens_T) - 1)]
            columns.append(-np.asarray(new_words.nll(model.network, model.params, state.features, ids_B)))
            state = model.advance(state, ids_B)
        scores.append(np.stack(columns, axis=1))
    scores_BxJ = np.concatenate(scores).astype(np.float64)
    after_BxJ = task.later_positions_B[:, None] + np.arange(1, 1 + NUM_AFTER)
    inside_BxJ = after_BxJ < len(tokens_T)
    known_BxJ = inside_BxJ & (task.left_out.tokens_T[np.minimum(after_BxJ, len(tokens_T) - 1)] != RARE_ID)
    words_BxJ = np.broadcast_to(task.later_words_B[:, None], known_BxJ.shape)
    after_W = np.bincount(words_BxJ[known_BxJ], scores_BxJ[:, 1:][known_BxJ], W)
    log_p_W = np.bincount(task.later_words_B, scores_BxJ[:, 0], W) / np.bincount(task.later_words_B, minlength=W)
    return log_p_W, after_W / np.maximum(np.bincount(words_BxJ[known_BxJ], minlength=W), 1)


def extended(model: NeuralLanguageModel, task: Task, weights_WxV: np.ndarray) -> NeuralLanguageModel:
    """Adds the task's words to the network with the given weights."""
    return new_words.append_words(model, task.left_out.vocabulary, task.words, task.counts_W.tolist(), weights_WxV)[1]


def induced(model: NeuralLanguageModel, task: Task, weights_WxV: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns `measure` for the network extended by the task's words with the given weights."""
    return measure(extended(model, task, weights_WxV), task.grown_tokens(), task)


def variant_weights(model: NeuralLanguageModel, task: Task, variant: str, num_shown: int) -> np.ndarray:
    """Returns the weights of a variant after the given number of occurrences, W x V."""
    weighting, power = VARIANTS[variant]
    weights_WxV = new_words.word_weights(model, task.left_out.vocabulary, task.seen(num_shown), weighting) ** power
    return weights_WxV / weights_WxV.sum(axis=1, keepdims=True)


def references(full: NeuralLanguageModel, left_out: NeuralLanguageModel, task: Task) -> dict[str, Any]:
    """Returns `measure` for the baselines: the share of <rare>, mean rows, and full training."""
    share_W, after_W = measure(left_out, task.left_out.tokens_T, task)
    counts_V = np.asarray(task.left_out.vocabulary.counts)
    share_W = share_W + np.log(task.counts_W) - np.log(counts_V[RARE_ID])
    V, W = len(counts_V), len(task.ids_W)
    is_rare_V = (counts_V <= RARE_COUNT) & (np.arange(V) != RARE_ID)
    return {
        'share of <rare>': (share_W, after_W),
        'mean of all words': induced(left_out, task, np.full((W, V), 1 / V)),
        'mean of rare words': induced(left_out, task, np.tile(is_rare_V / is_rare_V.sum(), (W, 1))),
        'trained': measure(full, task.full.tokens_T, task),
    }


def find_neighbours(
    full: NeuralLanguageModel, left_out: NeuralLanguageModel, task: Task, variant: str
) -> list[dict[str, Any]]:
    """Returns the words' nearest neighbours, both by their induced features and by their fully trained features."""
    weights_WxV = variant_weights(left_out, task, variant, SHOWN_ONCE)
    C_VxM, vocabulary = np.asarray(left_out.params[EMBEDDING]), task.left_out.vocabulary
    trained = neighbours(np.asarray(full.params[EMBEDDING]), task.ids_W.tolist(), NEIGHBOURS)[0]
    rows = []
    for word, row_M, trained_ids in zip(task.words, weights_WxV @ C_VxM, trained):
        ids = neighbours(np.vstack([C_VxM, row_M]), [len(C_VxM)], NEIGHBOURS)[0][0]
        words = {'induced': vocabulary.decode(ids), 'trained': task.full.vocabulary.decode(trained_ids)}
        rows.append({'word': word, **words})
    return rows


def effect_on_others(model: NeuralLanguageModel, task: Task, variant: str) -> float:
    """Returns the mean change in log P of other validation words, in nats, when all words of the task are added."""
    grown = extended(model, task, variant_weights(model, task, variant, SHOWN_ONCE))
    start, tokens_T = task.full.valid.start, task.left_out.tokens_T
    span = Span(start, min(start + OTHER_WORDS, task.full.valid.stop))
    change_T = grown.score(task.grown_tokens(), span) - model.score(tokens_T, span)
    return float(change_T[tokens_T[span.start : span.stop] != RARE_ID].mean())


def measure_or_read(
    file: pathlib.Path,
    model: NeuralLanguageModel,
    task: Task,
    variant: str,
    num_shown: int,
    source: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns `induced` for a variant after the given number of occurrences, with the origin of this measurement.

    The results of earlier starts are reused.
    """
    if not file.exists():
        print(f'{variant}: {len(task.ids_W)} words from {num_shown} occurrences', file=sys.stderr)
        log_p_W, after_W = induced(model, task, variant_weights(model, task, variant, num_shown))
        file.parent.mkdir(parents=True, exist_ok=True)
        results.write(file, {'log_p_W': log_p_W.tolist(), 'after_W': after_W.tolist(), **source})
    return read_json(file)


def study(name: str, variants: Sequence[str], folder: pathlib.Path, num_words: tuple[int, int]) -> dict[str, Any]:
    """Trains the network, chooses a variant on the validation words and measures the variant on the test words."""
    started, source = time.perf_counter(), of_module('experiments.paper.section5.new_words')
    row, changes, shown = NETWORKS[name]
    settings = experiment.load_settings(config_lib.override(brown.get_config(row), changes))
    task = make_task(loading.load_dataset(settings))
    full, full_facts = fit(settings, task.full, folder / f'{name}_full', source)
    left_out, left_out_facts = fit(settings, task.left_out, folder / f'{name}_left_out', source)
    valid = task.select(slice(num_words[0]))
    test = task.select(slice(NUM_VALID, NUM_VALID + num_words[1]))
    used: list[dict[str, Any]] = []

    def measure_variant(split: str, variant: str) -> dict[str, Any]:
        part, number = {'valid': valid, 'test': test}[split], list(VARIANTS).index(variant)
        files = {str(k): folder / name / f'{split}_{len(part.ids_W)}_{number}_{k}.json' for k in shown}
        read = {k: measure_or_read(file, left_out, part, variant, int(k), source) for k, file in files.items()}
        used.extend(read.values())
        return {k: (np.asarray(one['log_p_W']), np.asarray(one['after_W'])) for k, one in read.items()}

    choice = {variant: measure_variant('valid', variant) for variant in variants}
    chosen = max(choice, key=lambda variant: np.mean([log_p_W.mean() for log_p_W, _ in choice[variant].values()]))
    measured = {variant: measure_variant('test', variant) for variant in (next(iter(VARIANTS)), chosen)}
    read_W = np.stack([np.log(k) - np.log(test.shown_WxK[:, k - 1] + 1.0) for k in shown])
    return {
        'network': name,
        'row': row,
        'changes': changes,
        'networks': {'full': full_facts, 'left_out': left_out_facts},
        'measured': of_runs(used),
        'words': {'valid': valid.words, 'test': test.words},
        'later_occurrences': {'valid': len(valid.later_words_B), 'test': len(test.later_words_B)},
        'chosen': chosen,
        'valid': _lists({**references(full, left_out, valid), **choice}),
        'test': _lists({**references(full, left_out, test), **measured}),
        'log_rate_from_reading': (read_W - np.log(test.counts_W / len(task.full.train))).mean(axis=1).tolist(),
        'neighbours': find_neighbours(full, left_out, test.select(slice(NEIGHBOURS_OF)), chosen),
        'effect_on_others': effect_on_others(left_out, valid, chosen),
        'seed': SEED,
        'seconds': round(time.perf_counter() - started, 1),
        'load': os.getloadavg()[0],
        **source,
    }


def _lists(measured: Any) -> Any:
    """Converts pairs of arrays in nested results to {'word': [...], 'after': [...]}, rounded to 1e-4 nats."""
    if isinstance(measured, tuple):
        return {key: np.round(values, 4).tolist() for key, values in zip(('word', 'after'), measured)}
    return {key: _lists(value) for key, value in measured.items()}


def read(network: str) -> dict[str, Any]:
    """Returns the measurements of a network. Raises BadInput if its file is missing."""
    return results.read(RESULTS, f'new_words_{network}')


def interval(statistic: Callable[[np.ndarray], Any], num_words: int, seed: int) -> tuple[float, float]:
    """Returns the bootstrap interval of a statistic of resampled words.

    Args:
        statistic: A function of the indices of the words.
        num_words: The number of words, W.
        seed: Seed of the resampling.
    """
    numbers_RxW = np.random.default_rng(seed).integers(0, num_words, (RESAMPLES, num_words))
    low, high = np.percentile([statistic(numbers_W) for numbers_W in numbers_RxW], INTERVAL)
    return float(low), float(high)


def values(measured: dict[str, Any], split: str, method: str, kind: str, shown: str) -> np.ndarray:
    """Returns the mean log P of each word under a method, W. A method without occurrences has only one value."""
    by_shown = measured[split][method]
    return np.asarray(by_shown[shown][kind] if shown in by_shown else by_shown[kind])


def shown_of(measured: dict[str, Any]) -> list[str]:
    """Returns the numbers of occurrences, as keys of JSON objects."""
    return list(measured['test'][measured['chosen']])


def share_of_the_way(
    measured: dict[str, Any], split: str, method: str, kind: str, shown: str, numbers_W: Any = slice(None)
) -> float:
    """Returns the mean log P of some words, on a scale from the share of <rare> (0) to full training (1)."""
    rare, reached, trained = (
        values(measured, split, name, kind, shown)[numbers_W].mean() for name in (RARE, method, TRAINED)
    )
    return float((reached - rare) / (trained - rare))


def _mean_of(x_W: np.ndarray, numbers_W: np.ndarray) -> float:
    return float(x_W[numbers_W].mean())


def test_table(measured: dict[str, Any], kind: str) -> str:
    """Returns a table of the mean log P of the test words by method and number of occurrences, with intervals."""
    rows = []
    for method in measured['test']:
        cells = []
        for shown in shown_of(measured):
            log_p_W = values(measured, 'test', method, kind, shown)
            low, high = interval(functools.partial(_mean_of, log_p_W), len(log_p_W), measured['seed'])
            cells.append(f'{log_p_W.mean():.3f} ({low:.2f}, {high:.2f})')
        rows.append([method if method != measured['chosen'] else f'posterior: {method}', *cells])
    return markdown_table([f'{measured["network"]}: {KINDS[kind]}', *shown_of(measured)], rows)


def share_table(networks: Sequence[dict[str, Any]]) -> str:
    """Returns where the chosen variant is on the scale from the share of <rare> to full training, with intervals."""
    rows, all_shown = [], shown_of(networks[0])
    for measured in networks:
        for kind, name in KINDS.items():
            cells = []
            for shown in all_shown:
                if shown not in shown_of(measured):
                    cells.append('-')
                    continue
                share = functools.partial(share_of_the_way, measured, 'test', measured['chosen'], kind, shown)
                low, high = interval(share, len(measured['words']['test']), measured['seed'])
                cells.append(f'{share():.2f} ({low:.2f}, {high:.2f})')
            rows.append([measured['network'], name, *cells])
    return markdown_table(['network', 'log P of', *all_shown], rows)


def choice_table(measured: dict[str, Any]) -> str:
    """Returns `share_of_the_way` of every variant on the validation words, for the word and for the words after it."""
    shown = shown_of(measured)
    variants = [name for name in measured['valid'] if name not in (RARE, TRAINED)]
    rows = [
        [name, *(f'{share_of_the_way(measured, "valid", name, kind, k):.2f}' for kind in KINDS for k in shown)]
        for name in variants
    ]
    header = [f'{measured["network"]}, validation words', *(f'{kind}, {k}' for kind in KINDS for k in shown)]
    return markdown_table(header, rows)


def neighbour_table(measured: dict[str, Any]) -> str:
    """Returns the table of nearest words by induced and by trained features."""
    rows = [[w['word'], ' '.join(w['induced']), ' '.join(w['trained'])] for w in measured['neighbours']]
    return markdown_table([measured['network'], 'induced from 5 occurrences', 'trained'], rows)


def facts(measured: dict[str, Any]) -> str:
    """Returns sentences that state the word and occurrence counts and the changes in log P."""
    later, words = measured['later_occurrences'], measured['words']
    shift = ', '.join(f'{shift:+.2f}' for shift in measured['log_rate_from_reading'])
    shown = ', '.join(shown_of(measured))
    trainings = ' and '.join(f'{network["seconds"]:.0f} s' for network in measured['networks'].values())
    change = measured['effect_on_others']
    return (
        f'{measured["network"]}: The {len(words["valid"])} validation words have {later["valid"]:,} later occurrences, '
        f'and the {len(words["test"])} test words have {later["test"]:,}. Training took {trainings}. With the '
        f'validation words added, the mean log P of other words changes by {change:+.4f} nats. If the rate of a new '
        f'word is instead estimated from the text up to its last shown occurrence, its log P with every method except '
        f'training changes by {shift} nats on average for {shown} occurrences, respectively.'
    )


def make(names: Sequence[str]) -> str:
    """Returns the tables of the measured networks. The first network is required."""
    networks = [read(name) for name in names if name == names[0] or (RESULTS / f'new_words_{name}.json').exists()]
    parts = [share_table(networks)]
    parts += [test_table(measured, kind) for measured in networks for kind in KINDS]
    parts += [choice_table(networks[0]), *(neighbour_table(measured) for measured in networks)]
    return '\n\n'.join([*parts, *map(facts, networks)])


def define(parser: studies.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--networks', NETWORKS, 'networks to measure')
    parser.add_argument('--runs', default='runs/section5/new_words', help='folder that contains the trained networks')
    parser.add_count('--valid', NUM_VALID, 'number of words on which the variant is chosen')
    parser.add_count('--test', NUM_TEST, 'number of words on which the chosen variant is tested')


def main(flags: studies.Flags) -> None:
    """Measures the networks and prints the tables."""
    process.set_up_process()
    for name in flags.networks:
        variants = list(VARIANTS) if name == FIRST else [read(FIRST)['chosen']]
        measured = study(name, variants, expand('--runs', flags.runs), (flags.valid, flags.test))
        results.write(RESULTS / f'new_words_{name}.json', measured)
    print(studies.shown(show, flags))


def show(_: studies.Flags) -> str:
    """Returns the tables."""
    return make(list(NETWORKS))


if __name__ == '__main__':
    studies.run(__doc__, define=define, measure=main, show=show)
