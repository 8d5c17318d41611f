"""Measures how well this study's runs predict reading times, and writes results/reading_times.json.

    python -m experiments.beyond.tokens.reading --workdir=runs/tokens --data=naturalstories

The data and the regression are the same as in experiments/use/reading_times. Unfinished runs are skipped.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np

from experiments import results
from experiments import study as entry
from experiments.beyond.tokens import study
from experiments.beyond.tokens.study import RESULTS, Run
from experiments.sources import of_module, of_runs
from experiments.use.reading_times import measure as reading_times
from experiments.use.reading_times import natural_stories
from experiments.use.reading_times.natural_stories import Stories
from nplm_jax.apps.psycholinguistics import measurement
from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.data.line_start import LineStart
from nplm_jax.runs import loading, process, spelling
from nplm_jax.utils.io import expand, write_atomically

OUTPUT = 'reading_times.json'
RARE = 'words, unknown ones as <rare>'  # the same network without the spelling model


class Texts(NamedTuple):
    """The stories as a corpus, the same for all systems.

    Attributes:
        tokens: The words of all stories, with punctuation split off as in the corpus.
        story_T: The story of each word.
        words_T: The original word of the stories to which each word belongs.
        columns: The length, the log frequency, and whether all parts of a word are in the vocabulary of the word
            network.
    """

    tokens: list[str]
    story_T: np.ndarray
    words_T: np.ndarray
    columns: dict[str, np.ndarray]


def read_texts(stories: Stories, folder: pathlib.Path) -> Texts:
    """Splits off punctuation from the words of the stories, as in the texts of the study, which are split already."""
    loaded = loading.load(folder)
    tokenizer: Any = loaded.vocabulary.tokenizer
    tokenizer = dataclasses.replace(tokenizer, split_punctuation=True, match_quotes=True)
    vocabulary = dataclasses.replace(loaded.vocabulary, tokenizer=tokenizer)
    measured = reading_times.columns_of(stories, dataclasses.replace(loaded, vocabulary=vocabulary))
    cut = [tokens.split() for tokens in measured['tokens']]
    words_T = np.repeat(np.arange(len(cut)), list(map(len, cut)))
    kept = {name: np.array(measured[name]) for name in ('length', 'log_frequency', 'in_vocabulary')}
    return Texts([token for tokens in cut for token in tokens], stories.story_W[words_T], words_T, kept)


def word_surprisals(folder: pathlib.Path, texts: Texts, is_spelled: bool) -> np.ndarray:
    """Returns the surprisal of each word of the stories in nats, including punctuation. See `nplm_jax.surprisal`."""
    zones = [zone + 1 for story in np.unique(texts.story_T) for zone in range((texts.story_T == story).sum())]
    columns = {'item': texts.story_T.tolist(), 'zone': zones, 'word': texts.tokens}
    spelled = spelling.load(folder) if is_spelled else None
    stimuli = stimuli_lib.from_columns(columns, 'the stories')
    measured = measurement.measure({'run': loading.load(folder)}, stimuli, spelling=spelled)
    return np.bincount(texts.words_T, np.array(measured['surprisal_run']) * math.log(2))


def measure(surprisal_W: np.ndarray, stories: Stories, texts: Texts) -> dict[str, Any]:
    """Returns the perplexity and the gains, both on the words that the word network knows and on all words."""
    measured = {}
    for name, known_W in {'known': texts.columns['in_vocabulary'], 'all': np.ones(len(stories.words), bool)}.items():
        columns = {**texts.columns, 'in_vocabulary': known_W}
        read = reading_times.Texts([], LineStart(), texts.words_T, columns)
        is_kept_W, _ = reading_times.analysed(stories, read)
        story_W = stories.story_W[is_kept_W]
        counts = [int((story_W == story).sum()) for story in np.unique(stories.story_W)]
        measured[name] = {'counts': counts, **reading_times.measure(surprisal_W, stories, read)}
    return measured


def measure_run(run: Run, workdir: pathlib.Path, stories: Stories, texts: Texts) -> dict[str, Any]:
    """Returns the results of a run by system. A run over words has two systems."""
    folder = workdir / 'runs' / run.name
    systems = {run.system: run.system == study.WORDS, **({RARE: False} if run.system == study.WORDS else {})}
    return {
        system: measure(word_surprisals(folder, texts, is_spelled), stories, texts)
        for system, is_spelled in systems.items()
    }


def measure_all(workdir: pathlib.Path, data_folder: str) -> dict[str, Any]:
    """Returns the gains by row, corpus, system and seed, with their origins. Each run's folder caches its gains."""
    source, stories = of_module(__spec__.name), natural_stories.read(data_folder)
    measured: dict[str, Any] = collections.defaultdict(lambda: collections.defaultdict(dict))
    texts: dict[str, Texts] = {}
    files: list[dict[str, Any]] = []
    for run in study.all_runs():
        path = workdir / 'runs' / run.name / OUTPUT
        if not (RESULTS / f'{run.name}.json').exists():
            print(f'{run.name}: skipped, because the run is not finished', file=sys.stderr)
            continue
        if not path.exists():
            if run.corpus not in texts:
                words = workdir / 'runs' / Run(run.row, run.corpus, study.WORDS, 1).name
                texts[run.corpus] = read_texts(stories, words)
            systems = measure_run(run, workdir, stories, texts[run.corpus])
            write_atomically(path, json.dumps({'name': run.name, 'systems': systems, **source}))
            print(run.name, file=sys.stderr, flush=True)
        files.append(found := results.load(path))
        for system, gains in found['systems'].items():
            measured[f'{run.row}-{run.corpus}'][system][str(run.seed)] = gains
    return {'runs': measured, 'measured': of_runs(files), **source}


def define(parser: entry.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--workdir', required=True, help='folder that contains the runs; required')
    parser.add_argument(
        '--data', required=True, help="folder that contains a clone of the corpus's repository; required"
    )


def main(flags: entry.Flags) -> None:
    """Measures all finished runs and writes the results."""
    process.set_up_process()
    results.write(RESULTS / OUTPUT, measure_all(expand('--workdir', flags.workdir), flags.data))


if __name__ == '__main__':
    entry.run(__doc__, define=define, measure=main)
