"""Strictness for every test, and small things that many share."""

import functools
import gc
import importlib.metadata
import os
import pathlib
import signal
import sys
import time
import warnings

# Compiling takes most of the time of these tests, and their programs run for milliseconds. So XLA does little to make
# programs fast, here and in the processes that tests start. With JAX_DISABLE_MOST_OPTIMIZATIONS=0 it does all.
if os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1') == '1':
    _FLAG = '--xla_cpu_use_fusion_emitters=false'  # LLVM compiles half as long without; XLA ends at an unknown flag
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
from nplm_jax.runs import experiment, loading

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background jobs, and the processes that they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
jax.config.update('jax_numpy_rank_promotion', 'raise')
hypothesis.settings.register_profile('no_deadline', deadline=None)  # an example may take long on a busy machine
hypothesis.settings.load_profile('no_deadline')


def pytest_collection_modifyitems(items):
    if jax.default_backend() != 'cpu':  # where JAX's default has fewer bits, also in what a test compares with
        jax.config.update('jax_default_matmul_precision', 'float32')
    if jax.device_count() < 8:
        skip = pytest.mark.skip(reason='needs eight devices: run with JAX_NUM_CPU_DEVICES=8')
        for item in items:
            if item.get_closest_marker('eight_devices'):
                item.add_marker(skip)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # what is imported lives as long as the tests: a collection need not visit it


@pytest.fixture
def optimized():
    """Has XLA optimize the programs of a test: for one that finds equal bits in two programs."""
    before = jax.config.read('jax_disable_most_optimizations')
    jax.clear_caches()  # what was compiled before is another program
    jax.config.update('jax_disable_most_optimizations', False)
    yield
    jax.config.update('jax_disable_most_optimizations', before)
    jax.clear_caches()


MAX_MEMORY_MAPS = 30_000  # Linux allows a process 65,530; every compiled program takes some


SECONDS_BETWEEN = 2  # of compiling, which make some hundred maps; counting takes as long as a small test
_counted = [0.0]  # when they were counted last


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Frees the compiled programs before there are so many that the next compilation crashes."""
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
    """What was printed since, as (stdout lines, stderr lines)."""
    return lambda: tuple(text.splitlines() for text in capsys.readouterr())


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Writes a module to tmp_path, from where it is imported anew, as in another process."""
    monkeypatch.setattr(sys, 'path', [*sys.path, str(tmp_path)])

    def write(name, source):
        (tmp_path / f'{name}.py').write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


@pytest.fixture
def nplm_command(lines):
    """Runs a command of nplm. Returns what it printed, as `lines` does."""

    def call(*arguments):
        lines()
        cli.main(list(map(str, arguments)))
        return lines()

    return call


@pytest.fixture(scope='session')
def brown_data():
    """Brown as ids, by row of its config, each read once: '' is closest to the paper, ',cased' as printed."""
    return functools.cache(lambda row='': loading.load_dataset(config_lib.from_config(brown.get_config(row))))


@pytest.fixture(scope='session')
def brown_bigram(brown_data, tmp_path_factory):
    """The run of a Kneser-Ney bigram model of Brown, as of the studies of reading times and minimal pairs."""
    config = brown.get_config('kneser_ney_5')
    config.model.n = 2
    folder = tmp_path_factory.mktemp('brown') / 'kneser_ney_2'
    experiment.run(config, folder, '', brown_data('kneser_ney_5'))
    return folder


@pytest.fixture(scope='session')
def folders(tmp_path_factory):
    """A network and a model by counting on the same words, and one whose words are others."""
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
