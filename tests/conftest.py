"""Strictness for every test, and small things that many share."""

import fcntl
import functools
import gc
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import warnings

_SHARED = pathlib.Path(__file__).parents[2] / 'shared' / 'nltk_data'
if _SHARED.is_dir():
    os.environ.setdefault('NLTK_DATA', str(_SHARED))

# Compiling takes most of the time of these tests, and their programs run for milliseconds. So XLA does little to make
# programs fast, here and in the processes that tests start. With JAX_DISABLE_MOST_OPTIMIZATIONS=0 it does all.
if os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1') == '1':
    _FLAG = '--xla_cpu_use_fusion_emitters=false'  # LLVM compiles half as long without; XLA ends at an unknown flag
    _JAXLIB = tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2]))
    if _FLAG not in os.environ.get('XLA_FLAGS', '') and _JAXLIB == (0, 10):
        os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {_FLAG}'.strip()

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

from configs import brown, sentences  # noqa: E402
from configs import text as text_config  # noqa: E402
from nplm_jax import config as config_lib  # noqa: E402
from nplm_jax import parts  # noqa: E402
from nplm_jax.cli import __main__ as cli  # noqa: E402
from nplm_jax.models.ngram.kneser_ney import DiscountWarning  # noqa: E402
from nplm_jax.runs import experiment, loading  # noqa: E402

jax.config.update('jax_numpy_rank_promotion', 'raise')
hypothesis.settings.register_profile('no_deadline', deadline=None)  # an example may take long on a busy machine
hypothesis.settings.load_profile('no_deadline')


def pytest_ignore_collect(collection_path, config):
    """With -m quick, imports no file without a quick test: importing them all takes ten seconds."""
    if config.option.markexpr != 'quick' or not collection_path.name.endswith('_test.py'):
        return None
    return 'mark.quick' not in collection_path.read_text()


STUDIES = ('experiments/', 'commands_test.py', 'supply_test.py', 'typing_test.py')  # tests with the marker `studies`


def pytest_itemcollected(item):
    is_study = item.path.relative_to(pathlib.Path(__file__).parent).as_posix().startswith(STUDIES)
    if is_study and not any(map(item.get_closest_marker, ('slow', 'faults', 'fuzz', 'tpu'))):
        item.add_marker('studies')


# .ci/run names a file in which its main part lists the tests that pass, so that the part with the optional packages
# runs those alone that were skipped without them.
PASSED, NOT_AGAIN = 'NPLM_TESTS_PASSED', 'NPLM_TESTS_NOT_AGAIN'


def pytest_collection_modifyitems(config, items):
    if (passed := pathlib.Path(os.environ.get(NOT_AGAIN, ''))).is_file():
        known = set(passed.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
        items[:] = [item for item in items if item.nodeid not in known]
    if 'slurm' not in config.option.markexpr:
        skip = pytest.mark.skip(reason='installs SLURM and starts it, as root; run with -m slurm')
        for item in items:
            if item.get_closest_marker('slurm'):
                item.add_marker(skip)


# --- eight devices: their number is fixed once JAX has started, so another process of pytest runs these tests --------

EIGHT_DEVICES = 'eight_devices'  # the marker
REPORT = 'EIGHT_DEVICES_REPORT'  # the environment variable with the file to which that process writes its outcomes
EIGHT_DEVICES_PROCESS = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Reports what a test that needs eight devices did in the process that has them."""
    if not _needs_the_other_process(pyfuncitem):
        return None
    outcomes = _outcomes_on_eight_devices(_eight_devices_file(pyfuncitem.config))
    ended = outcomes.get('', ('', 'it was stopped'))[1]
    outcome, text = outcomes.get(pyfuncitem.nodeid, ('failed', f'it did not run: {ended}'))
    {'passed': lambda _: None, 'skipped': pytest.skip}.get(outcome, functools.partial(pytest.fail, pytrace=False))(text)
    return True


def pytest_runtest_logreport(report):
    """Lists what passed in PASSED. In the process with eight devices: writes each outcome, failures of set-up too."""
    if PASSED in os.environ and 'PYTEST_XDIST_WORKER' not in os.environ and report.when == 'call' and report.passed:
        with open(os.environ[PASSED], 'a', encoding='utf-8') as file:
            file.write(f'{report.nodeid}\n')
    if REPORT in os.environ and (report.when == 'call' or report.outcome != 'passed'):
        with open(os.environ[REPORT], 'a', encoding='utf-8') as file:
            file.write(json.dumps([report.nodeid, report.outcome, report.longreprtext]) + '\n')


def pytest_collection_finish(session):
    """Starts the process with eight devices, once however many workers there are; it runs beside the other tests."""
    gc.collect()
    gc.freeze()  # what is imported lives as long as the tests: a collection need not visit it
    selected = [item.nodeid for item in session.items if _needs_the_other_process(item)]
    path = _eight_devices_file(session.config)
    if not selected or session.config.option.collectonly:
        return
    lock = open(path.with_suffix('.lock'), 'w')  # this worker locks it until that process has ended
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.touch(exist_ok=False)
    except (BlockingIOError, FileExistsError):
        return lock.close()
    env = {key: value for key, value in os.environ.items() if not key.startswith('PYTEST_')}
    env |= {'JAX_NUM_CPU_DEVICES': '8', 'JAX_PLATFORMS': 'cpu', REPORT: str(path)}
    command = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', '-m', EIGHT_DEVICES, *selected]
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT, 'text': True}
    process = subprocess.Popen(command, cwd=session.config.rootpath, env=env, **pipes)

    def wait():
        with lock, path.open('a', encoding='utf-8') as file:
            text = process.communicate()[0]
            file.write(json.dumps(['', process.returncode, text[-4000:]]) + '\n')

    thread = threading.Thread(target=wait)
    thread.start()
    session.config.stash[EIGHT_DEVICES_PROCESS] = process, thread


def pytest_sessionfinish(session, exitstatus):
    """Waits for the process with eight devices, which another worker may wait for; ends it where the tests were."""
    process, thread = session.config.stash.get(EIGHT_DEVICES_PROCESS, (None, None))
    if process:
        if session.shouldstop or session.shouldfail or exitstatus == pytest.ExitCode.INTERRUPTED:
            process.terminate()
        thread.join()


def _needs_the_other_process(item):
    return item.get_closest_marker(EIGHT_DEVICES) and jax.device_count() < 8


def _eight_devices_file(config):
    """Returns the file of outcomes, which all workers share."""
    folder = config._tmp_path_factory.getbasetemp()  # of this worker; its parent is that of all workers
    return (folder.parent if hasattr(config, 'workerinput') else folder) / 'eight_devices.jsonl'


@functools.cache
def _outcomes_on_eight_devices(path):
    """Waits for that process. Returns outcome and text by node id; by '' how it ended."""
    with open(path.with_suffix('.lock')) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
    rows = [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines()]
    return {nodeid: (outcome, text) for nodeid, outcome, text in rows}


@pytest.fixture
def optimised():
    """Has XLA optimise the programs of a test: for one that finds equal bits in two programs."""
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
    config = parts.override(config, {'model.family': 'modified_kneser_ney', 'model.n': 2})
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DiscountWarning)  # three sentences are too little text
        experiment.run(config, root / 'counts')
    (root / 'text').write_text('other words here ' * 40)
    config = parts.override(text_config.get_config(), {'model.family': 'add_delta', 'model.n': 2})
    config.corpus.path, config.corpus.boundary_tokens = str(root / 'text'), False
    experiment.run(config, root / 'other')
    return root
