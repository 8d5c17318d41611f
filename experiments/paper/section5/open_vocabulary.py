"""Open vocabularies: bits per character of models that spell unknown words, by vocabulary and tokenization.

    python -m experiments.paper.section5.open_vocabulary DIR [RUN ...]   trains the small models in DIR and measures
    python -m experiments.paper.section5.open_vocabulary --show          prints the tables

Each RUN is the folder of a finished run on Brown with the vocabulary of configs/brown.py.
"""

from __future__ import annotations

import bz2
import functools
import lzma
import math
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs import brown as brown_config
from experiments import results, study
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import is_neural
from nplm_jax.config.sections import CorpusSettings
from nplm_jax.data import brown, characters, corpora
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.stream import TEXT_BOUNDARY, Span
from nplm_jax.inference.drawn_spellings import spell
from nplm_jax.models import mixture
from nplm_jax.models.open_vocabulary import OpenVocabulary, bits_per_character, count_characters
from nplm_jax.models.spelled_words import Spelling
from nplm_jax.ngram import kneser_ney
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.reporting import catalog
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import command_models as loaded_models
from nplm_jax.runs import experiment, loading, process, spelling, workdir
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_json

RESULTS = pathlib.Path(__file__).parent / 'results'
TEXT = pathlib.Path(__file__).parent / 'open_vocabulary.txt'
KN5 = 'modified_kneser_ney_5'
# Name -> preset of configs/brown.py and changes. A network spells words for the vocabulary of the first.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    KN5: (KN5, {}),
    'interpolated': ('interpolated', {}),
    'kneser_ney_5': ('kneser_ney_5', {}),
    'classes_500': ('classes_500', {}),
    f'{KN5}, 8,000 words': (KN5, {'corpus.max_vocabulary': 8000}),
    f'{KN5}, 30,000 words': (KN5, {'corpus.max_vocabulary': 30_000, 'corpus.min_count': 1}),
    f'{KN5}, counted in training': (KN5, {'corpus.count_over': 'train'}),
    f'{KN5}, cased': (f'{KN5},cased', {}),
}
ORDERS = 4, 6, 8  # orders of n-grams over characters; the last one equals the order of the network
NUM_WRITTEN = 30


@functools.cache
def last_texts() -> tuple[int, int, int]:
    """Returns the number of texts within the test words of every tokenization, and their words and characters.

    Words are printed words. Their characters include one space or line end after each word.
    """
    texts = [text.split() for text in brown.texts()]
    room = sum(map(len, texts)) - 1_000_000  # the words after the training and validation words
    kept: list[list[str]] = []
    while texts and len(texts[-1]) <= room:
        room -= len(texts[-1])
        kept.append(texts.pop())
    return len(kept), sum(map(len, kept)), sum(count_characters(text) for text in kept)


def last_span(corpus: Corpus, boundary_tokens: bool) -> Span:
    """Returns the span of `last_texts` in a stream."""
    num_texts, num_words, _ = last_texts()
    if not boundary_tokens:
        return Span(len(corpus.words) - num_words, len(corpus.words))
    starts = [t for t, word in enumerate(corpus.words) if word == TEXT_BOUNDARY]
    return Span(starts[-num_texts], len(corpus.words))


def measure(name: str, folder: pathlib.Path, by_ngram: Spelling, by_network: Spelling | None) -> dict[str, Any]:
    """Measures a run that spells its unknown words, on the test words and on `last_texts`.

    Args:
        name: The name of the row.
        folder: The folder of the run, whose results have the perplexity of the test words with <rare>.
        by_ngram: The spelling by an n-gram.
        by_network: The neural spelling model; None if none was trained.
    """
    loaded = loading.load(folder)
    settings, vocabulary, model = loaded.settings, loaded.vocabulary, loaded.model
    corpus = read_corpus(settings.corpus)
    words = corpus.words[corpus.test.start : corpus.test.stop]
    closed = read_json(folder / catalog.RESULTS)['perplexity']['test']
    row = {
        'name': name,
        'family': settings.model.name,
        'vocabulary': len(vocabulary),
        'words': len(words),
        'rare': sum(word not in vocabulary.ids for word in words) / len(words),
        'characters': count_characters(words),
        'closed_perplexity': closed,
    }
    for key, spelled in {'ngram': by_ngram, 'network': by_network}.items():
        if spelled is not None:
            opened = OpenVocabulary(model, vocabulary, spelled)
            log_p = float(opened.log_spellings(words).sum()) - len(words) * math.log(closed)
            row[f'perplexity_{key}'] = math.exp(-log_p / len(words))
            row[f'bits_{key}'] = bits_per_character(log_p, count_characters(words))
    if not is_neural(settings.model.name):  # takes seconds
        opened, last = (
            OpenVocabulary(model, vocabulary, by_ngram),
            last_span(corpus, settings.corpus.tokenizer.boundary_tokens),
        )
        row['bits_printed'] = bits_per_character(float(opened.score(corpus.words, last).log_p_T.sum()), last_texts()[2])
    return row


