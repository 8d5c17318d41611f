"""Shared helpers for tests: small settings, data and networks, complete training runs, and the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from configs import default
from nplm_jax.cli import exits
from nplm_jax.cli import launch as launch_lib
from nplm_jax.config import plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.checked_fields import flatten
from nplm_jax.config.registry import KINDS, NETWORKS, NGRAM_MODELS
from nplm_jax.config.sections import CorpusSettings
from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset, encoding, vocabulary
from nplm_jax.data.batches import Batch
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.stream import Span
from nplm_jax.data.word_stream import WordStream
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes, map_loss
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import State, by_example
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.ngram import arpa
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import Features, Params, View, view_rows
from nplm_jax.runs import loading
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step as step_lib
from nplm_jax.training import train as train_lib
from nplm_jax.training import vmapped
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.flops import Cost
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.training.step import Program, StepInputs, TrainState
from nplm_jax.training.train import Interrupted, fit
from nplm_jax.training.training_run import Chunk, TrainingRun
from nplm_jax.utils.errors import BadInput

ROOT = pathlib.Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / 'tests')])  # for processes that import the helpers of the tests
# A small window network that trains in a second, without features that would cause rounding differences.
SMALL = {
    'corpus.name': 'text',
    'output.precision': 'float32',
    'model.precision': 'float32',
    'model.n': 4,
    'model.m': 3,
    'model.h': 5,
    'model.direct': True,
    'model.dropout': 0.1,
    'optimizer.learning_rate': 0.5,
    'optimizer.decay': 1e-4,
    'train.batch_size': 7,
    'train.epochs': 3,
    'train.checkpoint_every': 11,
    'train.log_every': 5,
    'train.steps_per_execution': 4,
}
# A tokenizer plug-in, `Blanks`.
BLANKS = """
import dataclasses
from nplm_jax.data.tokenizers.tokenizer import Tokenizer

@dataclasses.dataclass(frozen=True)
class Blanks(Tokenizer):
    def split(self, text):
        return text.split()

    def cut(self, strings, known=None):
        return [[string] for string in strings]
