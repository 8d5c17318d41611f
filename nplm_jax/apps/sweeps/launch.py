"""Extends `launch.py` with sweeps, searches and jobs. JAX is imported only when the extension runs."""

import re
import types
from typing import Any, TypeAlias

from absl import flags

from nplm_jax.apps.sweeps import launchers
from nplm_jax.apps.sweeps import sweep_flags as asked
from nplm_jax.cli.launch_flags import DISTRIBUTED, HEARTBEAT, MINUTES, PROCESSES
from nplm_jax.utils.errors import BadInput, require

Flag: TypeAlias = flags.FlagHolder[Any]

_EXCLUDED: list[tuple[Flag, tuple[Flag, ...]]] = [
    (
        asked.SEARCH,
        (asked.SWEEP, asked.GRID, asked.CONFIGS, asked.VECTORIZE, DISTRIBUTED, PROCESSES, HEARTBEAT, MINUTES),
    ),
    (MINUTES, (asked.SWEEP, asked.GRID, asked.CONFIGS, asked.LAUNCHER)),
    (asked.SWEEP, (asked.GRID, asked.CONFIGS, DISTRIBUTED)),  # a grid may also be given by KEY=VALUE arguments
    (asked.CONFIGS, (asked.GRID, DISTRIBUTED)),
    (asked.GRID, (DISTRIBUTED,)),
    (asked.VECTORIZE, (asked.LAUNCHER,)),
    (asked.LAUNCHER, (DISTRIBUTED,)),  # a launcher starts all processes itself
]


def _is_given(flag: Flag) -> bool:
    """Returns whether a flag is given and selects something. The default of --sweep is not given (`nplm sweep`)."""
    return bool(flag.present) and flag.value is not None and flag.value is not False and flag.value != []


def _refuse(flag: Flag, problem: str) -> BadInput:
    shown = ','.join(flag.value) if isinstance(flag.value, list) else flag.value
    is_shown = shown is not True and flag.name != asked.STORAGE.name  # its value may contain a password
    return BadInput(f'--{flag.name}', problem, value=shown if is_shown else ...)


class SweepExtension:
    """See `cli.launch_flags.Extension`."""

    flags: types.ModuleType = asked

    @property
    def needs_no_distributed(self) -> tuple[str, ...]:
        """See `Extension`. --launcher accepts --processes and --heartbeat, and otherwise a search --process_id."""
        return ('processes', 'heartbeat') if asked.LAUNCHER.value else ('process_id',) * asked.is_search()

    @property
    def suffix(self) -> str:
        """See `Extension`."""
        selections = asked.SEARCH, asked.GRID, asked.SWEEP, asked.CONFIGS
        return next((f'-{flag.name}' for flag in selections if flag.value), '')

    @property
    def is_asked(self) -> bool:
        """See `Extension`."""
        return asked.is_sweep() or asked.is_search() or bool(asked.LAUNCHER.value)

    @property
    def all_cores(self) -> bool:
        """See `Extension`."""
        return bool(asked.VECTORIZE.value)

    def name_config(self, argv: list[str]) -> list[str]:
        """See `Extension`. Adds --config with the first config of --configs."""
        values = [word.partition('=')[2] for word in argv if re.fullmatch('--?configs=.*', word, re.DOTALL)]
        if not values:
            return argv
        has_config = any(re.match('--?config(=|$)', word) for word in argv)
        require(not has_config, '--configs', values[-1], 'cannot be used with --config')
        return [argv[0], f'--config={values[-1].partition(";")[0]}', *argv[1:]]

    def take_words(self, words: list[str]) -> bool:
        """See `Extension`. Accepts arguments such as model.m=10,30 after --grid, or in `nplm sweep`."""
        if is_taken := asked.is_sweep():
            flags.FLAGS['grid'].value = [*asked.GRID.value, *words]
            flags.FLAGS['grid'].present += 1
        return is_taken

    def check(self) -> None:
        """See `Extension`."""
        for flag, others in _EXCLUDED:
            for other in others if _is_given(flag) else ():
                if _is_given(other):
                    raise _refuse(flag, f'cannot be used with --{other.name}')
        many = asked.is_sweep() or asked.is_search()
        shared = DISTRIBUTED.value or (PROCESSES.value or 1) > 1
        for flag, is_met, needed in (
            (asked.STORAGE, asked.is_search(), '--search'),
            (asked.VECTORIZE, asked.is_sweep(), '--sweep, --grid or --configs'),
            (asked.SLURM, asked.LAUNCHER.value == 'slurm', '--launcher=slurm'),
            (HEARTBEAT, shared, '--processes=2 or more'),
            (asked.JOBS, asked.LAUNCHER.value and many, '--launcher and one of --sweep, --grid, --configs or --search'),
        ):
            if _is_given(flag) and not is_met:
                raise _refuse(flag, f'requires {needed}')
        launchers.parse_slurm_options(asked.SLURM.value)

    def run(self, launch: Any) -> None:
        """See `Extension`."""
        from nplm_jax.apps.sweeps import launched

        launched.run(launch)


EXTENSION = SweepExtension()
