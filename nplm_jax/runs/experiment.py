"""One experiment from config to results: what launch.py, sweeps and notebooks call."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from nplm_jax.data import corpora
from nplm_jax.data import dataset
from nplm_jax.training import dispatching
from nplm_jax.data import download
from nplm_jax.inference import perplexity as evaluation
from nplm_jax.utils import finite
from nplm_jax.models import language_model
from nplm_jax.models import mixture
from nplm_jax.models import nplm
from nplm_jax.distributed import sharding
from nplm_jax.training import schedule
from nplm_jax.distributed import multihost
from nplm_jax.runs import provenance
from nplm_jax.training import replay
from nplm_jax.runs import reporting
from nplm_jax import config as config_lib
from nplm_jax.training import loop
from nplm_jax.data import vocabulary
from nplm_jax.runs import workdir
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import expand, read_json, write_atomically
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram import factory
from nplm_jax.models.ngram import interpolated
from nplm_jax.utils.text import to_json

Trigram = tuple[mixture.CachedScores, mixture.Bins]


@dataclasses.dataclass(frozen=True)
class Together:
    """What runs that train together share: how many, how text and trigram are made, how they learn of a signal."""

    size: int
    prepare: Callable[[config_lib.Settings], dataset.Dataset]
    trigram: Callable[[dataset.Dataset], Trigram]
    interruptible: Callable[[], contextlib.AbstractContextManager[Callable[[], int]]]


def run(config: ConfigDict | Mapping[str, Any], folder: str | os.PathLike[str], command: str = '') -> dict[str, Any]:
    """Trains or estimates one model and evaluates it, or goes on where an earlier start of the same run ended.

    config: a ConfigDict like those in `configs/`, or the dictionary of a config.json.
    With several processes each calls this; all but the first train along, write nothing and return nothing.
    Returns: what `results.json` holds. A finished run is not trained again.
    Raises: BadInput; training.Interrupted after SIGINT or SIGTERM; finite.NonFiniteError.
    """
    return dispatching.drive(dispatches(config, folder, command, Together(1, prepare, fit_trigram, interruptible)))


def dispatches(
    config: ConfigDict | Mapping[str, Any], folder: str | os.PathLike[str], command: str, together: Together
) -> Generator[Callable, Any, dict[str, Any]]:
    """`run` as a generator of its dispatches, as `training.dispatches` is of `training.fit`."""
    started = time.perf_counter()
    wanted = config_lib.from_config(config)
    workdir.check_config(wanted)
    if not multihost.is_primary():
        return _follow(wanted)
    folder = expand('--workdir', folder)
    workdir.check(folder, wanted)
    with workdir.locked(folder):
        workdir.check(folder, wanted)  # again: another process may have made it its own just now
        results = finished(folder)
        multihost.broadcast_from_primary(np.bool(results is not None))
        if results is not None:
            print(f'{folder} is finished; this is its result (another --workdir trains again)')
        else:
            results = yield from _make(wanted, folder, command, started, together)
    print(reporting.results_table(results, config_lib.to_dict(wanted)['paper']))
    return results


def load(folder: str | os.PathLike[str]) -> tuple[config_lib.Settings, vocabulary.Vocabulary, LanguageModel]:
    """The settings, vocabulary and best model of a run's folder; a count-based one is estimated anew.

    Raises: BadInput when no run was started there, or it is damaged.
    """
    folder = expand('--workdir', folder)
    found = workdir.read_settings(folder)
    words = vocabulary.load(folder / workdir.VOCABULARY)
    if not found.model.is_network:
        return found, words, factory.estimate(found, prepare_again(found, folder), folder)
    if not (folder / 'checkpoints').is_dir():
        raise BadInput(f'{folder}: holds no checkpoint yet')
    with contextlib.closing(CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        state = jax.eval_shape(lambda: loop.init_state(found, len(words), None, 1))
        best = store.restore_best(state, state.params)
    return found, words, language_model.from_params(best, found.model.n)


def set_up_process(all_cores: bool = False) -> None:
    """What every command does before JAX starts: Orbax is quiet, and compiled programs are kept between starts.

    all_cores: each core of the CPU becomes a device, unless JAX_NUM_CPU_DEVICES says how many there are.
    """
    if all_cores and 'JAX_NUM_CPU_DEVICES' not in os.environ:
        ours = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()  # macOS has none
        jax.config.update('jax_num_cpu_devices', ours)
    logging.set_verbosity(logging.WARNING)  # Orbax tells much at the level below
    if not jax.config.jax_compilation_cache_dir:  # JAX_COMPILATION_CACHE_DIR sets another
        jax.config.update('jax_compilation_cache_dir', str(download.cache_folder() / 'compiled'))


def prepare(wanted: config_lib.Settings) -> dataset.Dataset:
    """Reads the corpus that the settings name and puts it on the device."""
    corpus = corpora.load(wanted.corpus)
    return dataset.from_corpus(corpus, vocabulary.for_corpus(corpus, wanted.corpus))


def prepare_again(wanted: config_lib.Settings, *folders: str | os.PathLike[str]) -> dataset.Dataset:
    """The corpus of runs, for whatever reads it beside what they left.

    Args:
        wanted: the settings, whose `corpus.*` are those of each run.
        folders: of the runs, all of them started.

    Returns:
        What `prepare` does.

    Raises:
        BadInput: the text has changed since one of the runs was started, or cannot be read.
    """
    data = prepare(wanted)
    for folder in folders:
        workdir.record_inputs(expand('--workdir', folder), wanted, data)
    return data


def finished(folder: pathlib.Path) -> dict[str, Any] | None:
    """The results of a finished run; None when there are none, or no whole ones."""
    try:
        results = read_json(folder / 'results.json')
    except BadInput:
        return None
    return results if reporting.is_whole(results) else None


def _make(wanted, folder, command, started, together) -> Generator[Callable, Any, dict[str, Any]]:
    source = provenance.provenance()  # now: the repository may change while this trains
    network = wanted.model.is_network
    if network:
        sharding.build(wanted)  # devices that are not there are refused before anything is downloaded
    data = together.prepare(wanted)
    if network:
        workdir.check_text(data)
        schedule.make_schedule(wanted, data.train)  # a batch too large is refused before anything is compiled
        wanted.output.check(len(data.vocabulary))
    workdir.record_inputs(folder, wanted, data)
    _describe(wanted, data, folder)
    if network:
        model, facts = yield from _train(wanted, data, folder, started, together)
    else:
        model, facts = _estimate(wanted, data, folder)
    trained = time.perf_counter()
    model = mixture.CachedScores(model)
    scores = {name: evaluation.evaluate(model, data.tokens_T, span) for name, span in data.splits.items()}
    results = {
        'name': wanted.name,
        'corpus': wanted.corpus.name,
        'family': wanted.model.family,
        'vocabulary': len(data.vocabulary),
        'words': {name: score.words for name, score in scores.items()},
        'perplexity': {name: score.perplexity for name, score in scores.items()},
        'impossible_words': {name: score.impossible for name, score in scores.items()},
        **facts,
        **({'mixture': mix_with_trigram(model, data, together.trigram(data))} if network else {}),
        'evaluation_seconds': round(time.perf_counter() - trained, 1),
        'peak_memory_megabytes': provenance.peak_memory() // 2**20,
        'command': command,
        'seed': wanted.seed,
        **source,
    }
    text = to_json(results, indent=2) + '\n'
    write_atomically(folder / 'results.json', text)
    return json.loads(text)


def _train(wanted, data, folder, started, together) -> Generator[Callable, Any, tuple[LanguageModel, dict[str, Any]]]:
    """The network, and what its results say of the training."""
    reporter = reporting.Reporter(folder, wanted.name if together.size > 1 else '')
    with contextlib.closing(CheckpointStore(folder / 'checkpoints')) as store, contextlib.closing(reporter):
        try:
            with together.interruptible() as interrupted:
                best, progress = yield from loop.dispatches(wanted, data, store, reporter, interrupted, started)
        except finite.NonFiniteError as error:
            raise replay.explain(error, wanted, data, store, folder) from None
    reporting.draw_learning_curve(folder, wanted.name, wanted.paper.valid)
    batch_size = wanted.train.batch_size
    return language_model.from_params(best, wanted.model.n), {
        'parameters': nplm.count(best),
        'epochs': progress.step / (len(data.train) // batch_size),
        'updates': progress.step,
        'best_update': progress.best_step,
        'seconds': round(progress.seconds, 1),
        'words_per_second': round(progress.step * batch_size / progress.train_seconds),
        **({'trained_together': together.size} if together.size > 1 else {}),
    }


def _follow(wanted: config_lib.Settings) -> dict[str, Any]:
    """The part of a process that is not the first: it trains along, unless there is nothing to train."""
    finished = multihost.broadcast_from_primary(np.bool(False))
    if not finished and wanted.model.is_network:
        sharding.build(wanted)
        data, silent = prepare(wanted), multihost.Silent()
        workdir.check_text(data)
        try:
            with interruptible() as interrupted:
                loop.fit(wanted, data, silent, silent, interrupted)
        except finite.NonFiniteError as error:
            raise replay.explain(error, wanted, data, silent) from None
    return {}


def _estimate(wanted, data, folder) -> tuple[LanguageModel, dict[str, Any]]:
    """The count-based model, and how long it took."""
    started = time.perf_counter()
    model = factory.estimate(wanted, data, folder)
    seconds = time.perf_counter() - started
    return model, {'seconds': round(seconds, 2), 'words_per_second': round(len(data.train) / seconds)}


def fit_trigram(data: dataset.Dataset) -> Trigram:
    """The interpolated trigram of the corpus, which remembers its scores, and its bins."""
    trigram = interpolated.fit(data.tokens_T, data.train, data.valid, len(data.vocabulary))
    return mixture.CachedScores(trigram), trigram.bins


def mix_with_trigram(model: LanguageModel, data: dataset.Dataset, trigram: Trigram) -> dict[str, dict[str, Any]]:
    """Perplexities of the three mixtures of a model with the interpolated trigram (section 4.2).

    Returns: for `fixed` (0.5), `learned` (one weight) and `by_frequency` (a weight a bin of the trigram) the
    validation and test perplexity and the model's weights.
    """
    mixtures = mixture.paper_mixtures([model, trigram[0]], data.tokens_T, data.valid, trigram[1])
    return {
        name: {
            **{s: evaluation.evaluate(m, data.tokens_T, data.splits[s]).perplexity for s in ('valid', 'test')},
            'weights': m.weights_QxM[:, 0].tolist(),
        }
        for name, m in zip(('fixed', 'learned', 'by_frequency'), mixtures)
    }


def _describe(wanted: config_lib.Settings, data: dataset.Dataset, folder: pathlib.Path) -> None:
    words = ' / '.join(f'{len(span):,}' for span in data.splits.values())
    span = data.valid
    rare = float((data.tokens_T[span.start : span.stop] == vocabulary.RARE_ID).mean())
    model, size = wanted.model, len(data.vocabulary)
    shape = f'{model.family}, n={model.n}'
    if model.is_network:
        parameters = nplm.count(jax.eval_shape(lambda: loop.init_state(wanted, size, None, 1)).params)
        window = '' if model.is_recurrent else f'n={model.n} '
        shape = f'{model.family}: {window}m={model.m} h={model.h} direct={model.direct}: {parameters:,} free parameters'
    print(
        f'{wanted.name}: {wanted.corpus.name}, {words} words to train / validate / test on, |V| = '
        f'{len(data.vocabulary):,}; {vocabulary.RARE} counts as one word, {rare:.1%} of the validation words\n'
        f'{shape}; folder {folder}'
    )


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one acts as it always does.

    Yields: a function that tells the signal's number, 0 while there was none.
    """
    asked: list[int] = []
    former: dict[int, Any] = {}

    def ask(number, _frame):
        asked.append(number)
        signal.signal(number, former[number])
        print('\nstopping after the updates under way ...', file=sys.stderr)

    if threading.current_thread() is threading.main_thread():  # no other may handle signals
        former |= {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in former:
            signal.signal(number, ask)
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