@functools.cache
def read_corpus(settings: CorpusSettings) -> Corpus:
    """Reads a corpus; caches the result."""
    return corpora.load(settings)


def train_runs(folder: pathlib.Path, command: str) -> dict[str, pathlib.Path]:
    """Trains RUNS unless they are finished."""
    folders = {}
    for name, (row, changes) in RUNS.items():
        config = config_lib.override(brown_config.get_config(row), changes)
        folders[name] = folder / name.replace(', ', '-').replace(' ', '_').replace(',', '')
        experiment.run(config, folders[name], command)
    return folders


def count_ngrams(rare: spelling.RareWords, n: int) -> Spelling:
    """Returns the spelling by a modified Kneser-Ney n-gram over characters."""
    data = characters.build_dataset(rare.words, n - 1)
    model = kneser_ney.fit_modified(count(data.tokens_T, data.train, n, len(data.vocabulary), SharedScratch()))
    return Spelling(model, data.vocabulary, rare.vocabulary)


def spellings(rare: spelling.RareWords, folder: pathlib.Path) -> list[dict[str, Any]]:
    """Compares spelling models: the network in a run's folder, n-grams, and their mixtures."""
    seconds_of_network = read_json(folder / catalog.SPELLING / catalog.RESULTS)['seconds']
    loaded = loading.load(folder / catalog.SPELLING)
    symbols, network = loaded.vocabulary, loaded.model
    _, data = spelling.prepare(rare)
    ngram = kneser_ney.fit_modified(count(data.tokens_T, data.train, ORDERS[-1], len(symbols), SharedScratch()))
    mixed = mixture.fit([network, ngram], data.tokens_T, data.valid)
    ways = [
        (
            'network',
            'occurrences',
            Spelling(network, symbols, rare.vocabulary),
            seconds_of_network,
        ),
        (f'network and {ORDERS[-1]}-gram mixed', 'occurrences', Spelling(mixed, symbols, rare.vocabulary), None),
    ]
    for source, words in {
        'occurrences': rare.words['train'],
        'types': list(dict.fromkeys(rare.words['train'])),
    }.items():
        for n in ORDERS:
            started = time.perf_counter()
            counted = count_ngrams(rare._replace(words={**rare.words, 'train': words}), n)
            ways.append((f'modified Kneser-Ney {n}-gram', source, counted, round(time.perf_counter() - started, 1)))
    rows = []
    for name, source, spelled, seconds in ways:
        bits = {split: m['bits_per_character'] for split, m in spelling.measure(spelled, rare.words).items()}
        outside = math.exp(spelled.log_outside)
        rows.append({'name': name, 'trained_on': source, **bits, 'outside': outside, 'seconds': seconds})
    return rows


def compressed() -> dict[str, float]:
    """Returns the bits per character of `last_texts` by bzip2, and by xz after it has read the preceding text."""
    texts = [' '.join(text.split()) for text in brown.texts()]
    num_texts, _, num_characters = last_texts()
    before, everything = (('\n'.join(part) + '\n').encode() for part in (texts[:-num_texts], texts))
    filters = [{'id': lzma.FILTER_LZMA2, 'preset': 9 | lzma.PRESET_EXTREME, 'dict_size': 2**24}]
    xz = functools.partial(lzma.compress, format=lzma.FORMAT_RAW, filters=filters)
    num_bytes = {
        'bzip2': len(bz2.compress(everything[len(before) :])),
        'xz after the texts before': len(xz(everything)) - len(xz(before)),
    }
    return {name: 8 * number / num_characters for name, number in num_bytes.items()}


def score_text(folder: pathlib.Path, name: str, spelled: Spelling) -> dict[str, Any]:
    """Scores TEXT with spelled unknown words; each paragraph follows its mark."""
    models = loaded_models.load_models([str(folder)])
    model, totals = OpenVocabulary(models.mixture, models.vocabulary, spelled), np.zeros(4)
    words_and_bits: list[tuple[str, float]] = []
    for paragraph in TEXT.read_text().split('\n\n'):
        words = ['<p>', *models.tokenize(paragraph, 'words')]
        scored = model.score(words, Span(1, len(words)))
        bits_T = -scored.log_p_T / math.log(2)
        totals += [bits_T.sum(), scored.num_characters, len(bits_T), scored.spelled_T.sum()]
        words_and_bits += [(w, round(b, 1)) for w, b, s in zip(words[1:], bits_T.tolist(), scored.spelled_T) if s]
    bits, num_characters, num_words, num_spelled = totals.tolist()
    return {
        'name': name,
        'words': int(num_words),
        'spelled': int(num_spelled),
        'characters': int(num_characters),
        'perplexity': 2 ** (bits / num_words),
        'bits_per_character': bits / num_characters,
        'spelled_words': dict(words_and_bits),
    }


