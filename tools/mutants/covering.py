"""Finds the tests that run a line, using one recorded run of each test file, which is kept in build/mutants/."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import pathlib
import re

from tools.mutants import processes
from tools.mutants.sites import Mutant

KINDS = ('unit', 'integration')  # the folders of the tests to run
MOST_FILES = 4  # maximum number of files to run entirely if no test is known to run a line
CACHE = processes.ROOT / 'build' / 'mutants'


def digest(root: pathlib.Path) -> str:
    """Returns a digest of the package's source and of the code that excludes places."""
    files = [processes.HERE / 'sites.py', processes.HERE / 'cosmic_ray.toml']
    return _digest(_package(root), *(file.read_bytes() for file in files))


def measure(root: pathlib.Path, files: list[str], limit: float = 1500, kept_only: bool = False) -> dict[str, dict]:
    """Runs each test file of a copy separately, unless neither it nor the package has changed since the last run.

    With `kept_only`, runs nothing and skips files that were not measured before.

    Returns:
        By test file: `seconds` by test, `failed` tests, and `lines`: by source file and line, the tests that run it.
    """
    (CACHE / 'coverage').mkdir(parents=True, exist_ok=True)
    package = _package(root)
    found = {}
    for file in files:
        name = _digest(package, (root / file).read_bytes())
        output = CACHE / 'coverage' / f'{file.replace("/", ".")}-{name}.json'
        if not output.exists() and not kept_only:
            log = CACHE / f'{file.replace("/", ".")}.log'
            code, seconds = processes.run_pytest(root, [file], processes.Covered(root, output), log, limit)
            print(f'{file}: exit code {code} after {seconds:.0f} s of computing', flush=True)
        if output.exists():
            found[file] = json.loads(output.read_text())
            if found[file]['failed']:
                print(f'{file}: fails unchanged: {found[file]["failed"]}', flush=True)
    return found


def is_of(room: str, file: str) -> bool:
    """Returns whether a test file belongs to a room."""
    return file.startswith(tuple(f'tests/{kind}/{room}/' for kind in KINDS))


def superfluous(measured: dict[str, dict], slow: float) -> list[tuple[float, str]]:
    """Returns the duration and name of tests that take at least `slow` seconds and whose lines other tests also run.

    These tests may still be the only ones that check some properties of these lines.
    """
    by_line: dict[tuple[str, str], set[str]] = {}
    for data in measured.values():
        for path, lines in data['lines'].items():
            for line, tests in lines.items():
                by_line.setdefault((path, line), set()).update(tests)
    needed = {test for tests in by_line.values() if len(tests) == 1 for test in tests}
    seconds = {test: number for data in measured.values() for test, number in data['seconds'].items()}
    return sorted(((n, test) for test, n in seconds.items() if n >= slow and test not in needed), reverse=True)


def _package(root: pathlib.Path) -> bytes:
    return b''.join(path.read_bytes() for path in sorted((root / 'nplm_jax').rglob('*.py')))


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b''.join(contents)).hexdigest()[:16]


@dataclasses.dataclass
class Tests:
    """The tests that run a line. `measured` is the result of `measure`."""

    root: pathlib.Path
    measured: dict[str, dict]

    def of(self, mutant: Mutant) -> tuple[list[str], list[str]]:
        """Returns the test files that may detect a change, and the tests in these files, or no tests if all may.

        These are tests in the mutant's own room, or in other rooms if no test in its own room runs the line. For a line
        that runs at import, these are the tests that run any line of the module. If the test files that name the module
        were not measured, or no test is known to run the line (for example, in a file that another program loads), all
        tests of these files are returned.
        """
        first, last, at_import = self._statement(mutant)
        by_file = {}
        for file, data in self.measured.items():
            lines = data['lines'].get(mutant.path, {})
            wanted = [n for line, n in lines.items() if at_import or first <= int(line) <= last]
            tests = {test for names in wanted for test in names} - set(data['failed'])
            if tests:
                by_file[file] = sorted((data['seconds'].get(test, 0), test) for test in tests)
        own = {file: tests for file, tests in by_file.items() if is_of(mutant.room, file)}
        others = [file for file in self._naming(mutant) if file not in self.measured]
        if not by_file or (not own and others):
            return (others or self._naming(mutant))[:MOST_FILES], []
        mirror = f'{pathlib.Path(mutant.path).stem}_test.py'
        order = sorted((own or by_file).items(), key=lambda f: (not f[0].endswith(mirror), f[1][len(f[1]) // 2]))
        return [file for file, _ in order], [test for _, tests in order for _, test in tests]

    def slowest(self, tests: list[str]) -> float:
        """Returns the CPU time of the slowest of these tests without a change, in seconds, or 20 for whole files."""
        seconds = [data['seconds'].get(test, 0) for test in tests for data in self.measured.values()]
        return max(seconds, default=20.0)

    def _naming(self, mutant: Mutant) -> list[str]:
        """Returns the test files that import a module or, if none does, name it: its own first, then its room's."""
        stem = pathlib.Path(mutant.path).stem
        texts = {path: path.read_text() for kind in KINDS for path in (self.root / 'tests' / kind).rglob('*_test.py')}
        imports = re.compile(rf'^(from|import) .*\b{stem}\b', re.MULTILINE)
        files = [path for path, text in texts.items() if imports.search(text) or path.name == f'{stem}_test.py']
        files = files or [path for path, text in texts.items() if re.search(rf'\b{stem}\b', text)]
        found = [path.relative_to(self.root).as_posix() for path in files]
        return sorted(found, key=lambda f: (not f.endswith(f'/{stem}_test.py'), not is_of(mutant.room, f), f))

    def _statements(self, path: str) -> list[tuple[int, int, bool]]:
        """Returns the first and last line of each statement or, for compound statements, of the header."""
        found: list[tuple[int, int, bool]] = []

        def walk(node: ast.AST, at_import: bool) -> None:
            for child in ast.iter_child_nodes(node):
                inner = at_import and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                if isinstance(child, ast.stmt):
                    last = child.body[0].lineno - 1 if hasattr(child, 'body') else child.end_lineno
                    decorators = [d.lineno for d in getattr(child, 'decorator_list', ())]
                    found.append((min([child.lineno, *decorators]), max(last, child.lineno), at_import))
                walk(child, inner)

        walk(ast.parse((self.root / path).read_text()), True)
        return found

    def _statement(self, mutant: Mutant) -> tuple[int, int, bool]:
        line = mutant.start[0]
        around = [s for s in self._statements(mutant.path) if s[0] <= line <= s[1]]
        return min(around, key=lambda s: s[1] - s[0], default=(line, line, False))  # such as an `except`
