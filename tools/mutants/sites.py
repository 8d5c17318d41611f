"""Finds the places where cosmic-ray can change the package, excludes places without tests, and draws a sample."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import pathlib
import random
import re
from collections.abc import Iterator

import cosmic_ray.modules
import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.config import load_config
from cosmic_ray.mutating import mutate_code

HERE = pathlib.Path(__file__).parent
Position = tuple[int, int]  # the line, counted from 1, and the column, counted from 0

# Decorators and arguments that affect only speed, memory or checks for programmers.
SPEED_DECORATORS = re.compile(r'(functools\.)?(lru_)?cache\b|(functools\.partial\()?jax\.jit\b|(functools\.)?wraps\b')
SPEED_ARGUMENTS = {'frozen', 'slots', 'kw_only', 'donate_argnums', 'donate_argnames', 'unroll', 'stacklevel', 'maxsize'}
LOGS = {'debug', 'info', 'warning', 'error', 'exception', 'log', 'warn'}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change at a place. `path` is relative to the repository. `variant` numbers the changes of an operator."""

    path: str
    operator: str
    occurrence: int
    start: Position
    end: Position

    @property
    def room(self) -> str:
        """The folder of the package that contains the file."""
        return self.path.split('/')[1]

    @property
    def site(self) -> tuple[str, str, Position]:
        """The place and the kind of change. For example, all binary operators that can replace a + share a site."""
        return self.path, self.operator.split('_')[0], self.start

    def apply(self, source: str) -> str | None:
        """Returns the changed source, or None if the change does not give a valid program."""
        try:
            changed = mutate_code(source, cosmic_ray.plugins.get_operator(self.operator)(), self.occurrence)
            compile(changed or '1 +', self.path, 'exec')
        except (SyntaxError, ValueError, AttributeError):  # cosmic-ray raises AttributeError for `except module.Error`
            return None
        return changed


def find(root: pathlib.Path) -> list[Mutant]:
    """Returns all mutants in the rooms that cosmic_ray.toml names, except at excluded places."""
    paths = [root / path for path in load_config(HERE / 'cosmic_ray.toml')['module-path']]
    return [
        mutant
        for path in sorted(cosmic_ray.modules.find_modules(paths))
        for mutant in _in_file(path.read_text(), path.relative_to(root).as_posix())
    ]


def _in_file(source: str, path: str) -> Iterator[Mutant]:
    nodes, left_out = list(ast_nodes(get_ast(source))), excluded(source)
    for name in sorted(cosmic_ray.plugins.operator_names()):
        make = cosmic_ray.plugins.get_operator(name)
        if make.arguments() or name == 'core/NoOp':
            continue
        positions = [position for node in nodes for position in make().mutation_positions(node)]
        for occurrence, (start, end) in enumerate(positions):
            if not any(first <= start and end <= last for first, last in left_out):
                yield Mutant(path, name, occurrence, start, end)


def excluded(source: str) -> list[tuple[Position, Position]]:
    """Returns the excluded places: annotations, messages of errors and logs, and decorators that only save time."""
    found, lines = [], []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            speed = [decorator for decorator in node.decorator_list if SPEED_DECORATORS.match(ast.unparse(decorator))]
            found.append(getattr(node, 'returns', None))
            lines += [(decorator.lineno, decorator.end_lineno) for decorator in speed]
        if isinstance(node, ast.Raise):
            found.append(node.exc)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGS:
            if getattr(node.func.value, 'id', '') in ('logging', 'warnings', 'logger'):
                found.append(node)
        if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'require':
            found += node.args[1:]  # the first argument is the condition
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == 'allowed':
            found.append(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ('TYPE_CHECKING', "__name__ == '__main__'"):
            found.append(node)
        if isinstance(node, ast.keyword) and node.arg in SPEED_ARGUMENTS:
            found.append(node)
    spans = [
        ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) for node in found if node is not None
    ]
    return spans + [((first, 0), (last + 1, 0)) for first, last in lines]


def draw(mutants: list[Mutant], root: pathlib.Path, size: int, seed: int) -> tuple[list[Mutant], dict[str, int]]:
    """Draws random sites and one change for each: a tenth from each room, and the rest in proportion to room sizes.

    Returns:
        The sample, and the number of sites by room.
    """
    by_site = collections.defaultdict(lambda: collections.defaultdict(list))
    for mutant in mutants:
        by_site[mutant.room][mutant.site].append(mutant)
    source = functools.cache(lambda path: (root / path).read_text())
    sites = {room: len(by_site[room]) for room in sorted(by_site)}
    sample, rng = [], random.Random(seed)
    for room, number in sites.items():
        tenth, others = size // 10, size - len(sites) * (size // 10)
        wanted, order = tenth + round(others * number / sum(sites.values())), sorted(by_site[room])
        rng.shuffle(order)
        for site in order:
            variants = by_site[room][site]
            rng.shuffle(variants)
            if wanted and (chosen := next((m for m in variants if m.apply(source(m.path))), None)):
                sample.append(chosen)
                wanted -= 1
    return sample, sites
