"""Manages a run while a process works on it: locks its folder, prepares its training, and records its results."""

import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from nplm_jax.config import settings as config_lib
from nplm_jax.config.keys import list_keys
from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset
from nplm_jax.data.stream import RARE, RARE_ID
from nplm_jax.distributed import jax_settings, multihost
from nplm_jax.inference import perplexity
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.network import Network
from nplm_jax.ngram import storage
from nplm_jax.reporting import figures, notebook, provenance
from nplm_jax.reporting import run_reporter as reporting
from nplm_jax.reporting.catalog import RESULTS, finished
from nplm_jax.reporting.description import describe_model
from nplm_jax.reporting.results import notes, perplexity_table
from nplm_jax.reporting.text import to_json
from nplm_jax.runs import estimation, evaluation, loading, run_inputs, workdir
from nplm_jax.runs.loading import Path
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.runs.training_from_settings import make_sharding, prepare_run
from nplm_jax.training import calibration, checkpoints
from nplm_jax.training.milestones import Progress
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.train import Trained
from nplm_jax.training.training_run import TrainingRun
from nplm_jax.utils.errors import BadInput, NonFiniteError
from nplm_jax.utils.io import expand, write_atomically

_REMEDY = 'train in another --workdir with a lower optimizer.learning_rate or with optimizer.clip_norm'


@dataclasses.dataclass
class RunSession:
    """A run whose folder is locked by this process.

    Attributes:
        settings: The settings of the run.
        folder: The folder of the run.
        command: The command line to record in results.json.
        corpus: The corpus.
        num_batched: The number of runs that are trained together.
        started: The start time, in seconds of `time.perf_counter()`.
        source: The commit, versions and device. They are recorded at the start, because the code may change during
            training.
        results: The content of results.json. None until the run is finished.
        training_run: The objects that stay constant during training. None for a count-based or a finished run.
        store: The checkpoints of the run. None in a process that does not write them.
        reporter: The receiver of training events.
    """

    settings: Settings
    folder: pathlib.Path
    command: str
    corpus: SharedCorpus
    num_batched: int = 1
    started: float = dataclasses.field(default_factory=time.perf_counter)
    source: dict[str, Any] = dataclasses.field(default_factory=dict)
    results: dict[str, Any] | None = None
    training_run: TrainingRun | None = None
    store: checkpoints.CheckpointStore | None = None
    reporter: Reporter = dataclasses.field(default_factory=Reporter)

    @functools.cached_property
    def data(self) -> dataset.Dataset:
        """The corpus in the form that the run requires."""
        return self.corpus.read(self.settings, self.folder)

    def explain(self, error: NonFiniteError) -> NonFiniteError:
        """Returns the error, with a message that also names the newest checkpoint and suggests a remedy."""
        saved = self.store and self.store.latest_step()
        kept = f'the checkpoint of update {saved:,} is kept' if saved is not None else 'no checkpoint was saved'
        return NonFiniteError(f'{error}; {kept}; {_REMEDY}')

    def finish(self, trained: Trained | None, shown: set[str] | None = None) -> dict[str, Any]:
        """Evaluates the model, writes results.json and prints the table. Only the first process does this.

        Args:
            trained: The result of training. None for a count-based or a finished run.
            shown: Notes already printed by earlier runs, which this run does not repeat. The notes of this run are
                added to the set.

        Returns:
            The content of `results.json` in the first process, and an empty dictionary in other processes.
        """
        if not multihost.is_primary():
            return {}
        if self.results is None:
            text = to_json(self._evaluate(trained), indent=2) + '\n'
            write_atomically(self.folder / RESULTS, text)
            self.results = json.loads(text)
        else:
            print(f'{self.folder} is already finished (to train again, choose another --workdir); results:')
        shown = set() if shown is None else shown
        new = [note for note in notes(self.results, self.settings.corpus) if note not in shown]
        print('\n'.join([perplexity_table(self.results, self.settings.paper), *new]))
        shown.update(new)
        return self.results

    def _trained(self, run: TrainingRun, progress: Progress) -> dict[str, Any]:
        """Returns the entries of results.json that describe the training of a network."""
        figures.draw_learning_curve(self.folder, self.settings.name, self.settings.paper.valid)
        network, rate = run.program.network, progress.step * run.program.batch_size / progress.train_seconds
        return {
            'parameters': network.num_parameters(),
            'reach': network.body.reach,
            'epochs': progress.step / run.schedule.steps_per_epoch,
            'updates': progress.step,
            'best_update': progress.best_step,
            'seconds': round(progress.seconds, 1),
            'random_generator': jax_settings.REQUIRED['jax_default_prng_impl'],
            'precision': {key: x for key, x in config_lib.to_flat(self.settings).items() if key.endswith('.precision')},
            'flops_per_word': run.cost.flops_per_word,
            **{key: round(value, 4 if key == 'mfu' else None) for key, value in run.cost.rates(rate).items()},
            **({'trained_together': self.num_batched} if self.num_batched > 1 else {}),
            **_postprocessing(progress),
            **({'calibration_words': calibration.num_words(self.data)} if self.settings.train.calibrate else {}),
            **({'lowered': lowered} if (lowered := _lowered(self.settings, network)) else {}),
        }

    def _estimated(self) -> tuple[LanguageModel, dict[str, Any]]:
        """Estimates the count-based model. Returns the model and the duration and speed for results.json."""
        started = time.perf_counter()
        model = estimation.estimate(self.settings, self.data, self.folder)
        storage.save(model, self.folder / storage.MODEL_FILE)
        seconds = time.perf_counter() - started
        words_per_second = round(len(self.data.train) / seconds)
        return model, {'seconds': round(seconds, 2), 'words_per_second': words_per_second}

    def _evaluate(self, trained: Trained | None) -> dict[str, Any]:
        """Returns the content of results.json, and prints sample predictions if the text is small."""
        data, settings = self.data, self.settings
        model: LanguageModel
        if (run := self.training_run) and trained:
            model, facts = run.model(trained.params), self._trained(run, trained.progress)
            known, trigram = trained.scores, lambda: self.corpus.trigram(data)
        else:
            (model, facts), known, trigram = self._estimated(), {}, None
        started = time.perf_counter()
        measured = evaluation.measure(model, data, settings.eval, trigram, known)
        if table := evaluation.predictions_table(model, data):
            print(table)
        return {
            'name': settings.name,
            'corpus': settings.corpus.name,
            'family': settings.model.name,
            'vocabulary': len(data.vocabulary),
            **measured,
            **facts,
            'evaluation_seconds': round(time.perf_counter() - started, 1),
            'peak_memory_megabytes': provenance.peak_memory() // 2**20,
            'command': self.command,
            'seed': settings.seed,
            **self.source,
            **({'origins': self.store.origins} if self.store and len(self.store.origins) > 1 else {}),
        }


