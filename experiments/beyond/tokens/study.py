"""Trains a network on words, subwords or bytes for as many updates as fit into a given CPU time.

python -m experiments.runs tokens                                                      all runs
python -m experiments.beyond.tokens.study --run=one_minute-brown-words-1 --workdir=DIR --output=FILE.json   one run
python -m experiments.beyond.tokens.study --run=one_minute-brown-words-1 --workdir=DIR --pilot   an entry of UPDATES
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import pathlib
import shutil
import statistics
import time
from typing import Any

import jax
import numpy as np
import scipy.special
from ml_collections import ConfigDict

from configs import presets, text
from experiments import results, study
from experiments.beyond.tokens import texts
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import corpora
from nplm_jax.data.stream import RARE
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.models.open_vocabulary import OpenVocabulary
from nplm_jax.reporting import provenance
from nplm_jax.runs import experiment, process, spelling
from nplm_jax.runs.session import open_session
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.training import train as train_lib
from nplm_jax.training.step import execute_steps
from nplm_jax.training.training_run import ChunkResult, TrainingRun
from nplm_jax.utils.io import expand

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
SEEDS = (1, 2)
BUDGETS = {'one_minute': 60.0}  # key of presets.MINUTES -> CPU time of the updates, in seconds
CHUNK = 20  # number of updates per call of the compiled program
PILOT = 340  # number of updates timed for an entry of UPDATES
WORDS = 'words'
_PIECES = {'corpus.tokens': 'pieces'}
SYSTEMS: dict[str, dict[str, Any]] = {  # differences from `make_config`
    WORDS: {'corpus.tokens': 'whitespace', 'corpus.max_vocabulary': 16384, 'corpus.min_count': 1},
    'bpe_8192': {**_PIECES, 'corpus.pieces': 8192},
    'bytes': {'corpus.tokens': 'bytes', 'output.kind': 'full'},
    'bpe_2048': {**_PIECES, 'corpus.pieces': 2048},
    'bpe_16384': {**_PIECES, 'corpus.pieces': 16384},
    'unigram_8192': {**_PIECES, 'corpus.pieces': 8192, 'corpus.piece_model': 'unigram'},
}
# (row, corpus) -> the number of updates of each system that fit into the budget, measured once for all seeds.
UPDATES: dict[tuple[str, str], tuple[int, ...]] = {
    ('one_minute', 'brown'): (2400, 2720, 3120, 2260, 2360, 2600),
    ('one_minute', 'wikitext2'): (2420, 2760, 2980, 2280, 2220, 2460),
}
SPELLING = {'model.family': 'modified_kneser_ney', 'model.n': 8}  # as nplm spell --family=modified_kneser_ney --n=8


@dataclasses.dataclass(frozen=True)
class Run:
    """A network to train.

    Attributes:
        row: A key of BUDGETS.
        corpus: One of `texts.CORPORA`.
        system: A key of SYSTEMS.
        seed: The random seed.
    """

    row: str
    corpus: str
    system: str
    seed: int

    @property
    def name(self) -> str:
        """The name of the run's folder and of its results file."""
        return f'{self.row}-{self.corpus}-{self.system}-{self.seed}'

    @property
    def updates(self) -> int:
        """The number of updates, a multiple of CHUNK."""
        return UPDATES[self.row, self.corpus][list(SYSTEMS).index(self.system)]


def all_runs() -> list[Run]:
    """Returns the runs, ordered by row, corpus and seed."""
    order = itertools.product(BUDGETS, texts.CORPORA, SEEDS, SYSTEMS)
    return [Run(row, corpus, system, seed) for row, corpus, seed, system in order]


def make_config(run: Run, files: dict[str, pathlib.Path]) -> ConfigDict:
    """Returns the config of a run: the network of a preset, without attention, trained on these files."""
    # UPDATES was measured without attention. A memory of as many tokens would hold less text in some systems.
    network = {**presets.MINUTES[run.row], 'model.family': 'mogrifier'}
    c = config_lib.override(text.get_config(), {**network, 'train.epochs': 12})
    c.name, c.seed = run.name, run.seed
    c.train.steps_per_execution = CHUNK
    c.train.evaluate_every = c.train.checkpoint_every = 2**30  # validate and save only at the end
    c.eval.words = 1000  # nothing depends on the validation
    c.corpus.lowercase = c.corpus.split_possessive = run.corpus == 'brown'
    c.corpus.paragraphs = 'blank_lines'
    c.corpus.path, c.corpus.valid_path, c.corpus.test_path = (str(files[split]) for split in texts.SPLITS)
    return config_lib.override(c, SYSTEMS[run.system])


def shorten(run: TrainingRun, num_updates: int) -> TrainingRun:
    """Returns a run with the given number of updates, over which the learning rate decays to zero.

    Each call of the program executes `train.steps_per_execution` updates, and the remainder of an epoch is skipped.
    The last epoch may be incomplete.
    """
    size = run.schedule.steps_per_execution
    per_epoch = run.schedule.steps_per_epoch // size * size
    optimizer = dataclasses.replace(run.program.optimizer, total_steps=num_updates)
    schedule = dataclasses.replace(run.schedule, steps_per_epoch=per_epoch, total_steps=num_updates)
    program = dataclasses.replace(run.program, steps_per_epoch=per_epoch, optimizer=optimizer)
    return dataclasses.replace(run, schedule=schedule, program=program)


