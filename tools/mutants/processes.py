"""Runs pytest on a copy of the repository in forked processes, so that JAX is not imported again."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
# Imported from the copy.
OURS = ('nplm_jax', 'configs', 'experiments', 'tests', 'tools', 'helpers', 'conftest', 'launch')
# Modules that are slow to import and do not start threads before they are used.
HEAVY = (
    'jax',
    'jax.numpy',
    'optax',
    'flax.struct',
    'orbax.checkpoint',
    'pytest',
    'matplotlib.figure',
    'scipy.sparse',
    'tensorboardX',
    'regex',
)
OPTIONAL = ('torch', 'sklearn.manifold')
# Most programs that a test compiles do not depend on the mutant, so all mutants share them through a cache.
COMPILED = {
    'JAX_COMPILATION_CACHE_DIR': str(ROOT / 'build' / 'mutants' / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
}


def copy_repository(folder: pathlib.Path) -> pathlib.Path:
    """Copies the current version of all files known to git. Returns the root of the copy."""
    root = folder / 'nplm-jax'
    for name in subprocess.run(
        ['git', 'ls-files'], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    # Bytecode is checked by hash, because a mutant may have the time and the size of the original file.
    compile_all = [sys.executable, '-m', 'compileall', '-q', '--invalidation-mode=checked-hash', str(root / 'nplm_jax')]
    subprocess.run(compile_all, check=True)
    return root


def import_heavy() -> None:
    """Imports the modules that every forked process uses, with the environment from tests/conftest.py."""
    assert 'jax' not in sys.modules, 'JAX reads these settings when it is imported'
    os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', '1')
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')
    os.environ.update(COMPILED)
    for name in HEAVY:
        importlib.import_module(name)
    for name in OPTIONAL:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    warnings.filterwarnings('ignore', message='os.fork')


def run_pytest(
    root: pathlib.Path, arguments: list[str], plugin: Any, log: pathlib.Path, limit: float
) -> tuple[int | None, float]:
    """Runs pytest in a forked process, in a copy of the repository.

    Args:
        root: The copy.
        arguments: Arguments of pytest.
        plugin: A pytest plug-in. If it has a method `around`, this method runs pytest.
        log: The file for the output of the tests.
        limit: The maximum CPU time [s]. The process and its children are killed after this CPU time, or after five
            times this time on the wall clock.

    Returns:
        The exit code of pytest, or None if the limit was reached, and the CPU time in seconds.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 1))
            code = _in_child(root, arguments, plugin, log)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    deadline, done = time.monotonic() + 5 * limit, 0
    while not done and time.monotonic() < deadline:
        done, code, used = os.wait4(child, os.WNOHANG)
        time.sleep(0 if done else 0.02)
    try:
        os.killpg(child, signal.SIGKILL)  # including any processes that the tests left running
    except ProcessLookupError:
        pass
    if not done:
        _, code, used = os.wait4(child, 0)
    killed = os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGKILL, signal.SIGXCPU)
    return None if killed else os.waitstatus_to_exitcode(code), used.ru_utime + used.ru_stime


def _in_child(root: pathlib.Path, arguments: list[str], plugin: Any, log: pathlib.Path) -> int:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(root)
    for name in [name for name in sys.modules if name.split('.')[0] in OURS]:
        del sys.modules[name]
    sys.path[:] = [str(root), *(path for path in sys.path if path not in ('', str(ROOT)))]
    os.environ['PYTHONPATH'] = str(root)  # for processes started by tests
    pytest = importlib.import_module('pytest')
    if any('eight_devices' in argument for argument in arguments):
        importlib.import_module('jax').config.update('jax_num_cpu_devices', 8)

    def run() -> int:
        return pytest.main(['-p', 'no:cacheprovider', '-p', 'no:xdist', *arguments], plugins=[plugin])

    around: Callable[[Callable[[], int]], int] | None = getattr(plugin, 'around', None)
    return int(around(run) if around else run())


def _computed() -> float:
    """Returns the CPU time of this process and of its finished child processes, in seconds."""
    return sum(os.times()[:4])


class Chosen:
    """Runs only these tests, in this order, within a limit on CPU time, and stops at the first failure.

    Without node ids, runs all tests in the files, in file order. The name of a failed test is written to the file
    `failed`.
    """

    def __init__(self, nodeids: list[str], budget: float, failed: pathlib.Path):
        self._rank = {nodeid: rank for rank, nodeid in enumerate(nodeids)}
        self._budget, self._failed, self._session = budget, failed, None

    def pytest_collection_modifyitems(self, session, config, items):
        """Deselects the other tests."""
        self._session = session
        if self._rank:
            others = [item for item in items if item.nodeid not in self._rank]
            items[:] = sorted((item for item in items if item.nodeid in self._rank), key=lambda i: self._rank[i.nodeid])
            config.hook.pytest_deselected(items=others)

    def pytest_collectreport(self, report):
        """Records the name of the file that cannot be imported."""
        if report.failed:
            self._failed.write_text(f'{report.nodeid} (import)')

    def pytest_runtest_logreport(self, report):
        """Records the name of the failed test."""
        if report.failed:
            self._failed.write_text(report.nodeid)

    def pytest_runtest_logfinish(self):
        """Stops the session at the time limit."""
        if _computed() > self._budget:
            self._session.shouldstop = 'the time limit was reached'


class Covered:
    """Records the lines that each test runs, and the duration of each test."""

    def __init__(self, root: pathlib.Path, output: pathlib.Path):
        self._root, self._output, self._seconds, self._failed = root, output, {}, []

    def around(self, run: Callable[[], int]) -> int:
        """Runs pytest under coverage, with one context per test."""
        coverage = importlib.import_module('coverage')
        self._coverage = coverage.Coverage(data_file=None, source=[str(self._root / 'nplm_jax')], config_file=False)
        self._coverage.start()
        code = run()
        self._coverage.stop()
        data, lines = self._coverage.get_data(), {}
        for file in data.measured_files():
            by_line = {str(line): [c for c in names if c] for line, names in data.contexts_by_lineno(file).items()}
            lines[pathlib.Path(file).relative_to(self._root).as_posix()] = {k: v for k, v in by_line.items() if v}
        self._output.write_text(json.dumps({'seconds': self._seconds, 'failed': self._failed, 'lines': lines}))
        return code

    def pytest_runtest_logstart(self, nodeid):
        """Assigns the following lines to a test."""
        self._coverage.switch_context(nodeid)
        self._started = _computed()

    def pytest_runtest_logfinish(self, nodeid):
        """Records the CPU time of a test, in seconds."""
        self._seconds[nodeid] = round(_computed() - self._started, 3)

    def pytest_runtest_logreport(self, report):
        """Records the tests that fail without a change."""
        if report.failed:
            self._failed.append(report.nodeid)
