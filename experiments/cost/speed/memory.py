"""Measures the peak memory of a single contestant. race.py starts this program once for each contestant.

    python -m experiments.cost.speed.memory --row=mlp9 --contestant=ours --precision=float32 --batch=512
    python -m experiments.cost.speed.memory --row=large --batch=1024    |V| = 262,144, h = 300

Prints one line of JSON, in bytes. `start` is the memory of the process before the contestant is created, that is, of
the interpreter, its libraries and the problem's arrays. `peak` is the maximum during a turn after the first. On an
accelerator, `peak` is the accelerator memory that the library reports, and `start` is zero.
"""

from __future__ import annotations

import json
import pathlib
import re

import jax

from experiments import study
from experiments.cost.speed import contestants, problem
from nplm_jax.reporting import provenance

_STATUS = pathlib.Path('/proc/self/status')


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('--row', default='mlp9', choices=[*problem.ROWS, problem.LARGE], help='network to train')
    parser.add_argument('--contestant', default='ours', choices=contestants.NAMES, help='contestant to measure')
    parser.add_argument(
        '--precision', default='float32', choices=problem.PRECISIONS, help='precision of matrix products'
    )
    parser.add_count('--batch', 512, 'number of words per update')
    parser.add_count(
        '--block_size',
        0,
        'number of examples per block of scores in nplm-jax; 0 means the value in the config',
        least=0,
    )


def resident(field: str) -> int:
    """Returns VmRSS (current) or VmHWM (peak so far) in bytes.

    On systems other than Linux, returns ru_maxrss, which on Linux may be the value of the parent process.
    """
    if not _STATUS.exists():
        return provenance.peak_memory()
    return int(re.findall(rf'{field}:\s+(\d+) kB', _STATUS.read_text())[0]) * 1024


def _reset_peak() -> None:
    """Resets VmHWM to VmRSS if the system allows it."""
    try:
        pathlib.Path('/proc/self/clear_refs').write_text('5')
    except OSError:
        pass


def measure(name: str, race: problem.Problem, precision: str) -> dict[str, int]:
    """Returns the memory of this process at the start and at its peak, in bytes."""
    make = contestants.find(name)
    start = resident('VmRSS')
    turn = make(race, precision)
    turn()
    _reset_peak()
    turn()
    if name.startswith('torch'):
        import torch  # noqa: PLC0415 (an optional package)

        if torch.cuda.is_available():
            return {'start': 0, 'peak': torch.cuda.max_memory_allocated()}
    elif jax.default_backend() != 'cpu':
        return {'start': 0, 'peak': jax.devices()[0].memory_stats()['peak_bytes_in_use']}
    return {'start': start, 'peak': resident('VmHWM')}


def main(flags: study.Flags) -> None:
    """Measures one contestant."""
    problem.set_up()
    make_config, V = {**problem.ROWS, problem.LARGE: (problem.large, 2**18)}[flags.row]
    race = problem.make_problem(make_config(), V, flags.batch, S=4, turns=2, block_size=flags.block_size)
    print(json.dumps(measure(flags.contestant, race, flags.precision)))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