"""
# Half a minute, with many checkpoints.
LONG_RUN = (
    '--config=configs/sentences.py', '--config.train.epochs=4000', '--config.train.checkpoint_every=300',
    '--config.train.evaluate_every=3000', '--config.train.patience=99', '--config.train.log_every=300',
)  # fmt: skip
COMPILER = ('JAX_DISABLE_MOST_OPTIMIZATIONS', 'XLA_FLAGS')  # environment variables that conftest.py sets
ESTIMATED = sorted(NGRAM_MODELS.keys() - {'arpa'})  # the count-based models that are estimated from a text
# Section 5's plug-ins.
ENERGY = 'experiments.paper.section5.plugins.energy:Energy'
SENSES = 'experiments.paper.section5.plugins.senses:Senses'
IMPORTANCE = 'experiments.paper.section5.plugins.importance:ImportanceSampling'
SPARSE = {'output.samples': 9, 'output.num_shortlist': 5, 'output.classes': 4}


@contextlib.contextmanager
def refuses(key: str | os.PathLike[str]) -> Iterator[pytest.ExceptionInfo[BadInput]]:
    """Checks that a block raises BadInput with a key. For a key that begins with a path, its last part suffices."""
    with pytest.raises(BadInput) as caught:
        yield caught
    assert f'/{caught.value.key}'.endswith(f'/{key}'), caught.value


def one_line(text: str, key: str | os.PathLike[str]) -> str:
    """Returns the only line of a text, and checks that it begins with a key, like the message of BadInput."""
    (line,) = text.splitlines()
    assert line.startswith((f'{key}=', f'{key}: ')), line
    return line


def numbers(text: str) -> list[str]:
    """Returns the numbers in a text as strings, such as `['1,800', '50', '7.39']`."""
    return re.findall(r'(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?', text)


def default_settings(changes: Mapping[str, Any] | None = None) -> Settings:
    """Returns the default settings with some flattened keys changed; keys that the components lack are dropped.

    Tests of several components can therefore share values of keys that only some of the components have.
    """
    with config_lib.trusting(changes or {}):
        return config_lib.settle(flatten(default.get_config()), changes or {}, given=())


def fitted(config, changes):
    """Returns a config with some flattened keys changed; keys that its components lack are dropped."""
    with config_lib.trusting(changes):
        return config_lib.to_config(config_lib.settle(flatten(config), changes, given=()))


def small_settings(changes: Mapping[str, Any] | None = None) -> Settings:
    """Returns the settings of SMALL with some flattened keys changed: `small_settings({'model.h': 0})`."""
    return default_settings({**SMALL, **(changes or {})})


def corpus_settings(name: str, path: str | os.PathLike[str] = '', **changes: Any) -> CorpusSettings:
    """Returns the default settings `corpus.*` of another corpus, with some keys changed."""
    keys = {'name': name, 'path': str(path), **changes}
    return default_settings({f'corpus.{key}': value for key, value in keys.items()}).corpus


def register(monkeypatch: Any, key: str, name: str, path: str) -> None:
    """Adds a component to KINDS for the duration of a test: `register(monkeypatch, 'model.family', ...)`."""
    monkeypatch.setitem(KINDS[key].paths, name, path)
    if key == 'model.family':
        monkeypatch.setitem(NETWORKS, name, path)


@contextlib.contextmanager
def plugin_folder(folder: pathlib.Path, monkeypatch: Any, **modules: str) -> Iterator[pathlib.Path]:
    """Writes modules by name to a folder, which becomes the working folder and is importable. Names no plug-in."""
    for name, code in modules.items():
        (folder / f'{name}.py').write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, 'path', [*sys.path, str(folder)])
    monkeypatch.setenv(plugins.ENVIRONMENT, '')
    yield folder
    for name in modules:
        sys.modules.pop(name, None)


def make_network(vocabulary_size: int, changes: Mapping[str, Any] | None = None) -> Network:
    """Returns the network of `small_settings(changes)` over a vocabulary of the given size."""
    return network_from_settings(small_settings(changes), vocabulary_size)


def make_model(
    vocabulary_size: int, changes: Mapping[str, Any] | None = None, seed: int = 0, bias_V: np.ndarray | None = None
) -> NeuralLanguageModel:
    """Returns the network of `make_network` with random parameters, as a language model."""
    network = make_network(vocabulary_size, changes)
    return NeuralLanguageModel(network, network.init(jax.random.key(seed), bias_V))


def make_batch(ids_SxL: Any, targets: Any, extras: Any = None) -> Batch:
    """Returns a batch of the given streams and targets, stream by stream."""
    S = len(ids_SxL)
    return Batch(jnp.asarray(ids_SxL), jnp.asarray(targets).reshape(S, -1), jnp.arange(S), extras=extras)


def features_of(
    network: Network, params: Params, ids_SxL: Any, state: State = None, key: jax.Array | None = None
) -> tuple[Features, State]:
    """Returns the features of each example, B x D, and the next state."""
    keys = None if key is None else Keys.of_streams(key, jnp.arange(len(ids_SxL)))
    output = network.features(params, ids_SxL, state, keys)
    return by_example(output.features), output.state


def first_batch(run: TrainingRun) -> Batch:
    """Returns the batch of a run's first update."""
    words, layout = run.words(0, 0, run.program.batch_size), run.program.network.layout
    positions_SxT = words.positions[: run.program.batch_size].reshape(-1, layout.bptt_length)
    inputs = run.inputs.replace(tokens_T=words.tokens_L)
    return inputs.batch(run.program.network, positions_SxT)


def run_chunk(chunk: Chunk) -> tuple[TrainState, np.ndarray]:
    """Executes the updates of a chunk and waits for them. Returns the state and the mean NLL of each batch."""
    state, nll_S = step_lib.execute_steps(*chunk)
    return state, np.asarray(nll_S)


def start_training(
    settings: Settings, vocabulary_size: int, steps_per_epoch: int, params: Params | None = None
) -> tuple[Program, TrainState, StepInputs]:
    """Returns the arguments of an update that needs no corpus. `params` replaces the initial parameters."""
    program = make_program(settings, network_from_settings(settings, vocabulary_size), steps_per_epoch)
    state = step_lib.init_state(program, settings.seed, settings.optimizer.hyperparams)
    return program, state if params is None else state.replace(params=params), StepInputs()


