"""Functions that count the executed instructions and the bytes sent between devices in a compiled program's text.

The body of a loop is counted once per iteration (`known_trip_count`), unlike in XLA's own cost analysis.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

COLLECTIVES = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute')
_ARRAY = re.compile(r'(pred|[a-z]+\d+\w*)\[([\d,]*)\]')
_CALLED = re.compile(r'(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.-]+)')


@dataclasses.dataclass(frozen=True)
class Array:
    """The type and the shape of an array."""

    kind: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        bits = 8 if self.kind == 'pred' else int(re.findall(r'\d+', self.kind)[0])
        return math.prod(self.shape) * bits // 8


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction of a computation.

    Attributes:
        name: The name of the instruction.
        op: The operation, such as `fusion`.
        arrays: The results.
        operands: The names of the operands.
        rest: The attributes as text.
    """

    name: str
    op: str
    arrays: tuple[Array, ...]
    operands: tuple[str, ...]
    rest: str

    @property
    def kind(self) -> str:
        """The operation, without the suffix `-start` of asynchronous operations."""
        return self.op.removesuffix('-start')

    @property
    def called(self) -> list[str]:
        """The names of the computations that the instruction calls."""
        branches = re.findall(r'branch_computations=\{([^}]*)\}', self.rest)
        return _CALLED.findall(self.rest) + re.findall(r'[\w.-]+', ' '.join(branches))


class Program:
    """A compiled program, consisting of computations. Each is a dictionary of instructions by name."""

    def __init__(self, text: str) -> None:
        """Parses the text of a compiled program."""
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
        """Yields each executed instruction, its number of executions, and whether it is part of a fusion."""
        for instruction in self.computations[name or self.entry].values():
            yield instruction, times, fused
            if instruction.op == 'while' or instruction.kind not in (*COLLECTIVES, 'reduce', 'scatter', 'sort', 'map'):
                inside = fused or instruction.op == 'fusion'
                for called in instruction.called:
                    if called in self.computations:
                        yield from self.run(called, times * self._trips(instruction), inside)

    def sent(self) -> Iterator[tuple[Instruction, float]]:
        """Yields each collective and its number of executions."""
        seen = set()  # a collective that overlaps with computation occurs in several fusions
        for instruction, times, fused in self.run():
            key = instruction.kind, *re.findall(r'channel_id=(\d+)', instruction.rest)
            if instruction.kind in COLLECTIVES and not (fused and key in seen):
                seen.add(key)
                yield instruction, times

    def collectives(self) -> list[dict[str, Any]]:
        """Returns the kind, number of executions, result bytes per execution, and group size of each collective."""
        found: dict[tuple[str, int, int], float] = collections.defaultdict(float)
        for instruction, times in self.sent():
            size = sum(array.bytes for array in _results(instruction))
            found[instruction.kind, size, _group_size(instruction.rest)] += times
        return [{'kind': k, 'bytes': b, 'devices': d, 'count': n} for (k, b, d), n in sorted(found.items())]

    def products(self) -> list[tuple[Array, ...]]:
        """Returns the operands of each matrix product."""
        found = []
        for instructions in self.computations.values():
            for i in instructions.values():
                if i.op in ('dot', 'convolution') or (i.op == 'custom-call' and 'gemm' in i.rest):
                    operands = (instructions[name] for name in i.operands[:2] if name in instructions)
                    found.append(tuple(array for each in operands for array in each.arrays[:1]))
        return found

    def _trips(self, i: Instruction) -> int:
        """Returns the number of iterations of a loop, from its annotation or from the constant in its condition."""
        if i.op != 'while':
            return 1
        if known := re.search(r'known_trip_count"?\s*[:=]\s*\{"?n"?\s*[:=]\s*"?(\d+)', i.rest):
            return int(known[1])
        (condition,) = re.findall(r'condition=%?([\w.-]+)', i.rest)
        limits = [int(c.rest) for c in self.computations[condition].values() if c.op == 'constant' and c.rest.isdigit()]
        return limits[0] if len(limits) == 1 else 1


def _parse(line: str) -> Instruction | None:
    found = re.match(r'\s+(?:ROOT )?%?([\w.-]+) = (.*)', line)
    if not found:
        return None
    text = found[2]
    end = _close(text, 0) + 1 if text.startswith('(') else text.index(' ')
    kind, _, after = text[end:].strip().partition('(')
    stop = _close('(' + after, 0)
    operands = tuple(re.findall(r'%([\w.-]+)', after[: stop - 1]))
    rest = {'parameter': after, 'constant': after[: stop - 1]}.get(kind, after[stop:])
    return Instruction(found[1], kind, _arrays(text[:end]), operands, rest)


def _close(text: str, start: int) -> int:
    """Returns the index of the closing parenthesis that matches the opening parenthesis at `start`."""
    depth = 0
    for match in re.compile(r'[()]').finditer(text, start):
        depth += 1 if match[0] == '(' else -1
        if not depth:
            return match.start()
    raise ValueError(f'not closed: {text[:80]}')


def _arrays(text: str) -> tuple[Array, ...]:
    return tuple(Array(kind, tuple(int(n) for n in shape.split(',') if n)) for kind, shape in _ARRAY.findall(text))


def _results(i: Instruction) -> tuple[Array, ...]:
    """Returns the results of an instruction. The start of a collective lists its operands before its results."""
    if i.op.endswith('-start') and i.kind in COLLECTIVES and i.kind != 'all-reduce':
        return i.arrays[len(i.operands) : 2 * len(i.operands)]
    return i.arrays[:1] if i.op == 'custom-call' and 'gemm' in i.rest else i.arrays  # the other result is a workspace


def _group_size(rest: str) -> int:
    """Returns the number of devices in a group that exchanges data, or 0 for all devices."""
    if found := re.search(r'replica_groups=\[(\d+),(\d+)\]', rest):
        return int(found[2])
    if found := re.search(r'replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}', rest):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", found[2]))
    found = re.search(r'replica_groups=\{\{([\d,]*)\}', rest)
    return len(found[1].split(',')) if found else 2 * ('source_target_pairs' in rest)
