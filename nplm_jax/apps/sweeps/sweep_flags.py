"""Defines the flags for sweeps, searches and jobs. This module does not import JAX."""

from absl import flags

CONFIGS = flags.DEFINE_string(
    'configs', None, 'Configs to compare, separated by semicolons, such as brown:mlp9;brown:lstm.'
)
SWEEP = flags.DEFINE_boolean('sweep', False, "Train every point that the config file's sweep() yields.")
GRID = flags.DEFINE_multi_string('grid', [], 'Config key and the values to compare, as KEY=VALUE,VALUE,...')
VECTORIZE = flags.DEFINE_boolean(
    'vectorize',
    False,
    'Use jax.vmap to train sweep points whose parameters have the same shapes in a single program.',
)
LAUNCHER = flags.DEFINE_enum(
    'launcher',
    None,
    ['local', 'slurm'],
    'Run jobs as processes on this machine (local) or on SLURM (slurm); default: run in this process.',
)
SLURM = flags.DEFINE_list('slurm', [], 'Options of the SLURM jobs, separated by commas, such as partition=gpu,time=60.')
JOBS = flags.DEFINE_integer(
    'jobs', None, 'Maximum number of concurrent points or search workers; default: all points on SLURM, otherwise 1.', 1
)
SEARCH = flags.DEFINE_integer(
    'search', None, "Run trials of the config file's search(trial) until this many are finished.", 1
)
STORAGE = flags.DEFINE_string(
    'storage',
    None,
    'PostgreSQL URL of the storage for --search; default: $NPLM_STORAGE if set, otherwise a SQLite file in --workdir.',
)


def is_sweep() -> bool:
    """Returns whether the flags select a sweep."""
    return SWEEP.value or bool(GRID.value) or CONFIGS.value is not None


def is_search() -> bool:
    """Returns whether the flags select a search."""
    return SEARCH.value is not None