def regularizer(params: Params, decay: float) -> jax.Array:
    """Returns R = decay/2 * the sum of the squared weights, without biases."""
    return 0.5 * decay * sum(jnp.sum(jnp.square(w)) for w in jax.tree.leaves(params) if w.ndim > 1)


def view_of(network: Network, params: Params, batch: Batch, key: jax.Array | None = None) -> View:
    """Returns the view of the parameters that the loss of a batch reads."""
    rows = network.output.rows(batch, key)
    return View(params) if rows is None else view_rows(params, network.tables.words, rows)


def loss_of(
    network: Network,
    params: Params,
    batch: Batch,
    state: State = None,
    key: jax.Array | None = None,
    axes: MeshAxes = NO_AXES,
) -> tuple[jax.Array, State]:
    """Returns the loss of a batch as a function of all parameters, and the next state."""
    keys = None if key is None else Keys.of_streams(key, batch.streams_S)
    loss, (_, state) = network.loss(view_of(network, params, batch, key), batch, state, keys, axes)
    return loss, state


def penalised_nll(
    params: Params,
    network: Network,
    batch: Batch,
    weight_decay: float,
    key: jax.Array | None = None,
    sharding: MeshSharding = ONE_DEVICE,
) -> tuple[jax.Array, jax.Array]:
    """Returns the paper's objective, mean NLL + R, and the mean NLL."""

    def device_loss(params: Params, batch: Batch, key: jax.Array | None, axes: MeshAxes = NO_AXES) -> tuple[Any, None]:
        return loss_of(network, params, batch, None, key, axes)[0], None

    nll, _ = map_loss(device_loss, sharding)(params, batch, key)
    return nll + regularizer(params, weight_decay), nll


def make_corpus(num_words: int = 300, num_types: int = 17) -> Corpus:
    """Returns a stream in which each word nearly determines the next word."""
    rng = np.random.default_rng(0)
    ids = np.cumsum(1 + (rng.random(num_words) < 0.2)) % num_types
    return Corpus(Span(0, 220), Span(220, 260), Span(260, num_words), WordStream.from_words(f'w{i}' for i in ids))


DATA = encoding.build_dataset(make_corpus(), vocabulary.build(make_corpus().words))


class RecordingReporter:
    """A reporter that records all events."""

    def __init__(self) -> None:
        self.nll: list[float] = []
        self.valid: list[float] = []
        self.changes: list[tuple[str, float, float]] = []
        self.samples: list[str] = []
        self.started_at = -1

    def start(
        self, progress: Progress, schedule: Schedule, batch_size: int, cost: Cost, sampled_words: int = 0
    ) -> None:
        self.started_at, self.sampled_words = progress.step, sampled_words

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        self.nll.extend(nll_S.tolist())

    def validated(self, progress: Progress) -> None:
        self.valid.append(progress.valid_nll)

    def sampled(self, text: str) -> None:
        self.samples.append(text)

    def postprocessed(self, what: str, before: float, after: float) -> None:
        self.changes.append((what, before, after))

    def close(self) -> None:
        pass


def train(
    settings: Settings,
    folder: pathlib.Path,
    interrupted: Callable[[], int] = lambda: 0,
    data: dataset.Dataset = DATA,
    reporter: Any = None,
) -> tuple[Params, Progress, Any]:
    """Trains from the newest checkpoint in `folder` to the end. Returns the best parameters, progress and reporter."""
    reporter = reporter or RecordingReporter()
    with contextlib.closing(CheckpointStore(folder)) as store:
        best, _, progress = fit(train_lib.train(prepare_run(settings, data), store, reporter, interrupted))
    return best, progress, reporter


def train_in_parts(settings: Settings, folder: pathlib.Path, every: int) -> tuple[tuple[Params, Progress, Any], int]:
    """Trains, and stops and resumes at every n-th signal check. Returns the last result of `train`, and the checks."""
    looks = iter(range(1000))
    while True:
        try:
            return train(settings, folder, lambda: 15 if next(looks) % every == every - 1 else 0), next(looks)
        except Interrupted as stop:
            assert stop.signal_number == 15


