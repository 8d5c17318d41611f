"""Writes word trees of Brown for output.kind=tree, times output layers, and prints the tables.

    python -m experiments.paper.section5.trees --write=FOLDER --features=RUN    writes codes by WordNet and clusters of
                                             a trained network's features, and two codes per word
    python -m experiments.paper.section5.trees --take=NAME=RUN,...  copies the results of trained trees into results/
    python -m experiments.paper.section5.trees --time    times each output layer and writes results/tree_speed.json
    python -m experiments.paper.section5.trees           prints the tables of the committed results

trees.md shows the launch.py commands that train the trees.
"""

from __future__ import annotations

import collections
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from configs import brown
from experiments import results, study
from experiments.paper.section5.plugins import wordnet
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.data import dataset, encoding, vocabulary
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.stream import Span
from nplm_jax.data.word_stream import WordStream
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs import word_codes
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.loading import load
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step
from nplm_jax.training.training_run import TrainingRun
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.untrusted import read_json

RESULTS = pathlib.Path(__file__).parent / 'results'
ROWS = {  # output -> folder and file name of its results
    'full': (results.folder('table1'), 'mlp9'),
    'two_level': (results.folder('cheaper'), 'classes_1000_500'),
    'sampled': (results.folder('cheaper'), 'sampled_1000'),
    'nce': (results.folder('cheaper'), 'nce_1000'),
}
TREES = ('random', 'huffman', 'wordnet', 'clusters', 'two_codes')
HEADER = ['output', 'nodes per word', 'epochs', 'seconds', 'valid', 'test']
SIZES = (brown.VOCABULARY, 262_144)
STEPS, ROUNDS = 50, 5

Subtree = tuple[int, list[tuple[int, str]]]  # a tree: the count of its words, and the code of each word


# --- codes -----------------------------------------------------------------------------------------------


def join(children: Sequence[Subtree]) -> Subtree:
    """Combines trees into one binary Huffman tree by their counts, so that frequent trees are near the root."""
    prefixes = word_codes.huffman([count for count, _ in children])
    codes = [(w, prefix + code) for prefix, (_, codes) in zip(prefixes, children) for w, code in codes]
    return sum(count for count, _ in children), codes


def wordnet_codes(words: vocabulary.Vocabulary) -> list[str]:
    """Returns codes along WordNet's links. The parent of a word is the first sense of its first lemma.

    The parents of senses are found breadth-first, starting from `entity` for nouns, and otherwise from the sense with
    the most links in its component. Words that are not in WordNet are leaves next to its components.
    """
    net = wordnet.load()
    leaf = lambda w: (max(words.counts[w], 1), [(w, '')])  # noqa: E731
    hanging: dict[wordnet.Synset, list[Subtree]] = collections.defaultdict(list)
    outside: list[Subtree] = []
    for w, word in enumerate(words.words):
        lemmas = wordnet.lemmas(net, word.lower())
        (hanging[net.senses[lemmas[0]][0]] if lemmas else outside).append(leaf(w))
    roots = sorted(net.links, key=lambda synset: (synset != ('n', '00001740'), -len(net.links[synset])))
    seen: set[wordnet.Synset] = set()
    components = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        order = [(root, root)]
        for synset, _ in order:
            children = [s for s in net.links.get(synset, ()) if s not in seen]
            seen.update(children)
            order += [(child, synset) for child in dict.fromkeys(children)]
        for synset, parent in reversed(order):  # children before their parents
            if hanging[synset] and synset != root:
                hanging[parent].append(join(hanging[synset]))
        if hanging[root]:
            components.append(join(hanging[root]))
    return _in_order(join([*components, *outside])[1])


