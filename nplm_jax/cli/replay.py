"""One repeated update of a run: its loss, and the norm of each parameter and of its gradient.

    nplm replay runs/brown-mlp9 --step=1234

A run that stops at numbers that are not finite prints this command. It starts from the newest checkpoint before that
update, or from the first update, and changes nothing in the folder. Exit code 1 if a number is not finite, else 0.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Sequence

from nplm_jax.cli.parser import Parser
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.text import markdown_table


def main(argv: Sequence[str]) -> None:
    """Makes the update again and prints its numbers."""
    parser = Parser('replay', __doc__)
    parser.add_runs(1)
    parser.add_argument('--step', type=int, required=True, help='number of the update, from 1; required')
    flags = parser.parse_args(argv)

    import jax

    from nplm_jax.config import ParallelSettings
    from nplm_jax.models.registry import is_network
    from nplm_jax.runs import loading, process, session, workdir
    from nplm_jax.training import loop, replay, step
    from nplm_jax.training.checkpoints import CheckpointStore

    process.set_up_process()
    folder = expand('--workdir', flags.workdir[0])
    settings = workdir.read_settings(folder)
    require(is_network(settings.model), 'RUN', flags.workdir[0], 'a count-based model has no updates')
    try:
        session.check_devices(settings)
    except BadInput as error:  # the run had more devices than this machine has
        print(f'{error}; on one device instead', file=sys.stderr)
        settings = dataclasses.replace(settings, parallel=ParallelSettings(1, 1, 'shard_map'))
    data = loading.prepare_recorded(settings, folder)
    results = loading.finished(folder) or {}
    run = loop.prepare_run(settings, data)
    state = jax.eval_shape(lambda: step.init_state(run.program, run.inputs.hyperparameters))
    loading.check_memory(folder, state, 'the training state of its network')
    total = results.get('updates') or run.schedule.total_steps
    require(1 <= flags.step <= total, '--step', flags.step, f'must be 1 to {total:,}, the updates of the run')
    with contextlib.closing(CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        update = replay.replay_update(run, store, flags.step)
    print(f'update {update.number:,}')
    print(*replay.describe(update), sep='\n')
    rows = [[name, f'{norm:.8g}', f'{update.gradient_norms[name]:.8g}'] for name, norm in update.norms.items()]
    print(markdown_table(['parameter', 'norm before', 'norm of gradient'], rows))
    if update.non_finite:
        print(f'{update.non_finite} is not finite')
        sys.exit(1)