def same_bits(a: Any, b: Any) -> bool:
    """Returns whether two pytrees contain bitwise equal numbers in arrays of the same shapes."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in leaves)


def check_resumed(settings: Settings, folder: pathlib.Path, every: int = 6) -> Params:
    """Checks that training that stops and resumes gives the same bits. Returns the parameters."""
    expected, _, uninterrupted = train(settings, folder / 'uninterrupted')
    (best, _, last_part), looks = train_in_parts(settings, folder / 'parts', every)
    assert looks > every and 0 < len(last_part.nll) < len(uninterrupted.nll)
    assert same_bits(best, expected) and last_part.nll == uninterrupted.nll[-len(last_part.nll) :]
    return best


def check_together(settings: Sequence[Settings]) -> list[Params]:
    """Checks that a chunk of runs trained together equals the chunks of separate runs. Returns their parameters."""
    runs = [prepare_run(s, DATA) for s in settings]
    assert all(run.program == runs[0].program for run in runs)
    chunks = [run.chunk(run.init_state(), 0) for run in runs]
    together = [state.params for state, *_ in vmapped.run_chunks(chunks, len(chunks))]
    for params, chunk in zip(together, chunks, strict=True):
        assert_close(params, run_chunk(chunk)[0].params, rtol=1e-4, atol=1e-6)
    return together


def check_eight_devices(changes: Mapping[str, Any], data: int, model: int, mode: str) -> NeuralLanguageModel:
    """Checks that three chunks on eight devices give the results of one device. Returns the trained model."""
    mesh, params = {'parallel.data': data, 'parallel.model': model, 'parallel.mode': mode}, []
    for settings in (small_settings(changes), small_settings({**changes, **mesh})):
        run = prepare_run(settings, DATA)
        state = run.init_state()
        for step in (0, 4, 8):
            state, _ = run_chunk(run.chunk(state, step))
        params.append(run.program.sharding.unshard(state.params, len(DATA.vocabulary)))
    assert_close(params[1], params[0], rtol=1e-4, atol=1e-5)
    return NeuralLanguageModel(run.program.network, params[1])


def assert_close(actual: Any, expected: Any, **tolerances: float) -> None:
    """Checks that two pytrees contain nearly equal numbers, like `np.testing.assert_allclose`."""
    for (path, a), b in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, **tolerances, err_msg=jax.tree_util.keystr(path))


def command(*flags: Any) -> list[str]:
    """Returns the command line of launch.py with the given flags."""
    return [sys.executable, str(ROOT / 'launch.py'), *map(str, flags)]


def launch(*flags: Any, cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs launch.py within this process, in a working folder. By default, this is the root of the repository."""
    argv = command(*flags)[1:]
    return call_main(lambda: launch_lib.main(launch_lib.parse_flags(argv), program=argv[:1]), argv, cwd)


def launch_process(
    *flags: Any, cwd: pathlib.Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs launch.py in a separate process, to test JAX's startup settings and the effects of a process's exit."""
    return subprocess.run(command(*flags), capture_output=True, text=True, cwd=cwd, env=env, timeout=300)


def call_main(main: Callable[[], Any], argv: list[str], cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Calls the main function of a program, and then undoes its changes to this process.

    Args:
        main: The function.
        argv: The command line, which is `sys.argv` during the call.
        cwd: The working folder during the call.

    Returns:
        The printed output and the exit code. Exceptions that would cause a traceback are raised.
    """
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
        _flags_kept(),
        _signals_kept(),
    ):
        patch.setattr(sys, 'argv', argv)
        patch.setattr(sys, 'path', list(sys.path))
        patch.setenv('PYTHONPATH', str(ROOT))  # of the processes that it starts
        patch.delitem(sys.modules, 'config_config', raising=False)  # what ml_collections calls the config file
        patch.setenv('JAX_NUM_CPU_DEVICES', str(jax.device_count()))  # JAX has started: their number is fixed
        patch.setenv(plugins.ENVIRONMENT, os.environ.get(plugins.ENVIRONMENT, ''))
        patch.setattr(warnings, 'formatwarning', warnings.formatwarning)
        warnings.showwarning = lambda *warning: print(warnings.formatwarning(*warning), end='', file=sys.stderr)
        warnings.resetwarnings()  # a process prints them
        for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter('ignore', category)
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _flags_kept() -> Iterator[None]:
    """Restores the values of Absl's flags, and removes the flags of config keys that a command line defined."""
    is_parsed, saved = flags.FLAGS.is_parsed(), flagsaver.save_flag_values()
    lists = {name: list(flag.value) for name, flag in flags.FLAGS._flags().items() if isinstance(flag.value, list)}
    try:
        yield
    finally:
        flagsaver.restore_flag_values(saved)
        for name, value in lists.items():
            flags.FLAGS[name].value = value
        if not is_parsed:
            flags.FLAGS.unparse_flags()
        exits._decided.clear()


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restores the signal handlers."""
    hook, handlers = sys.unraisablehook, {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def usual_environment() -> dict[str, str]:
    """Returns the environment without the variables that conftest.py adds, so programs are compiled as for users."""
    return {key: value for key, value in os.environ.items() if key not in COMPILER}


def outcome(folder: pathlib.Path) -> tuple[dict[str, float], int, list[bytes]]:
    """Returns the results that must not depend on interruptions: perplexities, updates and parameters."""
    results = json.loads((folder / 'results.json').read_text())
    model = loading.load(folder).model
    return results['perplexity'], results['updates'], [np.asarray(p).tobytes() for p in jax.tree.leaves(model.params)]


def write_arpa(run: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Writes the n-gram model of a run as an ARPA file."""
    loaded = loading.load(run)
    words, model = loaded.vocabulary, loaded.model
    arpa.write(model, words, pathlib.Path(path))


