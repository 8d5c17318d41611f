"""One experiment from config to results: what launch.py, sweeps and notebooks call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.config import Settings
from nplm_jax.data import corpora, dataset, download, vocabulary
from nplm_jax.distributed import multihost, sharding
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.models.ngram import factory, interpolated
from nplm_jax.models.registry import body_class, check_family, is_network
from nplm_jax.outputs.registry import output_layer_class
from nplm_jax.runs import provenance, reporting, workdir
from nplm_jax.training import checkpoints, replay
from nplm_jax.training import step as step_lib
from nplm_jax.training.loop import NullReporter, Reporter, Trainer, TrainingRun, fit, prepare_run
from nplm_jax.training.optimizers import Hyperparameters
from nplm_jax.training.vmapped import RUN_ERRORS, fit_many
from nplm_jax.utils import finite
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import expand, read_json, write_atomically
from nplm_jax.utils.text import to_json

Config = ConfigDict | Mapping[str, Any]
Path = str | os.PathLike[str]


def load_settings(config: Config) -> Settings:
    """Checks and freezes a config: types, ranges, names, and what the named parts cannot do.

    Args:
        config: A ConfigDict like those in `configs/`, or the dictionary of a config.json.

    Raises:
        BadInput: It names the key, the value and what is allowed.
    """
    settings = config_lib.from_config(config)
    corpora.check_settings(settings.corpus)
    check_family(settings.model, factory.NGRAM_MODELS)
    output_layer_class(settings.output)
    if is_network(settings.model):
        body_class(settings.model).from_settings(settings)
    else:
        factory.check_settings(settings)
    return settings


def run(config: Config, folder: Path, command: str = '') -> dict[str, Any]:
    """Trains or estimates one model and evaluates it, or goes on where an earlier start of the same run ended.

    With several processes each calls this. All but the first train along, write nothing and return nothing.

    Args:
        config: A ConfigDict like those in `configs/`, or the dictionary of a config.json.
        folder: Where the run's files lie. A finished run is not trained again.
        command: What results.json names as the command.

    Returns:
        What `results.json` holds.

    Raises:
        BadInput: The config, the folder, the text or the devices cannot serve.
        training.loop.Interrupted: SIGINT or SIGTERM came during training, and the state is saved.
        finite.NonFiniteError: A number is not finite.
    """
    settings = load_settings(config)
    with open_run(settings, folder, command, Inputs(settings)) as opened:
        if opened.trains:
            with interruptible() as interrupted:
                try:
                    fit(opened.make_trainer(interrupted))
                except finite.NonFiniteError as error:
                    raise opened.explain(error) from None
        return opened.finish()


def run_many(configs: Sequence[Config], folders: Sequence[Path], command: str) -> list[dict[str, Any] | Exception]:
    """Runs networks that `training.vmapped.group_compatible` groups, each with the results that it has alone.

    Returns:
        For each run what `run` returns, or the BadInput or NonFiniteError that ended it.

    Raises:
        training.loop.Interrupted: SIGINT or SIGTERM came during training, and all are saved.
    """
    if len(configs) == 1:
        try:
            return [run(configs[0], folders[0], command)]
        except (BadInput, finite.NonFiniteError) as error:
            return [error]
    all_settings = [load_settings(config) for config in configs]
    inputs = Inputs(all_settings[0])
    outcomes: dict[int, Any] = {}
    with contextlib.ExitStack() as stack, interruptible() as interrupted:
        opened: dict[int, OpenRun] = {}
        trainers: dict[int, Trainer] = {}
        for i, (settings, folder) in enumerate(zip(all_settings, folders)):
            try:
                opened[i] = stack.enter_context(open_run(settings, folder, command, inputs, len(configs)))
                if opened[i].trains:
                    trainers[i] = opened[i].make_trainer(interrupted)
            except RUN_ERRORS as error:
                outcomes[i] = error
        for i, error in zip(trainers, fit_many(list(trainers.values()))):
            if error is not None:
                outcomes[i] = opened[i].explain(error) if isinstance(error, finite.NonFiniteError) else error
        for i in opened.keys() - outcomes.keys():
            try:
                outcomes[i] = opened[i].finish()
            except RUN_ERRORS as error:
                outcomes[i] = error
    for outcome in outcomes.values():
        if isinstance(outcome, Exception) and not isinstance(outcome, (BadInput, finite.NonFiniteError)):
            raise outcome
    if signal_number := interrupted():  # after the last update
        signal.raise_signal(signal_number)
    return [outcomes[i] for i in range(len(configs))]


def load(folder: Path) -> tuple[Settings, vocabulary.Vocabulary, LanguageModel]:
    """Returns the settings, the vocabulary and the best model of a run's folder.

    A count-based model is estimated again, from the corpus.

    Raises:
        BadInput: No run was started there, or its files are damaged, or its text has changed.
    """
    folder = expand('--workdir', folder)
    settings = workdir.read_settings(folder)
    words = vocabulary.load(folder / workdir.VOCABULARY)
    if not is_network(settings.model):
        return settings, words, factory.estimate(settings, prepare_recorded(settings, folder), folder)
    if not (folder / 'checkpoints').is_dir():
        raise BadInput(f'{folder}: holds no checkpoint yet')
    network = Network.from_settings(settings, len(words))
    # An optimizer's state depends on neither the data nor the devices, and its structure is all that is needed.
    program = step_lib.make_program(settings, network, steps_per_epoch=1)
    hyperparameters = Hyperparameters.from_settings(settings)
    state = jax.eval_shape(lambda: step_lib.init_state(program, hyperparameters))
    with contextlib.closing(checkpoints.CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        return settings, words, NeuralLanguageModel(network, store.restore_best(state, state.params))


def set_up_process(all_cores: bool = False) -> None:
    """Does what every command does before JAX starts: quiets Orbax, and keeps compiled programs between starts.

    Args:
        all_cores: Whether each core of the CPU becomes a device, unless JAX_NUM_CPU_DEVICES says how many there are.
    """
    if all_cores and 'JAX_NUM_CPU_DEVICES' not in os.environ:
        # macOS has no sched_getaffinity.
        num_cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
        jax.config.update('jax_num_cpu_devices', num_cores)
    logging.set_verbosity(logging.WARNING)  # Orbax tells much at the level below
    if not jax.config.jax_compilation_cache_dir:  # JAX_COMPILATION_CACHE_DIR sets another
        jax.config.update('jax_compilation_cache_dir', str(download.cache_folder() / 'compiled'))


def prepare(settings: Settings) -> dataset.Dataset:
    """Reads the corpus that the settings name and puts it on the device."""
    corpus = corpora.load(settings.corpus)
    return dataset.from_corpus(corpus, vocabulary.for_corpus(corpus, settings.corpus))


def prepare_recorded(settings: Settings, *folders: Path) -> dataset.Dataset:
    """Reads the corpus of finished or started runs again.

    Args:
        settings: The settings of the runs, of which `corpus.*` is read.
        *folders: The runs' folders.

    Raises:
        BadInput: The text has changed since a run was started.
    """
    data = prepare(settings)
    for folder in folders:
        workdir.record_inputs(expand('--workdir', folder), settings, data)
    return data


def finished(folder: pathlib.Path) -> dict[str, Any] | None:
    """Returns the results of a finished run; None when there are none, or no complete ones."""
    try:
        results = read_json(folder / 'results.json')
    except BadInput:
        return None
    return results if reporting.is_whole(results) else None


class Inputs:
    """The corpus and its interpolated trigram, each made when first asked for; runs on the same text share them."""

    def __init__(self, settings: Settings):
        """Takes the settings, of which `corpus.*` is read."""
        self._settings = settings

    @functools.cached_property
    def data(self) -> dataset.Dataset:
        """The corpus."""
        return prepare(self._settings)

    @functools.cached_property
    def trigram(self) -> tuple[mixture.CachedScores, mixture.Bins]:
        """The trigram of the paper's mixtures, and its bins."""
        trigram = interpolated.fit(self.data.tokens_T, self.data.train, self.data.valid, len(self.data.vocabulary))
        return mixture.CachedScores(trigram), trigram.bins