def time_updates(training: train_lib.Training) -> tuple[list[float], float, train_lib.Trained]:
    """Trains until the end.

    Returns:
        The CPU time of each chunk of updates and the CPU time after the last chunk, in seconds, and the result.
    """
    seconds: list[float] = []
    result: Any = None
    while True:
        started = time.process_time()
        try:
            chunk = training.send(result)
        except StopIteration as stop:
            return seconds, time.process_time() - started, stop.value
        result = ChunkResult(*jax.block_until_ready(execute_steps(*chunk)))
        seconds.append(time.process_time() - started)


def train(run: Run, workdir: pathlib.Path, num_updates: int) -> dict[str, Any]:
    """Trains and measures a run.

    Args:
        run: The run.
        workdir: The folder that contains the texts and runs.
        num_updates: The number of updates, a multiple of CHUNK.
    """
    files = texts.write(run.corpus, workdir / 'texts')
    settings = experiment.load_settings(make_config(run, files))
    folder = workdir / 'runs' / run.name
    shutil.rmtree(folder, ignore_errors=True)
    started = time.process_time()
    corpus = SharedCorpus(settings)
    data = corpus.data
    prepare_seconds = time.process_time() - started
    with open_session(settings, folder, 'python -m experiments.beyond.tokens.study', corpus) as session:
        assert session.training_run is not None
        made = shorten(session.training_run, num_updates)
        seconds, after, trained = time_updates(train_lib.train(made, session.store, session.reporter))
        memory = provenance.peak_memory()
        model = NeuralLanguageModel(made.program.network, trained.params)
    started = time.process_time()
    log_p_T = model.score(data.tokens_T, data.test)
    test_seconds = time.process_time() - started
    sizes = {split: texts.size(file) for split, file in files.items()}
    trained_share = num_updates * settings.train.batch_size / len(data.train)  # passes over the training text
    spent = statistics.fmean(seconds[1:]) * len(seconds)  # the first chunk includes compilation
    measured = {
        **dataclasses.asdict(run),
        'vocabulary': len(data.vocabulary),
        'parameters': made.program.network.num_parameters(),
        'tokens': {split: len(span) for split, span in data.splits.items()},
        'words': {split: s.words for split, s in sizes.items()},
        'bytes': {split: s.bytes for split, s in sizes.items()},
        'updates': num_updates,
        'passes': trained_share,
        'seconds': {
            'prepare': prepare_seconds,
            'compile': seconds[0],
            'updates': spent,
            'after': after,
            'test': test_seconds,
        },
        'train_words_per_second': trained_share * sizes['train'].words / spent,
        'train_bytes_per_second': trained_share * sizes['train'].bytes / spent,
        'test_bytes_per_second': sizes['test'].bytes / test_seconds,
        'peak_memory_megabytes': memory // 2**20,
        'log_p': float(log_p_T.astype(float).sum()),
    }
    if run.system == WORDS:
        measured |= spell(settings, folder, model, measured['log_p'])
    return {**measured, **summarize(measured), **of_module(__spec__.name)}


def spell(settings: Settings, folder: pathlib.Path, model: LanguageModel, closed: float) -> dict[str, Any]:
    """Returns log P of the test text, including the spellings of unknown words, and the number of spelled words.

    Args:
        settings: The settings of the run.
        folder: The folder of the run, which contains the spelling model.
        model: The network of the run.
        closed: log P of the text with the symbol <rare> in place of these words.
    """
    started = time.process_time()
    rare = spelling.read_rare_words(folder)
    trained = spelling.train(folder, rare, changes=SPELLING)
    seconds = time.process_time() - started
    corpus = corpora.load(settings.corpus)
    stream = corpus.words
    words = stream[corpus.test.start : corpus.test.stop]
    opened = OpenVocabulary(model, rare.vocabulary, trained)
    # <rare> stands for <unk> in the text and for all spelled words, in proportion to their counts in the training text.
    train, test = (
        np.array([stream[span.start : span.stop].count(RARE), len(rare.words[split])])
        for split, span in (('train', corpus.train), ('test', corpus.test))
    )
    log_share = scipy.special.xlogy(test, train / train.sum()).sum()
    return {
        'log_p': closed + float(opened.log_spellings(words).sum() + log_share),
        'log_p_closed': closed,
        'rare_test_words': len(rare.words['test']),
        'spelling_seconds': seconds,
    }


def summarize(measured: dict[str, Any]) -> dict[str, float]:
    """Returns the bits per byte of the test text, and its perplexity per whitespace-separated word."""
    nats = -measured['log_p']
    return {
        'bits_per_byte': nats / math.log(2) / measured['bytes']['test'],
        'perplexity_per_word': math.exp(nats / measured['words']['test']),
    }


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument(
        '--run',
        required=True,
        choices=[run.name for run in all_runs()],
        metavar='RUN',
        help='name of the run to train; required',
    )
    parser.add_argument('--workdir', required=True, help='folder to write the texts and runs to; required')
    parser.add_switch('--pilot', f'time {PILOT} updates, and print how many updates fit into the budget')
    parser.add_argument('--core', type=int, default=0, help='index of the CPU core that the run uses')
    parser.add_output_path(help='file to write the results to; default: print the results')


def main(flags: study.Flags) -> None:
    """Trains and measures a run on one core. Memory and CPU time refer to this process."""
    os.sched_setaffinity(0, {flags.core})
    process.set_up_process()
    (run,) = (run for run in all_runs() if run.name == flags.run)
    workdir, budget = expand('--workdir', flags.workdir), BUDGETS[run.row]
    if flags.pilot:
        per_update = train(run, workdir, PILOT)['seconds']['updates'] / PILOT
        print(run.name, round(budget / per_update / CHUNK) * CHUNK)
        return
    measured = {'budget': budget, **train(run, workdir, run.updates)}
    if flags.output:
        results.write(flags.output, measured)
    else:
        print(json.dumps(measured))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