def random_contexts(vocabulary: vocabulary.Vocabulary, length: int = 3, number: int = 50) -> np.ndarray:
    """Returns random word ids, contexts x words."""
    return np.random.default_rng(0).integers(0, len(vocabulary), (number, length))


def job_output(folder: pathlib.Path, kind: str) -> str:
    """Returns the stdout ('out') or stderr ('err') of the jobs in a folder."""
    return ''.join(p.read_text() for p in sorted(folder.glob(f'.jobs/*_log.{kind}')))


def wait_until(condition: Callable[[], Any], seconds: float, explain: Callable[[], str] = str) -> None:
    """Waits for a condition. Raises AssertionError with an explanation if it is not met in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.1)


def others_nightly(cases: Iterable[Any], quick: Container[Any]) -> list[Any]:
    """Returns the cases of a test. Cases, or tuples whose first value is, not in `quick` get the marker `nightly`."""
    split = [(case, case) if isinstance(case, tuple) else (case, (case,)) for case in cases]
    is_quick = [case in quick or (isinstance(case, tuple) and case[0] in quick) for case, _ in split]
    return [pytest.param(*values, marks=() if q else pytest.mark.nightly) for (_, values), q in zip(split, is_quick)]


def covering_pairs(
    kinds_of: Mapping[str, Sequence[str]], with_all: Collection[str], always: str | None = None
) -> list[tuple[str, str]]:
    """Chooses pairs of a body and an output layer for a test, because all pairs would take minutes and show no more.

    The layer multiplies the body's features and has no other interface to the body. A few bodies, one for each kind
    of this interface, are therefore paired with every layer; other bodies are paired with two layers each in turn.

    Args:
        kinds_of: The output layers that each body supports.
        with_all: The bodies that are paired with every layer.
        always: One of the two layers, if it must be the same for all bodies.

    Returns:
        Pairs of body and output layer.
    """
    pairs, turn = [], 0
    for body, kinds in kinds_of.items():
        if body not in with_all and len(kinds) > 2:
            others, first = [kind for kind in kinds if kind != always], [] if always is None else [always]
            kinds = first + [others[i % len(others)] for i in range(turn, turn + 2 - len(first))]
            turn += 2 - len(first)
        pairs += [(body, kind) for kind in kinds]
    return pairs


def check_unknown_words(call: Callable[[str], Sequence[str]]) -> None:
    """Asserts that a command prints the common warning for a text of unknown words, and no warning for another text.

    Args:
        call: Runs the command on a text in the vocabulary of the fixture `folders`. Returns its lines on stderr.
    """
    for text, is_warned in (('i like dog', False), ('zebra okapi gnu', True)):
        errors = call(text)
        found = [line for line in errors if line.startswith('warning: ') and '<rare>' in line]
        assert len(found) == is_warned, errors


@contextlib.contextmanager
def no_app_missing() -> Iterator[None]:
    """Skips a test, or a test module, that imports an app whose folder has been deleted."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or '').rpartition('.')[0] != 'nplm_jax.apps':
            raise
        pytest.skip(f'needs the app {error.name}', allow_module_level=True)
