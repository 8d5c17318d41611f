"""The part of `launch.py` that sweeps, searches and starts jobs. Imports no JAX before it runs."""

import re
import types
from typing import Any

from absl import flags

from nplm_jax.apps.sweeps import launchers, sweep_flags
from nplm_jax.apps.sweeps.sweep_flags import (
    CONFIGS,
    GRID,
    JOBS,
    LAUNCHER,
    SEARCH,
    SLURM,
    STORAGE,
    SWEEP,
    VECTORIZE,
    is_search,
    is_sweep,
)
from nplm_jax.cli.launch_flags import DISTRIBUTED, MINUTES, PROCESSES
from nplm_jax.utils.errors import BadInput


class SweepExtension:
    """See `cli.launch_flags.Extension`."""

    flags: types.ModuleType = sweep_flags

    @property
    def needs_no_distributed(self) -> tuple[str, ...]:
        """See `Extension`: --launcher starts --processes, and a search numbers its processes."""
        return ('processes',) * bool(LAUNCHER.value) + ('process_id',) * is_search()

    @property
    def suffix(self) -> str:
        """See `Extension`."""
        kinds = {'search': is_search(), 'grid': GRID.value, 'sweep': SWEEP.value, 'configs': CONFIGS.value}
        return next((f'-{kind}' for kind, is_asked in kinds.items() if is_asked), '')

    @property
    def is_asked(self) -> bool:
        """See `Extension`."""
        return is_sweep() or is_search() or bool(LAUNCHER.value)

    @property
    def all_cores(self) -> bool:
        """See `Extension`."""
        return bool(VECTORIZE.value)

    def name_config(self, argv: list[str]) -> list[str]:
        """See `Extension`: --config names the first of --configs."""
        values = [word.partition('=')[2] for word in argv if re.fullmatch('--?configs=.*', word, re.DOTALL)]
        if not values:
            return argv
        if any(re.match('--?config(=|$)', word) for word in argv):
            raise BadInput('--configs', 'cannot be used with --config', value=values[-1])
        return [argv[0], f'--config={values[-1].partition(";")[0]}', *argv[1:]]

    def take_words(self, words: list[str]) -> bool:
        """See `Extension`: --grid model.m=10,30 model.h=20,60."""
        if GRID.value:
            GRID.value.extend(words)
        return bool(GRID.value)

    def check(self) -> None:
        """See `Extension`."""
        if STORAGE.value is not None and not is_search():
            raise BadInput('--storage', 'needs --search')
        for flag in (SWEEP, GRID, CONFIGS, VECTORIZE, DISTRIBUTED, PROCESSES, MINUTES) if is_search() else ():
            if flag.value:
                raise BadInput('--search', f'cannot be used with --{flag.name}', value=SEARCH.value)
        several: tuple[flags.FlagHolder[Any], ...] = SWEEP, GRID, CONFIGS, LAUNCHER
        for flag in several if MINUTES.value is not None else ():
            if flag.value:
                raise BadInput('--minutes', f'cannot be used with --{flag.name}', value=MINUTES.value)
        if SWEEP.value and GRID.value:
            raise BadInput('--sweep', 'cannot be used with --grid or KEY=VALUE; its points come from the config file')
        if CONFIGS.value is not None and (SWEEP.value or GRID.value):
            raise BadInput('--configs', 'cannot be used with --sweep, --grid or KEY=VALUE', value=CONFIGS.value)
        if VECTORIZE.value and (LAUNCHER.value or not is_sweep()):
            allowed = 'needs --sweep, --grid or --configs, and no --launcher, which starts a process for each point'
            raise BadInput('--vectorize', allowed)
        if is_sweep() and DISTRIBUTED.value:
            asked = next(flag.name for flag in (GRID, SWEEP, CONFIGS) if flag.value)
            raise BadInput(f'--{asked}', 'cannot be used with --distributed; start its points one by one')
        if LAUNCHER.value and DISTRIBUTED.value:
            allowed = 'cannot be used with --distributed; --processes=N starts all processes'
            raise BadInput('--launcher', allowed, value=LAUNCHER.value)
        if SLURM.value and LAUNCHER.value != 'slurm':
            raise BadInput('--slurm', 'needs --launcher=slurm', value=','.join(SLURM.value))
        launchers.parse_slurm_options(SLURM.value)
        if JOBS.value is not None and not ((is_sweep() or is_search()) and LAUNCHER.value):
            raise BadInput('--jobs', 'needs --sweep, --grid or --search, and --launcher', value=JOBS.value)

    def run(self, launch: Any) -> None:
        """See `Extension`."""
        from nplm_jax.apps.sweeps import launched

        launched.run(launch)


EXTENSION = SweepExtension()
