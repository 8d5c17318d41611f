"""Passes damaged run folders to every command of nplm, which must read the folder or exit with a one-line error.

A case is a finished run's folder with one to three kinds of damage: edited bytes of any file; replaced JSON values; a
file that is missing, empty or a folder; a count-based model with other arrays and a valid checksum; or sizes in
config.json that exceed the memory of any machine. A command must end within seconds, with exit code 0, 1 or 2 and
without a traceback. Its address space must not be much larger than with the undamaged folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from helpers import fitted

from configs import sentences
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import all_commands
from nplm_jax.ngram import archives, storage
from nplm_jax.runs import experiment
from nplm_jax.utils.errors import BadInput
from tests.nightly.fuzz import damage

SECONDS = 60  # that a command may take
MEGABYTES = 3_000  # by which the address space may grow
TEXT = 'i like dog\ni love zzz\n'
# The arguments of each command; RUN is the damaged folder, and GOOD is an undamaged folder.
COMMANDS: dict[str, Sequence[Sequence[str]]] = {
    'generate': [['RUN', '--words=3', '--samples=2'], ['RUN', 'GOOD', '--words=3', '--beam=2']],
    'score': [['RUN'], ['RUN', 'GOOD', '--stream'], ['RUN', '--open']],
    'surprisal': [['RUN'], ['GOOD', 'RUN']],
    'next': [['RUN'], ['GOOD', 'RUN', '--prompt=i']],
    'mix': [['GOOD', 'RUN']],
    'spell': [['RUN', '--family=kneser_ney', '--n=2']],
    'adapt': [['RUN', '--methods=ngram_cache', '--tune_words=4']],
    'features': [['RUN', '--words=dog'], ['RUN', '--export', '--output=OUT']],
    'compare': [['RUN', 'GOOD'], ['RUN', 'GOOD', '--text=TEXT']],
    'export': [[f'RUN --to={to} --output=OUT/x'][0].split() for to in ('arpa', 'word2vec', 'npz')],
    'pack': [['RUN', '--output=OUT/x.nplm']],
    'import': [['ARPA', '--workdir=OUT/new', '--vocabulary=RUN']],
    'info': [['RUN'], ['RUN', '--json']],
    'runs': [['RUN'], ['RUN', '--json']],
}


def make_runs(root: pathlib.Path) -> list[pathlib.Path]:
    """Trains the runs to be damaged: a network, and count-based models in each format."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter('ignore')  # three sentences are too little text for estimating discounts
        for name, family, n in (
            ('network', 'nplm', 3), ('counts', 'kneser_ney', 2), ('interpolated', 'interpolated', 3),
            ('classes', 'classes', 2),
        ):  # fmt: skip
            config, changes = sentences.get_config(), {'model.family': family, 'model.n': n, 'model.classes': 2}
            changes |= {'train.epochs': 2, 'train.evaluate_every': 2}
            experiment.run(fitted(config, changes), root / name)
    return [root / name for name in ('network', 'counts', 'interpolated', 'classes')]


# --- damage ----------------------------------------------------------------------------------------------


def damaged(rng: random.Random, folder: pathlib.Path) -> str:
    """Damages a copy of a run's folder. Returns a description of the damage."""
    notes = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kinds: list[Callable[[random.Random, pathlib.Path], str]] = [
            _edit,
            _edit,
            _replace_json,
            _replace_json,
            _replace_file,
            _sizes,
        ]
        if (folder / storage.MODEL_FILE).is_file():
            kinds += [_other_arrays, _other_arrays, _seal]
        notes.append(rng.choice(kinds)(rng, folder))
    return '; '.join(notes)


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(p for p in folder.rglob('*') if p.is_file() and not p.is_symlink())


def _edit(rng: random.Random, folder: pathlib.Path) -> str:
    files = [path for path in _files(folder) if path.stat().st_size]
    path = rng.choice(files) if files else folder / 'config.json'
    data = path.read_bytes() if path.is_file() else b''
    for _ in range(rng.choice([1, 1, 2, 4])):
        data = damage.edited(rng, data)
    path.write_bytes(data)
    return f'edited {path.relative_to(folder)}'


