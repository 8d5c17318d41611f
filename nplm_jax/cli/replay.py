"""One update of a run made again: its loss, and the norm and the gradient's norm of each parameter.

    python -m nplm_jax.cli replay --workdir=runs/brown-mlp9 --step=1234

A run that stops at numbers that are not finite prints this line. Begins with the newest checkpoint before that update,
or with the first update where none is left, and changes nothing in the folder. Exit code 1 when a number is not finite,
0 when all are.
"""

import contextlib
import dataclasses
import sys

from nplm_jax import config as config_lib
from nplm_jax.cli import trained
from nplm_jax.models.registry import is_network
from nplm_jax.runs import loading, process, session, workdir
from nplm_jax.training import replay, schedule
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.text import markdown_table


def main() -> None:
    """Reads the flags, makes the update, prints what it is made of."""
    parser = trained.PlainParser(__doc__)
    parser.add_argument('--workdir', required=True, help='the folder of a run')
    parser.add_argument('--step', type=int, required=True, help='which update, counted from 1')
    flags = parser.parse_args()
    process.set_up_process()
    folder = expand('--workdir', flags.workdir)
    wanted = _on_what_is_there(workdir.read_settings(folder))
    require(is_network(wanted.model), '--workdir', flags.workdir, 'a count-based model has no updates')
    data = loading.prepare_recorded(wanted, folder)
    ended = loading.finished(folder)
    total = (ended or {}).get('updates') or schedule.make_schedule(wanted, data.train).total_steps
    require(1 <= flags.step <= total, '--step', flags.step, f'must be 1 to {total:,}, the updates of the run')
    with contextlib.closing(CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        update = replay.replay_update(wanted, data, store, flags.step)
    print(f'update {update.number:,}')
    print(*replay.describe(update), sep='\n')
    rows = [[name, f'{norm:.8g}', f'{update.gradient_norms[name]:.8g}'] for name, norm in update.norms.items()]
    print(markdown_table(['parameter', 'norm before', 'norm of gradient'], rows))
    if update.not_finite:
        print(f'{update.not_finite} is not finite')
        sys.exit(1)


def _on_what_is_there(wanted: config_lib.Settings) -> config_lib.Settings:
    """The run's devices, or one where there are fewer."""
    try:
        session.check_devices(wanted)
        return wanted
    except BadInput as error:
        print(f'{error}; on one device instead', file=sys.stderr)
        return dataclasses.replace(wanted, parallel=config_lib.ParallelSettings(1, 1, 'shard_map'))
