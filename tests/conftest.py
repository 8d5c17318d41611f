"""Defines settings for all tests and shared fixtures."""

import functools
import gc
import importlib.metadata
import os
import pathlib
import signal
import sys
import time
import warnings

# Most of the test time is spent on compilation, and the programs run for milliseconds. XLA therefore optimizes little,
# in this process and in the processes that tests start. JAX_DISABLE_MOST_OPTIMIZATIONS=0 restores all optimizations.
if os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1') == '1':
    _FLAG = '--xla_cpu_use_fusion_emitters=false'  # halves LLVM's time; unknown flags end XLA
    _JAXLIB = tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2]))
    if _FLAG not in os.environ.get('XLA_FLAGS', '') and _JAXLIB == (0, 10):
        os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {_FLAG}'.strip()

import hypothesis
import jax
import pytest

from configs import brown, sentences
from configs import text as text_config
from nplm_jax.cli import __main__ as cli
from nplm_jax.config import settings as config_lib
from nplm_jax.ngram.kneser_ney import DiscountWarning
from nplm_jax.runs import experiment, loading, precision_choice

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in background jobs of a shell, and their children
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update('jax_numpy_rank_promotion', 'raise')
hypothesis.settings.register_profile('no_deadline', deadline=None)  # an example may take long on a busy machine
hypothesis.settings.load_profile('no_deadline')


def pytest_collection_modifyitems(items):
    if jax.default_backend() != 'cpu':  # JAX's default precision is lower; references need float32 too
        jax.config.update('jax_default_matmul_precision', 'float32')
    if jax.device_count() < 8:
        skip = pytest.mark.skip(reason='needs eight devices: run with JAX_NUM_CPU_DEVICES=8')
        for item in items:
            if item.get_closest_marker('eight_devices'):
                item.add_marker(skip)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # imported objects live as long as the tests, so the garbage collector need not visit them


@pytest.fixture
def optimized():
    """Enables XLA's optimizations for a test, for example to compare two programs bit for bit."""
    before = jax.config.read('jax_disable_most_optimizations')
    jax.clear_caches()  # programs compiled earlier are not optimized
    jax.config.update('jax_disable_most_optimizations', False)
    yield
    jax.config.update('jax_disable_most_optimizations', before)
    jax.clear_caches()


@pytest.fixture(scope='session', autouse=True)
def same_precision_on_every_processor():
    """Replaces the measurement of the processor, so that `auto` is float32 on all CPUs on which the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision_choice, 'measure', lambda: 'float32')
        yield


MAX_MEMORY_MAPS = 30_000  # Linux allows 65,530 maps per process, and every compiled program needs some of them


SECONDS_BETWEEN = 2  # of compilation, which creates a few hundred maps; counting them takes as long as a small test
_counted = [0.0]  # time of the last count


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Frees compiled programs before the process reaches the limit on memory maps, where compilation crashes."""
    yield
    if time.monotonic() < _counted[0] + SECONDS_BETWEEN:
        return
    maps = pathlib.Path('/proc/self/maps')
    if maps.exists() and maps.read_bytes().count(b'\n') > MAX_MEMORY_MAPS:
        jax.clear_caches()
        gc.collect()
    _counted[0] = time.monotonic()


@pytest.fixture
def lines(capsys):
    """Returns a function that returns the lines printed since its last call: (stdout lines, stderr lines)."""
    return lambda: tuple(text.splitlines() for text in capsys.readouterr())


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Returns a function that writes a module to tmp_path; the module is then imported again, as in a new process."""
    monkeypatch.setattr(sys, 'path', [*sys.path, str(tmp_path)])

    def write(name, source):
        (tmp_path / f'{name}.py').write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


@pytest.fixture
def nplm_command(lines):
    """Returns a function that runs a command of nplm and returns its output, like `lines`."""

    def call(*arguments):
        lines()
        cli.main(list(map(str, arguments)))
        return lines()

    return call


@pytest.fixture(scope='session')
def brown_data():
    """Returns the cached ids of Brown for a row of its config. '' is closest to the paper; ',cased' keeps the case."""
    return functools.cache(lambda row='': loading.load_dataset(config_lib.from_config(brown.get_config(row))))


@pytest.fixture(scope='session')
def brown_bigram(brown_data, tmp_path_factory):
    """The folder of a Kneser-Ney bigram model of Brown, as in the studies of reading times and minimal pairs."""
    config = brown.get_config('kneser_ney_5')
    config.model.n = 2
    folder = tmp_path_factory.mktemp('brown') / 'kneser_ney_2'
    experiment.run(config, folder, '', brown_data('kneser_ney_5'))
    return folder


@pytest.fixture(scope='session')
def folders(tmp_path_factory):
    """A folder with three runs: a network and a count-based model of the same words, and a model of other words."""
    root = tmp_path_factory.mktemp('runs')
    config = sentences.get_config()
    experiment.run(config, root / 'network')
    config = config_lib.override(config, {'model.family': 'modified_kneser_ney', 'model.n': 2})
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DiscountWarning)  # three sentences are too little text
        experiment.run(config, root / 'counts')
    (root / 'text').write_text('other words here ' * 40)
    config = config_lib.override(text_config.get_config(), {'model.family': 'add_delta', 'model.n': 2})
    config.corpus.path, config.corpus.boundary_tokens = str(root / 'text'), False
    experiment.run(config, root / 'other')
    return root
