"""Compares word error rates of beam search with different models, on Brown's sentences in a simulated noisy channel.

    nplm train brown:modified_kneser_ney_5 && nplm train brown:one_minute
    python -m experiments.use.decoding.study --runs=runs          # measures, and writes results/brown.json
    python -m experiments.use.decoding.study                      # prints the table

The channel spells each word as characters. A character lasts for some frames of 1/50 s and is sometimes confused with
another character, and Gaussian noise is added to every score. Weights are tuned on sentences of the validation words.

Dims: F frames, N tokens.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import results, study
from experiments.sources import of_module, of_runs
from nplm_jax import decoding, kenlm
from nplm_jax.apps.decoding import reranking
from nplm_jax.data import corpora
from nplm_jax.data.stream import BOUNDARY_TOKENS
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import loading, process
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results'
BLANK, SILENCE = '<blank>', '<space>'  # not - and |, which may be characters of words
FRAMES_PER_SECOND = 50
MEAN_FRAMES = 2.0  # mean number of frames of a character after the first frame
BLANKS = 0.4  # probability of a blank after a character; two equal characters always have a blank between them
CONFUSED = 0.08  # the probability that a character is confused with another character
SIGNAL, WEAK, NOISE = 5.0, 3.5, 1.8  # scores of the heard and of the spoken character, and the noise in every score
SENTENCES = {'valid': 60, 'test': 400}
LENGTHS = range(5, 26)  # number of words in a sentence
NGRAM, NETWORK = 'brown-modified_kneser_ney_5', 'brown-one_minute'
FIVE_GRAM = 'modified Kneser-Ney 5-gram'
SYSTEMS: Mapping[str, Sequence[str]] = {
    'no model': (),
    FIVE_GRAM: (NGRAM,),
    'Mogrifier LSTM': (NETWORK,),
    'mixture, 0.5 each': (NGRAM, NETWORK),
}
ROUNDS = 2  # number of rounds of tuning the weights
DRAWS = 2000  # number of resamples of the sentences, for the intervals
BEAM: dict[str, Any] = {'beam_width': 200, 'beam_prune_logp': -30.0, 'token_min_logp': -10.0}


def sentences(words: Sequence[str], number: int, rng: np.random.Generator) -> list[list[str]]:
    """Returns the sentences of a text, including their final punctuation."""
    found, start = [], 0
    for i, word in enumerate(words):
        if word in BOUNDARY_TOKENS:
            start = i + 1
        elif word in ('.', '?', '!'):
            if i + 1 - start in LENGTHS:
                found.append(list(words[start : i + 1]))
            start = i + 1
    return [found[i] for i in sorted(rng.choice(len(found), number, replace=False))]


def sound(sentence: Sequence[str], tokens: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Returns the float32 log-probabilities of the tokens in each frame of a sentence, F x N."""
    places = {token: i for i, token in enumerate(tokens)}
    spelled = [token for word in sentence for token in (*word, SILENCE)]
    frames: list[tuple[int, int]] = []  # heard and spoken characters
    for token, after in zip(spelled, [*spelled[1:], '']):
        heard = places[token]
        if token != SILENCE and rng.random() < CONFUSED:
            heard = int(rng.integers(2, len(tokens)))
        frames += [(heard, places[token])] * (1 + int(rng.poisson(MEAN_FRAMES)))
        if token == after or rng.random() < BLANKS:
            frames.append((places[BLANK], places[BLANK]))
    scores_FxN, rows_F = rng.normal(scale=NOISE, size=(len(frames), len(tokens))), np.arange(len(frames))
    heard_F, said_F = np.array(frames).T
    scores_FxN[rows_F, said_F] += WEAK
    scores_FxN[rows_F, heard_F] += np.where(heard_F == said_F, SIGNAL - WEAK, SIGNAL)
    return (scores_FxN - np.logaddexp.reduce(scores_FxN, axis=1, keepdims=True)).astype(np.float32)


class Speech(NamedTuple):
    """The simulated speech: the tokens, the lexicon, and the sentences, emissions and duration of each split."""

    tokens: list[str]
    lexicon: dict[str, list[list[str]]]
    texts: dict[str, list[list[str]]]
    emissions: dict[str, list[np.ndarray]]
    seconds: dict[str, float]


def simulate(runs: pathlib.Path) -> Speech:
    """Returns the simulated speech, which is the same for all systems."""
    loaded = loading.load(runs / NGRAM)
    settings, vocabulary = loaded.settings, loaded.vocabulary
    corpus = corpora.load(settings.corpus)
    known = [word for word in vocabulary.words[1:] if word not in BOUNDARY_TOKENS]
    texts = {}
    for number, split in enumerate(('valid', 'test')):
        span, rng = corpus.splits[split], np.random.default_rng(number)
        texts[split] = sentences(corpus.words[span.start : span.stop], SENTENCES[split], rng)
    characters = sorted(
        {c for word in known for c in word} | {c for text in texts.values() for s in text for w in s for c in w}
    )
    tokens = [BLANK, SILENCE, *characters]
    lexicon = {word: [[*word, SILENCE]] for word in known}
    rng = np.random.default_rng(2)
    emissions = {split: [sound(sentence, tokens, rng) for sentence in text] for split, text in texts.items()}
    seconds = {split: sum(map(len, arrays)) / FRAMES_PER_SECOND for split, arrays in emissions.items()}
    return Speech(tokens, lexicon, texts, emissions, seconds)