def label(folder: pathlib.Path) -> str:
    """Returns the preset name of a run in configs/brown.py; for the default preset, its family."""
    settings = workdir.read_settings(folder)
    return settings.name.removeprefix('brown-') if settings.name != 'brown' else settings.model.name


def run_study(folder: pathlib.Path, networks: Sequence[pathlib.Path]) -> dict[str, Any]:
    """Trains and measures the models. Returns the results."""
    process.set_up_process()
    source = of_module('experiments.paper.section5.open_vocabulary')
    command = source['command']
    folders = train_runs(folder, command)
    rare = spelling.read_rare_words(folders[KN5])
    by_network = spelling.train(folders[KN5], rare, command=command)
    by_ngram: dict[tuple[str, ...], Spelling] = {}
    rows = []
    for name, run in {**folders, **{label(network): network for network in networks}}.items():
        words = loading.load(run).vocabulary.words
        if words not in by_ngram:
            by_ngram[words] = count_ngrams(spelling.read_rare_words(run), ORDERS[-1])
        rows.append(measure(name, run, by_ngram[words], by_network if words == rare.vocabulary.words else None))
        print(rows[-1], file=sys.stderr, flush=True)
    num_texts, num_words, num_characters = last_texts()
    return {
        'rows': rows,
        'ways_to_spell': spellings(rare, folders[KN5]),
        'last_texts': {'texts': num_texts, 'words': num_words, 'characters': num_characters},
        'compressed': compressed(),
        'text': [
            score_text(run, name, by_network)
            for name, run in {KN5: folders[KN5], **{label(network): network for network in networks}}.items()
        ],
        'written': spell(by_network, range(NUM_WRITTEN)),
        'seed': 1,
        **source,
    }


def show(_: study.Flags) -> str:
    """Returns the tables."""
    recorded = results.read(RESULTS, 'open_vocabulary')
    compress = [['-', name, *'------', f'{bits:.3f}'] for name, bits in recorded['compressed'].items()]
    main = [[f'{r["vocabulary"]:,}', r['name'], *_numbers(r)] for r in recorded['rows']]
    header = ['words', 'model', 'spelled', 'closed', 'network', '8-gram']
    header += [f'{name}: bits' for name in ('network', '8-gram', 'printed')]
    ways = [
        [w['name'], w['trained_on'], *(f'{w[k]:.3f}' for k in ('valid', 'test', 'new', 'outside')), w['seconds'] or '-']
        for w in recorded['ways_to_spell']
    ]
    return '\n\n'.join(
        [
            markdown_table(header, main + compress),
            markdown_table(['spelled by', 'trained on', 'valid', 'test', 'new in test', 'outside', 'seconds'], ways),
            markdown_table(
                ['invented text by', 'words', 'spelled', 'perplexity', 'bits / char'],
                [
                    [t['name'], t['words'], t['spelled'], t['perplexity'], f'{t["bits_per_character"]:.3f}']
                    for t in recorded['text']
                ],
            ),
            _spelled_words(recorded['text']),
            f'written: {" ".join(recorded["written"])}',
        ]
    )


def _numbers(row: Mapping[str, Any]) -> list[str]:
    perplexities = (row.get(key) for key in ('closed_perplexity', 'perplexity_network', 'perplexity_ngram'))
    bits = (row.get(f'bits_{key}') for key in ('network', 'ngram', 'printed'))
    return [
        f'{row["rare"]:.2%}',
        *('-' if number is None else f'{number:.1f}' for number in perplexities),
        *('-' if number is None else f'{number:.3f}' for number in bits),
    ]


def _spelled_words(texts: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of the bits of each spelled word of the text under each model."""
    body = [[word, *(t['spelled_words'][word] for t in texts)] for word in texts[0]['spelled_words']]
    return markdown_table(['bits of', *(t['name'] for t in texts)], body)


def define(parser: study.StudyParser) -> None:
    """Adds the folders."""
    folders = 'folder of the new runs, followed by the folders of finished runs'
    parser.add_argument('folders', nargs='*', metavar='DIR', help=folders)


def main(flags: study.Flags) -> None:
    """Measures the runs and writes the results."""
    require(bool(flags.folders), 'DIR', '', 'must be the folder of the new runs; use --show to print the tables')
    folder, *networks = (expand('DIR', path) for path in flags.folders)
    for network in networks:
        workdir.read_settings(network)  # check before training
    results.write(RESULTS / 'open_vocabulary.json', run_study(folder, networks))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
