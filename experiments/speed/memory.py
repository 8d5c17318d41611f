"""Peak memory of one contestant, in a process of its own: what race.py starts.

    python -m experiments.speed.memory --row=mlp9 --contestant=ours --precision=float32 --batch=512
    python -m experiments.speed.memory --row=large --batch=1024    |V| = 262,144, h = 300

Prints one line of JSON, in bytes: `start`, held before the contestant was made (the interpreter, its libraries and the
problem's arrays), and `peak`, the most held in a turn after the first. On an accelerator the libraries' own counts of
its memory, `start` zero.
"""

from __future__ import annotations

import json
import pathlib
import re

import jax
from absl import app, flags

from experiments.speed import contestants
from nplm_jax.runs import provenance

_ROW = flags.DEFINE_enum('row', 'mlp9', [*contestants.ROWS, contestants.LARGE], 'The network.')
_CONTESTANT = flags.DEFINE_enum('contestant', 'ours', contestants.NAMES, 'Who.')
_PRECISION = flags.DEFINE_enum('precision', 'float32', contestants.PRECISIONS, 'Of its matrix products.')
_BATCH = flags.DEFINE_integer('batch', 512, 'Words an update.')
_BLOCK = flags.DEFINE_integer('block_size', 0, "Examples that ours takes at once; the config's when 0.")
_STATUS = pathlib.Path('/proc/self/status')


def _held(field: str) -> int:
    """VmRSS, held now, or VmHWM, the most so far; ru_maxrss off Linux (on it, that may be the parent's)."""
    if not _STATUS.exists():
        return provenance.peak_memory()
    return int(re.search(rf'{field}:\s+(\d+) kB', _STATUS.read_text())[1]) * 1024


def _forget_peak() -> None:
    """Lets VmHWM start again from what is held now, where the system allows it."""
    try:
        pathlib.Path('/proc/self/clear_refs').write_text('5')
    except OSError:
        pass


def measure(name: str, problem: contestants.Problem, precision: str) -> dict[str, int]:
    """Bytes at the start and at the peak of this process."""
    make = contestants.find(name)
    start = _held('VmRSS')
    turn = make(problem, precision)
    turn()
    _forget_peak()
    turn()
    if name.startswith('torch'):
        import torch  # noqa: PLC0415 (an optional package)

        if torch.cuda.is_available():
            return {'start': 0, 'peak': torch.cuda.max_memory_allocated()}
    elif jax.default_backend() != 'cpu':
        return {'start': 0, 'peak': jax.devices()[0].memory_stats()['peak_bytes_in_use']}
    return {'start': start, 'peak': _held('VmHWM')}


def main(_) -> None:
    """Measures one contestant."""
    contestants.set_up()
    large = (contestants.large, 2**18)
    make_config, V = large if _ROW.value == contestants.LARGE else contestants.ROWS[_ROW.value]
    problem = contestants.make_problem(make_config(), V, _BATCH.value, S=4, turns=2, block_size=_BLOCK.value)
    print(json.dumps(measure(_CONTESTANT.value, problem, _PRECISION.value)))


if __name__ == '__main__':
    app.run(main)