@dataclasses.dataclass
class OpenRun:
    """A run whose folder this process holds.

    Attributes:
        settings: The run's settings.
        folder: Its folder.
        command: What results.json names as the command.
        inputs: Its corpus.
        started: time.perf_counter() at its start.
        source: Commit, versions and device, read at the start: the repository may change while this trains.
        results: What results.json holds once the run is finished.
        training_run: What training needs; None for a count-based or a finished run.
        store: Its checkpoints.
        reporter: Writes its metrics.
        num_batched: How many runs train together.
        trainer: What `make_trainer` made.
    """

    settings: Settings
    folder: pathlib.Path
    command: str
    inputs: Inputs
    started: float
    source: dict[str, Any] = dataclasses.field(default_factory=dict)
    results: dict[str, Any] | None = None
    training_run: TrainingRun | None = None
    store: checkpoints.Store = dataclasses.field(default_factory=checkpoints.NullStore)
    reporter: Reporter = dataclasses.field(default_factory=NullReporter)
    num_batched: int = 1
    trainer: Trainer | None = None

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return self.training_run is not None

    def make_trainer(self, interrupted: Callable[[], int]) -> Trainer:
        """Returns the run's trainer, at its newest checkpoint."""
        self.trainer = Trainer(self.training_run, self.store, self.reporter, interrupted, self.started)
        return self.trainer

    def explain(self, error: finite.NonFiniteError) -> finite.NonFiniteError:
        """Returns the error with the update that caused it. Every process calls this."""
        return replay.explain(error, self.settings, self.inputs.data, self.store, self.folder)

    def finish(self) -> dict[str, Any]:
        """Evaluates the model, writes results.json and prints the table; the first process alone does.

        Returns:
            What `results.json` holds, in the first process.
        """
        if not multihost.is_primary():
            return {}
        if self.results is None:
            self.results = self._evaluate(*(self._trained() if self.trains else self._estimated()))
            text = to_json(self.results, indent=2) + '\n'
            write_atomically(self.folder / 'results.json', text)
            self.results = json.loads(text)
        else:
            print(f'{self.folder} is finished; this is its result (another --workdir trains again)')
        print(reporting.results_table(self.results, config_lib.to_dict(self.settings)['paper']))
        return self.results

    def _trained(self) -> tuple[LanguageModel, dict[str, Any]]:
        """Returns the network, and what its results say of the training."""
        reporting.draw_learning_curve(self.folder, self.settings.name, self.settings.paper.valid)
        network, progress = self.training_run.program.network, self.trainer.progress
        batch_size = self.settings.train.batch_size
        return NeuralLanguageModel(network, self.trainer.best), {
            'parameters': network.num_parameters(),
            'epochs': progress.step / self.training_run.schedule.steps_per_epoch,
            'updates': progress.step,
            'best_update': progress.best_step,
            'seconds': round(progress.seconds, 1),
            'words_per_second': round(progress.step * batch_size / progress.train_seconds),
            **({'trained_together': self.num_batched} if self.num_batched > 1 else {}),
        }

    def _estimated(self) -> tuple[LanguageModel, dict[str, Any]]:
        """Returns the count-based model, and how long its estimation took."""
        started = time.perf_counter()
        model = factory.estimate(self.settings, self.inputs.data, self.folder)
        seconds = time.perf_counter() - started
        words_per_second = round(len(self.inputs.data.train) / seconds)
        return model, {'seconds': round(seconds, 2), 'words_per_second': words_per_second}

    def _evaluate(self, model: LanguageModel, facts: dict[str, Any]) -> dict[str, Any]:
        """Returns all of results.json."""
        started, data, settings = time.perf_counter(), self.inputs.data, self.settings
        model = mixture.CachedScores(model)
        scores = {name: evaluate(model, data.tokens_T, span) for name, span in data.splits.items()}
        mixed = {'mixture': mix_with_trigram(model, data, self.inputs.trigram)} if self.trains else {}
        return {
            'name': settings.name,
            'corpus': settings.corpus.name,
            'family': settings.model.family,
            'vocabulary': len(data.vocabulary),
            'words': {name: score.words for name, score in scores.items()},
            'perplexity': {name: score.perplexity for name, score in scores.items()},
            'impossible_words': {name: score.impossible for name, score in scores.items()},
            **facts,
            **mixed,
            'evaluation_seconds': round(time.perf_counter() - started, 1),
            'peak_memory_megabytes': provenance.peak_memory() // 2**20,
            'command': self.command,
            'seed': settings.seed,
            **self.source,
        }