def _replace_json(rng: random.Random, folder: pathlib.Path) -> str:
    files = [path for path in _files(folder) if path.suffix == '.json']
    for path in rng.sample(files, len(files)):
        with contextlib.suppress(ValueError, RecursionError):
            path.write_bytes(damage.damaged_json(rng, path.read_bytes()))
            return f'values of {path.relative_to(folder)}'
    return 'nothing'


def _replace_file(rng: random.Random, folder: pathlib.Path) -> str:
    entries = sorted(folder.rglob('*'))
    if not entries:
        return 'nothing'
    path = rng.choice(entries)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    kind = rng.choice(['missing', 'folder', 'empty'])
    if kind == 'folder':
        path.mkdir()
    elif kind == 'empty':
        path.touch()
    return f'{path.relative_to(folder)}: {kind}'


def _sizes(rng: random.Random, folder: pathlib.Path) -> str:
    """Declares sizes in config.json that do not match the folder's files."""
    path = folder / 'config.json'
    try:
        config = json.loads(path.read_bytes())
        key = rng.choice(['m', 'h', 'n', 'layers', 'hidden'])
        config['model'][key] = value = rng.choice([0, 1, 7, 10**4, 10**6, 2**31 - 1, 2**31, 2**62])
        path.write_text(json.dumps(config))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return 'nothing'
    return f'model.{key}={value}'


def _other_arrays(rng: random.Random, folder: pathlib.Path) -> str:
    """Writes a count-based model with a different array and a valid checksum, as an attacker could."""
    path = folder / storage.MODEL_FILE
    try:
        arrays, metadata = archives.read(path)
    except BadInput:  # an earlier step has damaged it
        return 'nothing'
    name = rng.choice(sorted(arrays))
    array, generator = arrays[name], np.random.default_rng(rng.randrange(2**32))
    kind = rng.choice(
        ['missing', 'reversed', 'cut', 'longer', 'type', 'shape', 'values', 'name', 'empty', 'not finite']
    )
    if kind in ('missing', 'name'):
        del arrays[name]
    if kind == 'name':
        arrays[rng.choice(['table.keys.9', 'log_p.7', 'x', '../x', f'{name}.1', 'class_ngram.table.keys.1'])] = array
    changes: dict[str, Callable[[], np.ndarray]] = {
        'reversed': lambda: np.flip(array),
        'cut': lambda: np.ravel(array)[: rng.randint(0, array.size)],
        'longer': lambda: np.concatenate([np.ravel(array)] * 3),
        'type': lambda: array.astype(rng.choice(['f4', 'f8', 'i4', 'i8', 'u1', 'u2', '?'])),
        'shape': lambda: np.reshape(array, rng.choice([(1, -1), (-1, 1), (1, 1, -1), (-1,)])),
        'values': lambda: _random_values(generator, array),
        'empty': lambda: np.zeros(rng.choice([(0,), (0, 5), (5, 0)]), array.dtype),
        'not finite': lambda: np.full_like(array, np.nan) if array.dtype.kind == 'f' else np.full_like(array, 7),
    }
    if kind in changes:
        with warnings.catch_warnings(), contextlib.suppress(ValueError):
            warnings.simplefilter('ignore')
            arrays[name] = changes[kind]()
    archives.write(path, arrays, metadata)
    return f'{storage.MODEL_FILE}: {name} {kind}'