def measure(runs: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields the word error rates and times after each system."""
    process.set_up_process()
    trained = of_runs(loading.load(runs / name).results for name in (NGRAM, NETWORK))  # fails early if one is missing
    tokens, lexicon, texts, emissions, seconds = simulate(runs)
    unknown = [word not in lexicon for sentence in texts['test'] for word in sentence]
    systems: dict[str, Any] = {}
    measured = {
        'sentences': {split: len(text) for split, text in texts.items()},
        'words': {split: sum(map(len, text)) for split, text in texts.items()},
        'lengths': [len(sentence) for sentence in texts['test']],
        'seconds': seconds,
        'unknown_share': float(np.mean(unknown)),
        'tokens': len(tokens),
        'lexicon': len(lexicon),
        'systems': systems,
        'trained': trained,
        **of_module('experiments.use.decoding.study'),
    }
    for name, folders in SYSTEMS.items():
        model = kenlm.Model([runs / folder for folder in folders]) if folders else None
        systems[name] = measure_system(model, tokens, lexicon, emissions, texts, seconds)
        print(name, systems[name], flush=True)
        yield measured


def measure_system(
    model: kenlm.Model | None,
    tokens: Sequence[str],
    lexicon: decoding.Lexicon,
    emissions: Mapping[str, Sequence[np.ndarray]],
    texts: Mapping[str, Sequence[Sequence[str]]],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Tunes the weights on the validation sentences. Returns the error rate and cost on the test sentences."""

    def search(split: str) -> list[list[decoding.Hypothesis]]:
        decoder = decoding.Decoder(model, tokens, lexicon, weights, blank=BLANK, silence=SILENCE, **BEAM)
        return [decoder.decode(array) for array in emissions[split]]

    weights, best = decoding.Weights(1.0 if model else 0.0), (2.0, decoding.Weights())
    for _ in range(ROUNDS + 1):
        lists = search('valid')
        error = decoding.word_error_rate([found[0].words for found in lists], texts['valid'])
        best = min(best, (error, weights), key=lambda pair: pair[0])
        tuned, _ = decoding.tune(lists, texts['valid'])
        weights = tuned if model else decoding.Weights(0.0, tuned.word_score)
    weights = best[1]
    started, processor = time.perf_counter(), time.process_time()
    lists = search('test')
    took, spent = time.perf_counter() - started, time.process_time() - processor
    best_words = [found[0].words for found in lists]
    edits = [reranking.word_edits(words, reference) for words, reference in zip(best_words, texts['test'])]
    return {
        'word_error_rate': decoding.word_error_rate(best_words, texts['test']),
        'edits': edits,
        'valid': best[0],
        'lm_weight': float(weights.lm_weight),
        'word_score': float(weights.word_score),
        'seconds_per_second': took / seconds['test'],
        'processor_seconds_per_second': spent / seconds['test'],
    }


def interval(edits: np.ndarray, lengths: np.ndarray) -> str:
    """Returns the 95% bootstrap interval over sentences for a word error rate or the difference of two, in %."""
    drawn = np.random.default_rng(0).integers(len(lengths), size=(DRAWS, len(lengths)))
    low, high = np.percentile(100 * edits[drawn].sum(axis=1) / lengths[drawn].sum(axis=1), (2.5, 97.5))
    return f'{low:.1f} to {high:.1f}'


def make_table(measured: Mapping[str, Any]) -> str:
    """Returns the table of the README."""
    weights, seconds = ['lm_weight', 'word_score'], 's per second of speech'
    header = ['model', 'word error rate, %', '95%', 'less than the 5-gram, 95%', 'validation', *weights, seconds]
    rows, lengths = [], np.array(measured['lengths'])
    counted = np.array(measured['systems'][FIVE_GRAM]['edits'])
    for name, row in measured['systems'].items():
        edits = np.array(row['edits'])
        shown = [interval(x, lengths) for x in (edits, counted - edits)]
        numbers = [f'{row[key]:.2f}' for key in weights]
        spent = f'{row["processor_seconds_per_second"]:.3f}'
        errors = [f'{100 * row["word_error_rate"]:.1f}', *shown, f'{100 * row["valid"]:.1f}']
        rows.append([name, *errors, *numbers, spent])
    return markdown_table(header, rows)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--runs', help='folder that contains the runs; default: print the committed table')


def main(flags: study.Flags) -> None:
    """Measures, and prints the table."""
    results.write_each(RESULTS / 'brown.json', measure(expand('--runs', flags.runs)))
    print(study.shown(show, flags))


def show(_: study.Flags) -> str:
    """Returns the committed table."""
    return make_table(results.read(RESULTS, 'brown'))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show, measure_if='runs')