@contextlib.contextmanager
def open_run(settings: Settings, folder: Path, command: str, inputs: Inputs, num_batched: int = 1) -> Iterator[OpenRun]:
    """Opens a run: checks and locks its folder, reads its corpus, and prepares its training. Every process calls this.

    Args:
        settings: The run's settings.
        folder: Its folder; the first process alone touches it.
        command: What results.json names as the command.
        inputs: Its corpus.
        num_batched: How many runs train together.

    Yields:
        The run; with `results` if it is finished.

    Raises:
        BadInput: The folder, the text or the devices cannot serve, or processes differ in config or text.
    """
    opened = OpenRun(settings, expand('--workdir', folder), command, inputs, time.perf_counter())
    folder, primary, network = opened.folder, multihost.is_primary(), is_network(settings.model)
    workdir.check_config(settings)
    with contextlib.ExitStack() as stack:
        if primary:
            workdir.check(folder, settings)
            stack.enter_context(workdir.locked(folder))
            workdir.check(folder, settings)  # again: another process may have made it its own just now
            opened.results = finished(folder)
        is_finished = bool(multihost.broadcast_from_primary(np.bool(opened.results is not None)))
        if is_finished or not (network or primary):
            yield opened
            return
        opened.source, opened.num_batched = provenance.provenance(), num_batched
        if network:
            check_devices(settings)  # before anything is downloaded
            workdir.check_text(inputs.data)
            opened.training_run = prepare_run(settings, inputs.data)  # before anything is compiled
        if primary:
            workdir.record_inputs(folder, settings, inputs.data)
            _describe(settings, inputs.data, folder, opened.training_run)
            if network:
                opened.store = stack.enter_context(
                    contextlib.closing(checkpoints.CheckpointStore(folder / 'checkpoints'))
                )
                reporter = reporting.Reporter(folder, settings.name if num_batched > 1 else '')
                opened.reporter = stack.enter_context(contextlib.closing(reporter))
        yield opened


