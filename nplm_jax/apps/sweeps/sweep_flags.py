"""The flags of sweeps, searches and jobs. Imports no JAX."""

from absl import flags

CONFIGS = flags.DEFINE_string(
    'configs', None, 'Configs to compare, separated by semicolons, such as brown:mlp9;brown:lstm.'
)
SWEEP = flags.DEFINE_boolean('sweep', False, "Run every point yielded by the config file's sweep().")
GRID = flags.DEFINE_multi_string('grid', [], 'KEY=VALUE,VALUE,...: run every combination of values; repeatable.')
VECTORIZE = flags.DEFINE_boolean('vectorize', False, 'Train sweep points of equal shapes together with jax.vmap.')
LAUNCHER = flags.DEFINE_enum('launcher', None, ['local', 'slurm'], 'Run as jobs; default: in this process.')
SLURM = flags.DEFINE_list('slurm', [], 'SLURM options, such as partition=gpu,time=60.')
JOBS = flags.DEFINE_integer(
    'jobs', None, 'Maximum number of concurrent points or search workers; default: all points on SLURM, else 1.', 1
)
SEARCH = flags.DEFINE_integer('search', None, "Run trials of the config file's search(trial) until N are finished.", 1)
STORAGE = flags.DEFINE_string(
    'storage', None, 'PostgreSQL URL for --search; default: $NPLM_STORAGE, else a SQLite file in --workdir.'
)


def is_sweep() -> bool:
    """Returns whether the flags select a sweep."""
    return SWEEP.value or bool(GRID.value) or CONFIGS.value is not None


def is_search() -> bool:
    """Returns whether the flags select a search."""
    return SEARCH.value is not None
