"""Fault plans for multi-process runs. Each start has one fault, and the last start finishes the run."""

import contextlib
import functools
import pathlib
import random
import signal
from collections.abc import Callable, Iterator

from tools.faults import disks, groups, many

Hurt = Callable[[pathlib.Path, groups.Base, random.Random], dict | None]
WHO = ('first', 'another', 'all')
PLACES = ('files', 'compile', 'step', 'evaluation', 'checkpoint', 'step', 'checkpoint', 'figure', 'mixture', 'result')


def _act(function: Callable[..., dict | None], *arguments: object) -> Hurt:
    return lambda folder, base, rng: function(folder, base, *arguments[:2], rng, *arguments[2:])


def _kills(shift: int, places: tuple[str, ...] = PLACES) -> list[Hurt]:
    """Returns a kill -9 in each phase. In turn, it hits the first process, another process or all processes."""
    return [_act(many.signalled, WHO[(i + shift) % 3], phase, signal.SIGKILL) for i, phase in enumerate(places)]


def _stops(shift: int, places: tuple[str, ...], deadlines: tuple[float, ...] = ()) -> list[Hurt]:
    """Returns a SIGTERM in each phase, either with enough time to stop or with a deadline followed by kill -9."""
    deadlines = deadlines or (0,) * len(places)
    return [
        _act(many.signalled, WHO[(i + shift) % 3], phase, signal.SIGTERM, deadline)
        for i, (phase, deadline) in enumerate(zip(places, deadlines))
    ]


def _frozen(*starts: tuple[str, str, str]) -> list[Hurt]:
    return [_act(many.stopped, *start) for start in starts]


def _cut(*starts: tuple[str, str, str]) -> list[Hurt]:
    return [_act(many.coordinator_cut, *start) for start in starts]


def _cable(*starts: tuple[str, str, str]) -> list[Hurt]:
    return [_act(many.cable, *start) for start in starts]


def _clock(who: str, phase: str, hours: int) -> Hurt:
    return _act(many.clock, who, phase, hours * many.HOUR)


def _two(same_port: bool) -> Hurt:
    return lambda folder, base, rng: many.two_groups(folder, base, same_port, rng)


def _other(who: str, how: str) -> Hurt:
    return lambda folder, base, rng: many.another_input(folder, base, who, rng, how)


def _disk(*phases: str) -> list[Hurt]:
    return [functools.partial(_full, phase) for phase in phases]


def _full(phase: str, folder: pathlib.Path, base: groups.Base, rng: random.Random) -> dict | None:
    return many.full_disk(folder, base, phase, rng)


PLANS: dict[str, list[list[Hurt]]] = {
    'pairs': [
        [*_kills(0), _clock('another', 'result', 1)],
        _frozen(('another', 'step', 'hangs'), ('first', 'evaluation', 'hangs'), ('another', 'compile', 'goes on late'),
                ('another', 'step', 'goes on')),
        _stops(0, ('compile', 'step', 'evaluation', 'checkpoint', 'figure', 'mixture')),
        [*_stops(2, ('step', 'checkpoint', 'evaluation', 'step'), (0.1, 0.05, 1, 0.4)), _clock('first', 'step', -1)],
        [*_kills(1), _clock('first', 'result', 1)],
        _frozen(('first', 'checkpoint', 'hangs'), ('first', 'step', 'goes on late'),
                ('first', 'checkpoint', 'goes on')),
        _frozen(('another', 'figure', 'hangs'), ('first', 'figure', 'hangs'), ('first', 'mixture', 'goes on')),
        _stops(1, ('compile', 'step', 'evaluation', 'checkpoint', 'figure', 'result')),
        _kills(2),
        _kills(0, ('mixture', 'result')),
    ],
    'cuts': [
        _cut(('another', 'step', 'silent'), ('another', 'evaluation', 'closed'), ('another', 'checkpoint', 'closed'),
             ('another', 'step', 'for a while')),
        _cable(('another', 'step', 'for good'), ('first', 'step', 'for good'), ('another', 'checkpoint', 'for good'),
               ('another', 'step', 'for a while')),
        [_other('another', 'text'), _other('another', 'config'), *_kills(0, ('checkpoint', 'checkpoint')),
         _other('another', 'text'), _other('first', 'config'), _other('first', 'text'), _other('another', 'config')],
        [_two(same_port=False)],
        [_two(same_port=True)],
        _disk('compile', 'step', 'evaluation', 'checkpoint', 'figure', 'mixture', 'result'),
        _cut(('another', 'compile', 'silent'), ('another', 'figure', 'silent'), ('another', 'result', 'closed')),
        _cable(('first', 'evaluation', 'for good'), ('another', 'figure', 'for good'),
               ('first', 'checkpoint', 'for a while')),
        [_clock('another', 'step', -1)],
        [_clock('first', 'checkpoint', 1)],
        [_clock('another', 'evaluation', 1)],
        [_two(same_port=False)],
        [_other('first', 'text'), _other('first', 'config')],
    ],
    'fours': [
        _kills(1, PLACES[1:]),
        _frozen(('another', 'step', 'hangs'), ('first', 'step', 'hangs'), ('another', 'checkpoint', 'goes on late'),
                ('another', 'evaluation', 'goes on')),
        [*_stops(1, ('step', 'evaluation', 'checkpoint')), *_stops(2, ('step',), (0.2,)), _clock('another', 'step', 1)],
        [*_cut(('another', 'step', 'silent'), ('another', 'step', 'closed')), *_cable(('another', 'step', 'for good')),
         *_cable(('first', 'step', 'for a while'))],
        [_other('another', 'text'), _other('another', 'config'), _two(same_port=False)],
        _disk('step', 'checkpoint', 'figure'),
        _kills(0, ('figure', 'result')),
    ],
}  # fmt: skip


def chain(folder: pathlib.Path, base: groups.Base, hurts: list[Hurt], rng: random.Random) -> list[dict]:
    """Injects each fault in turn into one run, finishes it and compares it with a run without faults."""
    records = [record for hurt in hurts if (record := hurt(folder, base, rng))]
    same = many.finished(folder, base)
    return [{**record, 'same': same} for record in records]


def measure(kind: str, folder: pathlib.Path, done: set[str]) -> Iterator[dict]:
    """Yields the records of the chains of a kind that are not in `done`. Each record names its chain."""
    base = groups.unbroken(folder / 'base', 4 if kind == 'fours' else 2)
    for number, hurts in enumerate(PLANS[kind]):
        if (name := f'{kind}.{number}') in done:
            continue
        place, fills = folder / f'chain{number}', isinstance(hurts[0], functools.partial)
        with disks.small_disk(place) if fills else contextlib.nullcontext():
            place.mkdir(exist_ok=True)
            for record in chain(place / 'run', base, hurts, random.Random(name)):
                yield {'chain': name, **record}
