"""What the text of a compiled program says: how often each instruction runs, what it sends and what it moves.

A loop's body counts as often as the loop runs it (`known_trip_count`), which XLA's own cost analysis does not do.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

COLLECTIVES = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute')
# They move nothing, or what they move is counted elsewhere.
_FREE = {'parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast', 'while', 'call', 'conditional', 'after-all'}
_FREE |= {'iota', 'partition-id', 'replica-id', 'async-start', 'async-update', 'opt-barrier', 'domain'}
_SLICES, _UPDATES = ('dynamic-slice', 'gather', 'slice'), {'dynamic-update-slice': 1, 'scatter': 2}
_PASSED_ON = ('bitcast', 'reshape', 'convert', 'copy', 'transpose')
_ARRAY = re.compile(r'(pred|[a-z]+\d+\w*)\[([\d,]*)\](\{[^}]*\})?')
_CALLED = re.compile(r'(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.-]+)')


@dataclasses.dataclass(frozen=True)
class Array:
    """The type and the shape of an array, and whether it is in the chip's memory (and not in a buffer near it)."""

    kind: str
    shape: tuple[int, ...]
    in_hbm: bool = True

    @property
    def bytes(self) -> int:
        """Its size."""
        bits = 8 if self.kind == 'pred' else int(re.findall(r'\d+', self.kind)[0])
        return math.prod(self.shape) * bits // 8


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction of a computation.

    Attributes:
        name: Its name.
        op: What it does, such as `fusion`.
        arrays: Its results.
        operands: The names of what it reads.
        rest: Its attributes as text.
        is_root: Whether it is the computation's result.
    """

    name: str
    op: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    rest: str
    is_root: bool

    @property
    def kind(self) -> str:
        """What it does, the start of it where it goes on beside others."""
        return self.op.removesuffix('-start')

    @property
    def called(self) -> list[str]:
        """The computations that it runs."""
        branches = re.findall(r'branch_computations=\{([^}]*)\}', self.rest)
        return _CALLED.findall(self.rest) + re.findall(r'[\w.-]+', ' '.join(branches))


class Program:
    """A compiled program: its computations, each a dictionary of instructions by name."""

    def __init__(self, text: str) -> None:
        """Takes the text of a compiled program."""
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ''
        current: dict[str, Instruction] = {}
        for line in text.splitlines():
            if header := re.match(r'(ENTRY )?%?([\w.-]+) \(.*\{$', line):
                current = self.computations[header[2]] = {}
                self.entry = header[2] if header[1] else self.entry
            elif instruction := _parse(line):
                current[instruction.name] = instruction

    def run(self, name: str = '', times: float = 1, fused: bool = False) -> Iterator[tuple[Instruction, float, bool]]:
        """Yields each instruction that runs, how often, and whether it is a part of a fusion."""
        for instruction in self.computations[name or self.entry].values():
            yield instruction, times, fused
            if instruction.op == 'while' or instruction.kind not in (*COLLECTIVES, 'reduce', 'scatter', 'sort', 'map'):
                inside = fused or instruction.op == 'fusion'
                for called in instruction.called:
                    if called in self.computations:
                        yield from self.run(called, times * self._trips(instruction), inside)

    def collectives(self) -> list[dict[str, Any]]:
        """Returns what is sent: the kind, how often, the bytes of the results of each time, and the size of a group."""
        found: collections.Counter[tuple[str, int, int]] = collections.Counter()
        seen = set()  # a collective beside which something is computed stands in several fusions
        for instruction, times, fused in self.run():
            channel = re.findall(r'channel_id=(\d+)', instruction.rest)
            if instruction.kind in COLLECTIVES and not (fused and (instruction.kind, *channel) in seen):
                seen.add((instruction.kind, *channel))
                size = sum(array.bytes for array in _results(instruction))
                found[instruction.kind, size, _group_size(instruction.rest)] += times
        return [{'kind': k, 'bytes': b, 'devices': d, 'count': n} for (k, b, d), n in sorted(found.items())]

    def moved(self) -> float:
        """Returns the bytes that instructions read from and write to the chip's memory, of a slice only the slice."""
        return sum(self.traffic().values())

    def traffic(self) -> collections.Counter[tuple[int, ...]]:
        """Returns the bytes that `moved` counts by the shape of the array, of all its types together."""
        arrays = {name: i for instructions in self.computations.values() for name, i in instructions.items()}
        found: collections.Counter[tuple[int, ...]] = collections.Counter()
        for instruction, times, fused in self.run():
            for shape, size in () if fused else self._moved(instruction, arrays):
                found[shape] += times * size
        return found

    def products(self) -> list[tuple[Array, ...]]:
        """Returns the operands of each product of matrices."""
        found = []
        for instructions in self.computations.values():
            for i in instructions.values():
                if i.op in ('dot', 'convolution') or (i.op == 'custom-call' and 'gemm' in i.rest):
                    operands = (instructions[name] for name in i.operands[:2] if name in instructions)
                    found.append(tuple(array for each in operands for array in each.arrays[:1]))
        return found

    def _trips(self, i: Instruction) -> int:
        """Returns how often a loop runs: what the program says of it, or the constant with which its end compares."""
        if i.op != 'while':
            return 1
        if known := re.search(r'known_trip_count"?\s*[:=]\s*\{"?n"?\s*[:=]\s*"?(\d+)', i.rest):
            return int(known[1])
        (condition,) = re.findall(r'condition=%?([\w.-]+)', i.rest)
        limits = [int(c.rest) for c in self.computations[condition].values() if c.op == 'constant' and c.rest.isdigit()]
        return limits[0] if len(limits) == 1 else 1

    def _moved(self, i: Instruction, arrays: dict[str, Instruction]) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yields the shape of what an instruction reads or writes, and how many bytes of it."""
        if i.op in _FREE or i.op.endswith(('-done', '-update')):
            return
        if i.op.endswith('-start') and i.kind not in COLLECTIVES:  # a copy, maybe of a slice, between two memories
            part = min(i.arrays[:2], key=lambda array: array.bytes)
            yield part.shape, part.bytes * sum(array.in_hbm for array in i.arrays[:2])
            return
        for number, name in enumerate(i.operands):
            if name in arrays:
                yield from _limited(arrays[name].arrays, self._read(i, number))
        yield from _limited(_results(i), self._written(i))

    def _read(self, i: Instruction, number: int) -> int | None:
        """Returns the bytes that an instruction reads of an operand; None for all of them."""
        if i.op in _SLICES and number == 0:
            return sum(array.bytes for array in i.arrays)
        if i.op in _UPDATES and number == 0:
            return 0
        if i.op != 'fusion':
            return None
        inside = self.computations[i.called[0]]
        (parameter,) = (p for p in inside.values() if p.op == 'parameter' and p.rest.startswith(f'{number})'))
        return self._read_of(parameter.name, inside)

    def _read_of(self, name: str, inside: dict[str, Instruction]) -> int | None:
        total = 0
        for user in (u for u in inside.values() if name in u.operands):
            passed = user.op in _PASSED_ON and not user.is_root
            part = self._read_of(user.name, inside) if passed else self._read(user, user.operands.index(name))
            if part is None:
                return None
            total += part
        return total

    def _written(self, i: Instruction) -> int | None:
        """Returns the bytes that an instruction writes; None for its whole results."""
        if i.op == 'fusion':
            inside = self.computations[i.called[0]]
            roots = [r for r in inside.values() if r.is_root]
            while roots and roots[0].op in ('bitcast', 'convert', 'copy'):
                roots = [inside[roots[0].operands[0]]]
            parts = [inside[name] for name in roots[0].operands] if roots[0].op == 'tuple' else roots
            if not any(part.op in _UPDATES for part in parts):
                return None
            return sum(self._update(part, inside) for part in parts)
        return None

    def _update(self, i: Instruction, inside: dict[str, Instruction]) -> int:
        update = inside[i.operands[_UPDATES[i.op]]] if i.op in _UPDATES else i
        return sum(array.bytes for array in update.arrays)


def _parse(line: str) -> Instruction | None:
    found = re.match(r'\s+(ROOT )?%?([\w.-]+) = (.*)', line)
    if not found:
        return None
    text = found[3]
    end = _close(text, 0) + 1 if text.startswith('(') else text.index(' ')
    kind, _, after = text[end:].strip().partition('(')
    stop = _close('(' + after, 0)
    operands = tuple(re.findall(r'%([\w.-]+)', after[: stop - 1]))
    rest = {'parameter': after, 'constant': after[: stop - 1]}.get(kind, after[stop:])
    return Instruction(found[2], kind, _arrays(text[:end]), operands, rest, bool(found[1]))


def _close(text: str, start: int) -> int:
    """Returns the index of the parenthesis that closes the one at `start`."""
    depth = 0
    for match in re.compile(r'[()]').finditer(text, start):
        depth += 1 if match[0] == '(' else -1
        if not depth:
            return match.start()
    raise ValueError(f'not closed: {text[:80]}')


def _arrays(text: str) -> tuple[Array, ...]:
    return tuple(
        Array(kind, tuple(int(n) for n in shape.split(',') if n), not re.search(r'S\([1-9]', layout))
        for kind, shape, layout in _ARRAY.findall(text)
    )


def _results(i: Instruction) -> tuple[Array, ...]:
    """Returns an instruction's results; what begins a collective has its operands before them."""
    if i.op.endswith('-start') and i.kind in COLLECTIVES and i.kind != 'all-reduce':
        return i.arrays[len(i.operands) : 2 * len(i.operands)]
    return i.arrays[:1] if i.op == 'custom-call' and 'gemm' in i.rest else i.arrays  # the other one is a workspace


def _limited(arrays: Iterable[Array], limit: int | None) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yields the shape and the bytes of arrays in the chip's memory; beyond a limit, the limit for the largest one."""
    sizes = [(array.shape, array.bytes) for array in arrays if array.in_hbm]
    total = sum(size for _, size in sizes)
    if limit is None or limit >= total:
        yield from sizes
    else:
        yield max(sizes, key=lambda each: each[1])[0], limit


def _group_size(rest: str) -> int:
    """Returns how many devices exchange something with each other; 0 for all."""
    if found := re.search(r'replica_groups=\[(\d+),(\d+)\]', rest):
        return int(found[2])
    if found := re.search(r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}', rest):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", found[2]))
    found = re.search(r'replica_groups=\{\{([\d,]*)\}', rest)
    return len(found[1].split(',')) if found else 2 * ('source_target_pairs' in rest)
