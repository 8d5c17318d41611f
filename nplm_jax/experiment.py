"""One experiment from config to results: what launch.py, sweeps and notebooks call."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import platform
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import jax
from ml_collections import ConfigDict

from nplm_jax import corpora, dataset, evaluation, nplm, reporting, settings, training, vocabulary
from nplm_jax.checkpoints import CheckpointStore
from nplm_jax.errors import BadInput
from nplm_jax.files import write_atomically
from nplm_jax.language_model import NeuralLanguageModel

_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'numpy')


def run(config: ConfigDict | Mapping[str, Any], workdir: str | os.PathLike[str], command: str = '') -> dict[str, Any]:
    """Trains and evaluates one network, or goes on where an earlier start of the same run ended.

    config: a ConfigDict like those in `configs/`, or the dictionary of a config.json.
    Returns: what `results.json` holds. A finished run is not trained again.
    Raises: BadInput; training.Interrupted after SIGINT or SIGTERM; training.NonFiniteLoss.
    """
    wanted = settings.from_config(config)
    folder = pathlib.Path(workdir)
    _check_folder(folder, wanted)
    finished = folder / 'results.json'
    if finished.exists():
        results = json.loads(finished.read_text())
        print(f'{folder} is finished; this is its result (another --workdir trains again)')
    else:
        results = _train(wanted, folder, command)
    print(reporting.results_table(results, settings.to_dict(wanted)['paper']))
    return results


def load(workdir: str | os.PathLike[str]) -> tuple[settings.Settings, vocabulary.Vocabulary, NeuralLanguageModel]:
    """The settings, vocabulary and best network of a run's folder. Raises: BadInput when it has none."""
    folder = pathlib.Path(workdir)
    if not (folder / 'config.json').exists() or not (folder / 'checkpoints').is_dir():
        raise BadInput(f'{folder}: no run was started there')
    found = settings.from_config(json.loads((folder / 'config.json').read_text()))
    words = vocabulary.load(folder / 'vocabulary.txt')
    with contextlib.closing(CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        state = jax.eval_shape(lambda: training.init_state(found, len(words), None, 1))
        best = store.restore_best(state, state.params)
    return found, words, NeuralLanguageModel(best, found.model.n)


def prepare(wanted: settings.Settings) -> dataset.Dataset:
    """Reads the corpus that the settings name and puts it on the device."""
    corpus = corpora.load(wanted.corpus)
    return dataset.from_corpus(corpus, vocabulary.for_corpus(corpus, wanted.corpus))


def _train(wanted: settings.Settings, folder: pathlib.Path, command: str) -> dict[str, Any]:
    data = prepare(wanted)
    training.make_plan(wanted, data.train)  # a batch too large is refused before anything is compiled
    _claim_folder(folder, wanted, data.vocabulary)
    _describe(wanted, data, folder)
    reporter = reporting.Reporter(folder)
    with contextlib.closing(CheckpointStore(folder / 'checkpoints')) as store, contextlib.closing(reporter):
        with _interruptible() as interrupted:
            best, progress = training.fit(wanted, data, store, reporter, interrupted)
    model = NeuralLanguageModel(best, wanted.model.n)
    scores = {name: evaluation.evaluate(model, data.tokens_T, span) for name, span in data.splits.items()}
    results = _results(wanted, data, progress, scores, nplm.count(best), command)
    reporting.draw_learning_curve(folder, wanted.name, wanted.paper.valid)
    write_atomically(folder / 'results.json', json.dumps(results, indent=2) + '\n')
    return results


def _results(wanted, data, progress, scores, parameters, command) -> dict[str, Any]:
    steps_per_epoch = len(data.train) // wanted.train.batch_size
    return {
        'name': wanted.name,
        'corpus': wanted.corpus.name,
        'vocabulary': len(data.vocabulary),
        'words': {name: score.words for name, score in scores.items()},
        'perplexity': {name: score.perplexity for name, score in scores.items()},
        'parameters': parameters,
        'epochs': progress.step / steps_per_epoch,
        'updates': progress.step,
        'best_update': progress.best_step,
        'seconds': round(progress.seconds, 1),
        'words_per_second': round(progress.step * wanted.train.batch_size / progress.train_seconds),
        'peak_memory_megabytes': _peak_memory() // 2**20,
        'command': command,
        'commit': _commit(),
        'versions': {'python': platform.python_version(), **{p: metadata.version(p) for p in _PACKAGES}},
        'device': f'{jax.device_count()} x {jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores ({_processor()})',
        'seed': wanted.seed,
    }


def _describe(wanted: settings.Settings, data: dataset.Dataset, folder: pathlib.Path) -> None:
    words = ' / '.join(f'{len(span):,}' for span in data.splits.values())
    span = data.valid
    rare = float((data.tokens_T[span.start : span.stop] == vocabulary.RARE_ID).mean())
    print(
        f'{wanted.name}: {wanted.corpus.name}, {words} words to train / validate / test on, |V| = '
        f'{len(data.vocabulary):,}; {vocabulary.RARE} counts as one word, {rare:.1%} of the validation words\n'
        f'n={wanted.model.n} m={wanted.model.m} h={wanted.model.h} direct={wanted.model.direct}: '
        f'{wanted.model.num_parameters(len(data.vocabulary)):,} free parameters; folder {folder}'
    )


def _check_folder(folder: pathlib.Path, wanted: settings.Settings) -> None:
    """Makes the run's folder unless it is there. Raises: BadInput when it is another's, or cannot be made."""
    path = folder / 'config.json'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            if any(folder.iterdir()):
                raise BadInput(f'--workdir={folder}: is not empty and no run of this program; give another folder')
            return
        there = _flatten(json.loads(path.read_text()))
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be used ({error.strerror})') from None
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError):
        raise BadInput(f'{path}: damaged; delete the folder or give another --workdir') from None
    here = _flatten(settings.to_dict(wanted))
    keys = [k for k in sorted(here | there) if here.get(k) != there.get(k)]
    if keys:
        differ = '; '.join(f'{k}={there.get(k)!r} there, {here.get(k)!r} now' for k in keys)
        raise BadInput(f'--workdir={folder}: belongs to another config ({differ}); give another folder')


def _claim_folder(folder: pathlib.Path, wanted: settings.Settings, words: vocabulary.Vocabulary) -> None:
    """Writes what makes the folder this run's, once its text could be read. Raises: BadInput."""
    try:
        write_atomically(folder / 'config.json', json.dumps(settings.to_dict(wanted), indent=2) + '\n')
        vocabulary.save(words, folder / 'vocabulary.txt')
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None


def _flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    flat = {}
    for key, value in tree.items():
        flat |= _flatten(value, f'{prefix}{key}.') if isinstance(value, Mapping) else {f'{prefix}{key}': value}
    return flat


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], int]]:
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
        former |= {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _commit() -> str:
    """The repository's commit, with -dirty when files differ from it; 'unknown' outside one."""
    git = [
        'git',
        '-C',
        str(pathlib.Path(__file__).parent),
        'describe',
        '--always',
        '--dirty',
        '--abbrev=12',
        '--exclude=*',
    ]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return 'unknown'


def _peak_memory() -> int:
    """The most bytes this process has held; macOS counts them in bytes, Linux in kibibytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == 'darwin' else 1024)


def _processor() -> str:
    """The CPU's name."""
    info = pathlib.Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    return next((x.split(':')[1].strip() for x in lines if x.startswith('model name')), platform.processor())