def _random_values(generator: np.random.Generator, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in 'iu':
        limits = np.iinfo(array.dtype)
        high = generator.choice([10, 1000, limits.max])
        return generator.integers(max(limits.min, -int(high)), high, array.shape, array.dtype, endpoint=True)
    if array.dtype.kind == 'f':
        return (generator.normal(size=array.shape) * generator.choice([1, 1e300])).astype(array.dtype)
    return ~array


def _seal(rng: random.Random, folder: pathlib.Path) -> str:
    """Edits the bytes of a count-based model and writes their valid checksum."""
    path = folder / storage.MODEL_FILE
    content = path.read_bytes()
    for _ in range(rng.choice([1, 1, 2])):
        content = damage.edited(rng, content)
    path.write_bytes(sealed(content))
    return f'{storage.MODEL_FILE}: edited under a right checksum'


def sealed(content: bytes, entries: Mapping[str, Any] = {}) -> bytes:
    """Returns an array file with additional header entries and a valid checksum, if possible."""
    size = int.from_bytes(content[:8], 'little')
    try:
        header = json.loads(content[8 : 8 + size])
        header['__metadata__']['sha256'] = archives._NO_DIGEST
        header |= entries
    except (ValueError, LookupError, TypeError, RecursionError):  # the header itself is damaged
        return content
    header['__metadata__']['sha256'] = hashlib.sha256(content[8 + size :] + archives._pack(header)).hexdigest()
    return archives._pack(header) + content[8 + size :]


# --- the search ------------------------------------------------------------------------------------------


class TooSlow(BaseException):
    """An exception that no command catches, unlike OSError."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Fails if the block takes longer than SECONDS, or more than MEGABYTES of additional address space."""

    def ring(*_: Any) -> None:
        raise TooSlow(f'more than {SECONDS} s')

    in_use = int(pathlib.Path('/proc/self/statm').read_text().split()[0]) * os.sysconf('SC_PAGESIZE')
    former_limits, former = resource.getrlimit(resource.RLIMIT_AS), None
    on_main = threading.current_thread() is threading.main_thread()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEGABYTES * 10**6, former_limits[1]))
    if on_main:
        former = signal.signal(signal.SIGALRM, ring)
        signal.alarm(SECONDS)
    try:
        yield
    finally:
        if on_main:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, former)
        resource.setrlimit(resource.RLIMIT_AS, former_limits)


def call(command: str, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Runs a command within this process. Returns its exit code, stdout and stderr.

    Exceptions that the command does not catch are raised; a user would see a traceback.
    """
    stdin = types.SimpleNamespace(buffer=io.BytesIO(TEXT.encode()), isatty=lambda: False)
    code, stdout, stderr = 0, io.StringIO(), io.StringIO()
    with (
        limited(),
        mock.patch.object(sys, 'stdin', stdin),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter('ignore')
        try:
            cli.main([command, *arguments])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, stdout.getvalue(), stderr.getvalue()


def outcome(
    rng: random.Random, bases: Sequence[pathlib.Path], command: str, calls: Sequence[Sequence[str]]
) -> tuple[str, str]:
    """Runs a command on a damaged folder. Returns `read` or `refused`, and a description of the damage.

    Raises AssertionError with the description and the problem.
    """
    with tempfile.TemporaryDirectory(dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None) as name:
        root = pathlib.Path(name)
        base = rng.choice(bases)
        shutil.copytree(base, root / 'run')
        shutil.copytree(bases[0] if base != bases[0] else bases[1], root / 'good')
        (root / 'out').mkdir()
        (root / 'text').write_text(TEXT)
        (root / 'arpa').write_text('\\data\\\nngram 1=3\n\\1-grams:\n-0.3\tdog\n-0.5\tlike\n-1\t<unk>\n\\end\\\n')
        note = f'{base.name}: {damaged(rng, root / "run")}'
        paths = {
            'RUN': root / 'run',
            'GOOD': root / 'good',
            'OUT': root / 'out',
            'TEXT': root / 'text',
            'ARPA': root / 'arpa',
        }
        arguments = list(rng.choice(calls))
        for key, path in paths.items():
            arguments = [argument.replace(key, str(path)) for argument in arguments]
        try:
            code, _, stderr = call(command, arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            where = ''.join(traceback.format_exception(error)[-4:])
            raise AssertionError(f'{command}: {note}: {error!r}\n{where}') from error
        problem = _problem(code, stderr)
        assert not problem, f'{command}: {note}: {problem}: {stderr[-2000:]!r}'
        return ('read' if code == 0 else 'refused'), note


def _problem(code: int, stderr: str) -> str:
    """Describes the problem with the exit of a command. Returns '' if there is none."""
    if 'Traceback' in stderr:
        return 'a traceback'
    if code == 0:
        return ''
    if code not in (1, 2):
        return f'exit code {code}'
    last = stderr.splitlines()[-1] if stderr.strip() else ''
    if not last:
        return 'silence'
    return '' if last.isprintable() and len(last) < 1500 else 'a line that is too long, or not printable'


def search(
    cases: int, bases: Sequence[pathlib.Path], commands: Mapping[str, Sequence[Sequence[str]]] = COMMANDS
) -> None:
    """Tries the given number of damaged folders in each command. Raises AssertionError for the first failing case."""
    for command in [name for name in commands if name in all_commands()]:
        for number in range(cases):
            outcome(random.Random(f'{command} {number}'), bases, command, commands[command])