def mix_with_trigram(
    model: LanguageModel, data: dataset.Dataset, trigram: tuple[mixture.CachedScores, mixture.Bins]
) -> dict[str, dict[str, Any]]:
    """Mixes a model with the interpolated trigram in the paper's three ways (section 4.2).

    Returns:
        For `fixed` (0.5), `learned` (one weight) and `by_frequency` (a weight a bin of the trigram) the validation and
        test perplexity and the model's weights.
    """
    mixtures = mixture.paper_mixtures([model, trigram[0]], data.tokens_T, data.valid, trigram[1])
    return {
        name: {
            **{s: evaluate(mixed, data.tokens_T, data.splits[s]).perplexity for s in ('valid', 'test')},
            'weights': mixed.weights_QxM[:, 0].tolist(),
        }
        for name, mixed in zip(('fixed', 'learned', 'by_frequency'), mixtures)
    }


def check_devices(settings: Settings) -> None:
    """Raises: BadInput when there are too few devices, or they cannot divide the batch."""
    body = body_class(settings.model).from_settings(settings)
    batch_size = settings.train.batch_size
    uses_sparse_updates = output_layer_class(settings.output).uses_sparse_updates
    sharding.build(settings.parallel, batch_size, body.num_streams(batch_size), uses_sparse_updates)


def _describe(
    settings: Settings, data: dataset.Dataset, folder: pathlib.Path, training_run: TrainingRun | None
) -> None:
    """Prints the text, the model and the folder."""
    words = ' / '.join(f'{len(span):,}' for span in data.splits.values())
    rare = float((data.tokens_T[data.valid.start : data.valid.stop] == vocabulary.RARE_ID).mean())
    model = settings.model
    shape = f'{model.family}, n={model.n}'
    if training_run is not None:
        network = training_run.program.network
        size = f'm={model.m} h={model.h} direct={model.direct}'
        window = '' if NeuralLanguageModel(network, {}).n is None else f'n={model.n} '
        shape = f'{model.family}: {window}{size}: {network.num_parameters():,} free parameters'
    print(
        f'{settings.name}: {settings.corpus.name}, {words} words to train / validate / test on, |V| = '
        f'{len(data.vocabulary):,}; {vocabulary.RARE} counts as one word, {rare:.1%} of the validation words\n'
        f'{shape}; folder {folder}'
    )


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one acts as it always does.

    Yields:
        A function that returns the signal's number, 0 while there was none.
    """
    requests: list[int] = []
    former: dict[int, Any] = {}

    def request(number: int, _frame: Any) -> None:
        requests.append(number)
        signal.signal(number, former[number])
        print('\nstopping after the updates under way ...', file=sys.stderr)

    if threading.current_thread() is threading.main_thread():  # no other may handle signals
        former |= {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in former:
            signal.signal(number, request)
    try:
        yield lambda: requests[0] if requests else 0
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