def cluster_codes(features_VxD: np.ndarray, counts: Sequence[int]) -> list[str]:
    """Returns codes by recursive bisection of the words along their first principal axis, at half of the total count.

    Each side covers half of the text, so the codes are about as long as Huffman codes.
    """
    weight_V = np.maximum(np.asarray(counts, np.float64), 1)
    codes = [''] * len(counts)
    parts = [np.arange(len(counts))]
    while parts:
        part = parts.pop()
        if len(part) < 2:
            continue
        centred = features_VxD[part] - np.average(features_VxD[part], axis=0, weights=weight_V[part])
        axis = np.linalg.eigh((centred * weight_V[part, None]).T @ centred)[1][:, -1]
        part = part[np.argsort(centred @ axis, kind='stable')]
        cumulative = np.cumsum(weight_V[part])
        cut = int(np.clip(np.searchsorted(cumulative, cumulative[-1] / 2) + 1, 1, len(part) - 1))
        for side, bit in ((part[:cut], '0'), (part[cut:], '1')):
            for w in side:
                codes[w] += bit
            parts.append(side)
    return codes


def _in_order(codes: Sequence[tuple[int, str]]) -> list[str]:
    return [code for _, code in sorted(codes)]


def write_codes(folder: pathlib.Path, run: str) -> None:
    """Writes wordnet.tsv, clusters.tsv and two_codes.tsv for the vocabulary of a trained network."""
    loaded = load(run)
    words, model = loaded.vocabulary, cast(Any, loaded.model)
    tables = ('U_VxK', 'C_VxM')
    has_tables = isinstance(model, NeuralLanguageModel) and set(tables) <= set(model.params)
    require(has_tables, '--features', run, f'must be a run of a network with the parameters {" and ".join(tables)}')
    by_output, by_input = (cluster_codes(np.asarray(model.params[name]), words.counts) for name in tables)
    files = {
        'wordnet': [[code] for code in wordnet_codes(words)],
        'clusters': [[code] for code in by_output],
        'two_codes': [['0' + a, '1' + b] for a, b in zip(by_output, by_input)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, codes in files.items():
        word_codes.make_tree(codes)  # raises BadInput unless the codes form a tree
        lines = (f'{word}\t{" ".join(leaves)}\n' for word, leaves in zip(words.words, codes))
        write_atomically(folder / f'{name}.tsv', ''.join(lines))


# --- speed -----------------------------------------------------------------------------------------------


def generated(size: int, num_words: int = 600_000) -> dataset.Dataset:
    """Returns words drawn according to Zipf's law. The most frequent `size` - 1 words form the vocabulary."""
    probability_V = 1 / np.arange(1, size)
    ids = np.random.default_rng(0).choice(size - 1, num_words, p=probability_V / probability_V.sum())
    train = num_words - 2000
    corpus = Corpus(
        Span(0, train),
        Span(train, train + 1000),
        Span(train + 1000, num_words),
        WordStream.from_words(f'w{i}' for i in ids),
    )
    counts = np.bincount(ids, minlength=size - 1)
    words = vocabulary.Vocabulary(('<rare>', *(f'w{i}' for i in range(size - 1))), (1, *counts.tolist()))
    return encoding.build_dataset(corpus, words)


def time_outputs() -> Iterator[dict[str, Any]]:
    """Yields the words per second of each turn, by |V| and output, each time a |V| has been measured.

    The outputs are timed alternately in one process.
    """
    facts = {'load_before': os.getloadavg()[0], **of_module('experiments.paper.section5.trees')}
    seconds: dict[str, dict[str, list[int]]] = {}
    for size in SIZES:
        data = generated(size)
        runs = {name: _prepare(name, data) for name in ('full', 'sampled', 'nce', 'two_level', 'tree')}
        states = {name: run.init_state() for name, run in runs.items()}
        rates: dict[str, list[int]] = {name: [] for name in runs}
        for turn in range(ROUNDS + 1):  # the first turn compiles
            for name, run in runs.items():
                started = time.perf_counter()
                chunk = run.chunk(states[name], turn * STEPS)
                states[name], nll_S = jax.block_until_ready(step.execute_steps(*chunk))
                if turn:
                    taken = time.perf_counter() - started
                    rates[name].append(round(len(nll_S) * run.program.batch_size / taken))
        seconds[f'{size}'] = rates
        yield {'words_per_second': seconds, **facts}


def _prepare(kind: str, data: dataset.Dataset) -> TrainingRun:
    settings = config_lib.from_config(brown.get_config('mlp9'))
    steps = {'train.steps_per_execution': STEPS, 'train.log_every': STEPS, 'output.kind': kind}
    classes = {'output.classes': 500 if len(data.vocabulary) < 100_000 else 2000} if kind == 'two_level' else {}
    return prepare_run(config_lib.replace(settings, {**steps, **classes, 'corpus.max_vocabulary': 0}), data)


# --- tables ----------------------------------------------------------------------------------------------


def take(name: str, run: str) -> None:
    """Copies the results of a run, and adds the mean number of nodes above a word, weighted by count."""
    loaded = load(run)
    words, model = loaded.vocabulary, cast(Any, loaded.model)
    has_tree = isinstance(model, NeuralLanguageModel) and hasattr(model.network.output, 'tree')
    require(has_tree, '--take', f'{name}={run}', 'must be a run with output.kind=tree')
    nodes_V = (model.network.output.nodes.signs_VxRxD != 0).sum(axis=(1, 2))
    nodes = float(np.average(nodes_V, weights=words.counts))
    results.write(RESULTS / f'tree_{name}.json', {**read_json(pathlib.Path(run) / 'results.json'), 'nodes': nodes})


def table(_: study.Flags) -> str:
    """Returns the tables of the trained networks and of the speeds."""
    files = ROWS | {f'tree, {name}': (RESULTS, f'tree_{name}') for name in TREES}
    lines = []
    for name, file in files.items():
        r = results.read(*file)
        nodes = f'{r["nodes"]:.1f}' if 'nodes' in r else '-'
        perplexities = [f'{r["perplexity"][split]:.1f}' for split in ('valid', 'test')]
        lines.append([name, nodes, f'{r["epochs"]:.0f}', f'{r["seconds"]:,.0f}', *perplexities])
    speed = results.read(RESULTS, 'tree_speed')
    rates: Mapping[str, Mapping[str, list[int]]] = speed['words_per_second']
    first = {size: np.median(by['full']) for size, by in rates.items()}
    times = [
        [name, *(f'{np.median(rates[s][name]):,.0f} ({np.median(rates[s][name]) / first[s]:.1f})' for s in rates)]
        for name in rates[str(SIZES[0])]
    ]
    header = ['output', *(f'words/s, |V| = {int(size):,}' for size in rates)]
    return f'{markdown_table(HEADER, lines)}\n\n{markdown_table(header, times)}'


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument(
        '--write', metavar='FOLDER', help='folder to write the code files of the trees to; default: write no files'
    )
    features = "run whose U and C are clustered (the paper's network on Brown); required with --write; default: none"
    parser.add_owned('write', '--features', metavar='RUN', help=features)
    results_of = (
        f'copy the results of RUN to results/tree_NAME.json; NAME is one of {", ".join(TREES)}; default: no run'
    )
    parser.add_argument('--take', default='', metavar='NAME=RUN,...', help=results_of)
    parser.add_switch('--time', 'measure the words per second of each output layer')


def main(flags: study.Flags) -> None:
    """Performs the requested actions, or prints the tables if no flag is given."""
    if flags.write:
        require(bool(flags.features), '--write', flags.write, 'requires --features=RUN')
        write_codes(expand('--write', flags.write), flags.features)
    elif flags.take:
        pairs = [pair.partition('=') for pair in flags.take.split(',')]
        for name, _, run in pairs:
            require(
                name in TREES and bool(run),
                '--take',
                flags.take,
                f'must contain NAME=RUN pairs separated by commas, where NAME is one of {", ".join(TREES)}',
            )
        for name, _, run in pairs:
            take(name, run)
    elif flags.time:
        results.write_each(RESULTS / 'tree_speed.json', time_outputs())
    else:
        print(study.shown(table, flags))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=table)
