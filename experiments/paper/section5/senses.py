"""Several feature vectors per word, weighted by the context, compared with one vector per word.

python -m experiments.paper.section5.senses           measures, writes results/senses.json and prints the tables
python -m experiments.paper.section5.senses --show    prints the tables of the committed results
python -m experiments.paper.section5.senses --show --words   prints the senses of twenty words with seed 1
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import results, study
from experiments.paper.section5 import paired
from experiments.paper.section5.paired import SEEDS
from experiments.paper.section5.plugins.senses import Senses
from nplm_jax.data import batches
from nplm_jax.data.dataset import Dataset
from nplm_jax.inference.embeddings import neighbours
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import process

RESULTS = pathlib.Path(__file__).parent / 'results'
MODULE = 'experiments.paper.section5.senses'
M = 50  # features per word of configs/brown.py:quick
BASELINE = 'nplm, m=50'  # the runs without a prior of results/priors.json
MODELS = {  # differences from the baseline
    'nplm, m=150': {'model.m': 3 * M},
    'senses, S=2, m=50': {'model.family': 'experiments.paper.section5.plugins.senses:Senses'},
}
SHOWN = 'senses, S=2, m=50'
AMBIGUOUS = (
    *('bank', 'bill', 'case', 'court', 'fair', 'fall', 'hard'),
    *('kind', 'last', 'left', 'light', 'may', 'plant', 'saw'),
)
DRAWN = 6  # number of words drawn at random
DRAWN_COUNTS = 50, 500  # training count of these words
MIN_NEIGHBOUR_COUNT = 20  # minimum training count of displayed neighbours
PLACE = 1  # position of the word in the windows that determine its sense, after one preceding word


def measure(record: paired.Record) -> None:
    """Trains all networks missing in the record."""
    data = paired.load_data()

    def run(name: str, seed: int) -> dict[str, Any]:
        model, scored = paired.measure(paired.quick({**MODELS[name], 'seed': seed}), data)
        if name == SHOWN:
            scored['usage'] = usage(model, data)
            if seed == SEEDS[0]:
                record.write({'words': describe_words(model, data)})
        return scored

    for seed in SEEDS:
        for name in reversed(MODELS):
            record.add(name, seed, lambda name=name, seed=seed: run(name, seed))
    record.write({})


def choose(model: NeuralLanguageModel, contexts_BxN: np.ndarray) -> np.ndarray:
    """Returns pi of the word at PLACE of each context, B x S."""
    body = model.network.body
    assert isinstance(body, Senses)
    probs = jax.jit(lambda rows: body.choose(rows)[1][:, PLACE])
    C_VxM = model.params['C_VxM']
    blocks = np.array_split(contexts_BxN, max(1, len(contexts_BxN) // 10_000))
    return np.concatenate([np.asarray(probs(C_VxM[jnp.asarray(block)])) for block in blocks])


def training_windows(data: Dataset, positions: np.ndarray) -> np.ndarray:
    """Returns the windows of the network with these positions at PLACE."""
    N = paired.quick({}).model.n - 1
    positions = positions[(positions >= PLACE) & (positions < data.train.stop - N)]
    return np.asarray(batches.examples(data.tokens_T, jnp.asarray(positions + N - PLACE, jnp.int32), N)[0])


def usage(model: NeuralLanguageModel, data: Dataset) -> dict[str, float]:
    """Returns how clearly the context selects a sense, over test words and over words with at least 20 occurrences.

    `largest` is the mean over the text of the larger of the two pi, between 0.5 and 1. `both` is the share of these
    words for which each sense has the larger pi in a tenth of the occurrences or more.
    """
    N = model.network.body.reach
    test_positions = jnp.arange(data.test.start, data.test.stop, dtype=jnp.int32)
    largest = choose(model, np.asarray(batches.examples(data.tokens_T, test_positions, N)[0])).max(axis=1).mean()
    windows = training_windows(data, np.arange(data.train.start, data.train.stop))
    words_T = windows[:, PLACE]
    first_T = choose(model, windows)[:, 0] > 0.5
    counts_V = np.bincount(words_T, minlength=len(data.vocabulary))
    share_V = np.bincount(words_T, first_T, len(data.vocabulary)) / np.maximum(counts_V, 1)
    frequent_V = counts_V >= MIN_NEIGHBOUR_COUNT
    both = ((share_V >= 0.1) & (share_V <= 0.9))[frequent_V].mean()
    return {'largest': float(largest), 'both': float(both), 'frequent_words': int(frequent_V.sum())}


def describe_words(model: NeuralLanguageModel, data: Dataset) -> list[dict[str, Any]]:
    """Returns the senses of twenty words, with their nearest neighbours and contexts."""
    counts_V = np.bincount(data.train_words, minlength=len(data.vocabulary))
    (candidates,) = np.nonzero((counts_V >= DRAWN_COUNTS[0]) & (counts_V <= DRAWN_COUNTS[1]))
    drawn = np.random.default_rng(1).choice(candidates, DRAWN, replace=False)
    ids = [*(data.vocabulary.ids[word] for word in AMBIGUOUS), *drawn.tolist()]
    C_VxSxM = np.asarray(model.params['C_VxM'])[:, : 2 * M].reshape(-1, 2, M)
    (shown,) = np.nonzero(counts_V >= MIN_NEIGHBOUR_COUNT)
    return [describe_word(model, data, word, C_VxSxM, shown) for word in ids]


def describe_word(
    model: NeuralLanguageModel, data: Dataset, word: int, C_VxSxM: np.ndarray, shown: np.ndarray
) -> dict[str, Any]:
    """Returns the senses of a word.

    Args:
        model: The network.
        data: Its corpus.
        word: The word's id.
        C_VxSxM: The feature vectors of all words.
        shown: The ids of words that may be displayed as neighbours.
    """
    (positions,) = np.nonzero(data.tokens_T[: data.train.stop] == word)
    windows = training_windows(data, positions)
    probs_BxS = choose(model, windows)
    senses = []
    for s in range(2):
        others = shown[shown != word]
        vectors = np.concatenate([C_VxSxM[word, s][None], *(C_VxSxM[others, i] for i in range(2))])
        nearest = neighbours(vectors, [0], 12)[0][0] - 1
        words = list(dict.fromkeys(data.vocabulary.words[others[i % len(others)]] for i in nearest))[:5]
        best = np.argsort(-probs_BxS[:, s], kind='stable')
        contexts = list(dict.fromkeys(mark(data, windows[i]) for i in best[:12]))[:3]
        share = float((probs_BxS.argmax(axis=1) == s).mean())
        highest = float(probs_BxS[:, s].max())
        senses.append({'share': share, 'highest': highest, 'neighbours': words, 'contexts': contexts})
    a, b = C_VxSxM[word]
    cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return {'word': data.vocabulary.words[word], 'occurrences': len(positions), 'cosine': cosine, 'senses': senses}


def mark(data: Dataset, window: Sequence[int]) -> str:
    """Returns the words of a window, with the word at PLACE in brackets."""
    words = data.vocabulary.decode(window)
    return ' '.join([*words[:PLACE], f'[{words[PLACE]}]', *words[PLACE + 1 :]])


def read() -> dict[str, Any]:
    """Returns the results, including the baseline."""
    content, others = (results.read(RESULTS, name) for name in ('senses', 'priors'))
    content['runs'] |= {f'{BASELINE}, seed {seed}': others['runs'][f'none, seed {seed}'] for seed in SEEDS}
    return content


def make_table(content: dict[str, Any]) -> str:
    """Returns the table of models, and statistics of the selection of senses."""
    rows: list[list[Any]] = []
    for name in (BASELINE, *MODELS):
        runs = paired.seeds_of(content, name)
        perplexities = [paired.mean_and_spread([r[s] for r in runs]) for s in paired.SPLITS]
        change = paired.mean_and_spread(paired.gains(content, SHOWN, name), 2) if name != SHOWN else ''
        rows.append([name, f'{runs[0]["parameters"]:,}', *perplexities, change])
    table = markdown_table(['model', 'parameters', 'valid', 'test', 'senses against it, %'], rows)
    chosen = [run['usage'] for run in paired.seeds_of(content, SHOWN)]
    lines = [[seed, f'{u["largest"]:.3f}', f'{u["both"]:.1%}', u['frequent_words']] for seed, u in zip(SEEDS, chosen)]
    header = ['seed', 'mean of the larger pi', 'words with both senses', 'of words']
    return f'{table}\n\n{markdown_table(header, lines)}'


def make_words(content: dict[str, Any]) -> str:
    """Returns the table of the senses of twenty words."""
    rows = []
    for word in content['words']:
        for s, sense in enumerate(word['senses']):
            label = [word['word'], word['occurrences'], f'{word["cosine"]:.2f}'] if s == 0 else ['', '', '']
            share = f'{sense["share"]:.0%}', f'{sense["highest"]:.2f}'
            rows.append([*label, *share, ' '.join(sense['neighbours']), ' / '.join(sense['contexts'])])
    header = ['word', 'count', 'cosine', 'share', 'highest pi', 'nearest neighbours', 'contexts with the highest pi']
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--words', 'print the senses of twenty words instead of the tables')


def main(flags: study.Flags) -> None:
    """Measures the networks and prints the tables."""
    process.set_up_process()
    measure(paired.Record(RESULTS / 'senses.json', MODULE))
    print(study.shown(show, flags))


def show(flags: study.Flags) -> str:
    """Returns the tables of the committed results or, with --words, of the senses of words."""
    return (make_words if flags.words else make_table)(read())


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