@contextlib.contextmanager
def open_session(
    settings: Settings, folder: Path, command: str, corpus: SharedCorpus, num_batched: int = 1
) -> Iterator[RunSession]:
    """Opens a run: checks and locks its folder, reads its corpus and prepares training.

    Every process must call this function.

    Args:
        settings: The settings of the run.
        folder: The folder of the run, accessed only by the first process.
        command: The command line to record in results.json.
        corpus: The corpus.
        num_batched: The number of runs that are trained together.

    Yields:
        The session. If the run is already finished, `results` is set.

    Raises:
        BadInput: The folder, the text, the devices or the JAX settings are invalid. Also raised if the text or a file
            of the model has changed since the run was started, or if the processes differ in config, text or files.
    """
    jax_settings.require_pinned()
    session = RunSession(settings, expand('--workdir', folder), command, corpus, num_batched)
    folder, primary, trains = session.folder, multihost.is_primary(), settings.is_neural
    workdir.check_config(settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(config_lib.trusting_settings(settings))
        with multihost.primary_first():
            if primary:
                stack.enter_context(workdir.claimed(folder, settings))
                has_model = trains or (folder / storage.MODEL_FILE).exists()
                if has_model and (results := finished(folder)) is not None:
                    session.results = results
                    run_inputs.refuse_changes(folder, difference(folder, settings, corpus))
        is_finished = bool(multihost.broadcast_from_primary(np.bool(session.results is not None)))
        if is_finished or not (trains or primary):
            yield session
            return
        session.source = provenance.provenance()
        if primary:
            print(f'Output directory: {folder}', flush=True)
        digests = run_inputs.model_digests(settings)
        teachers = loading.load_teachers(settings, folder)
        if trains:  # check the devices and the batch size before downloading anything
            platform = make_sharding(settings).platform
        digests |= run_inputs.text_digest(corpus.data)
        if trains:
            run_inputs.check_inputs(settings, digests)
            settings = session.settings = workdir.pin_auto_values(folder, settings, session.data, platform)
            loading.check_words(settings, teachers, session.data.vocabulary)
            made = prepare_run(settings, session.data, [cast(Any, teacher.model) for teacher in teachers])
            del teachers  # frees memory; the training run has copies of their parameters on its devices
            session.training_run = dataclasses.replace(made, num_batched=num_batched)
        if primary:
            run_inputs.record_inputs(folder, settings, corpus.data, corpus.files, digests)
            run = session.training_run
            _describe(settings, session.data, run.program.network if run else None)
        if trains and primary:
            store = session.store = checkpoints.CheckpointStore(folder / 'checkpoints', origin=session.source)
            make_reporter = notebook.Reporter if notebook.is_running() else reporting.Reporter
            session.reporter = make_reporter(folder, settings.name if num_batched > 1 else '')
            for part in (store, session.reporter):
                stack.enter_context(contextlib.closing(part))
        yield session


def difference(folder: pathlib.Path, settings: Settings, corpus: SharedCorpus) -> str:
    """Describes how the text or a model file differs from the record of a run. Returns '' if nothing differs.

    The words of the text are read only if the digests of its files differ. A missing text is not compared, and a note
    on stderr says so.

    Raises:
        BadInput: The files of the text have changed, and the changed files cannot be read as text.
    """
    digests = run_inputs.model_digests(settings)
    try:
        files = corpus.files
    except BadInput as error:
        print(f'{error}; the text of {folder} was not checked', file=sys.stderr)
    else:
        if files is None or files != run_inputs.read_record(folder).get('files'):
            digests |= run_inputs.text_digest(corpus.data)
    return run_inputs.difference(folder, settings, digests)


def _postprocessing(progress: Progress) -> dict[str, Any]:
    """Returns the validation perplexities before and after calibration, for results.json."""
    nlls = {'before': progress.best_valid_nll, 'after': progress.postprocessed_nll}
    perplexities = {name: perplexity.nll_to_perplexity(nll) for name, nll in nlls.items()}
    return {'postprocessing': perplexities} if math.isfinite(progress.postprocessed_nll) else {}


def _lowered(settings: Settings, network: Network) -> dict[str, Any]:
    """Returns the values of keys that were lowered because the vocabulary is smaller than their configured values."""
    used = {key.name: key.value for key in list_keys(network.output, 'output.')}
    now = config_lib.to_flat(settings)
    return {key: value for key, value in used.items() if value != now[key]}


def _describe(settings: Settings, data: dataset.Dataset, network: Network | None) -> None:
    """Prints a description of the text and of the model."""
    sizes = ' / '.join(f'{len(span):,}' for span in data.splits.values())
    unit = 'tokens' if data.vocabulary.tokenizer.tokens else 'words'
    size = f'|V| = {len(data.vocabulary):,}'
    lines = ', line by line (corpus.context=line)' if data.by_lines else ''
    print(f'Corpus: {settings.corpus.name}, {sizes} training / validation / test {unit}, {size}{lines}', flush=True)
    if rare := data.oov()['valid']:
        note = 'all out-of-vocabulary words share this token, which lowers the perplexity'
        print(f'{rare:.1%} of the validation words are {RARE}: {note}', flush=True)
        if not (data.train_words == RARE_ID).any():
            print(f'no training word is {RARE}: increase corpus.min_count to learn its probability', flush=True)
    for key, value in (_lowered(settings, network) if network else {}).items():
        print(f'{key}={config_lib.to_flat(settings)[key]}: lowered to {value} to fit the vocabulary', flush=True)
    model = describe_model(config_lib.to_flat(settings))
    if network is not None:
        window = f', a window of {network.body.reach} {unit}' if network.body.reach else ''
        model += f'{window}, {network.num_parameters():,} free parameters'
    print(f'Model: {model}', flush=True)
