"""Multiple runs of one or several configs: grids, searches, SLURM jobs and vectorized training."""

COMMANDS = {'sweep': ('command', 'train a config with several values of its keys, or several configs')}
LAUNCH = 'launch:EXTENSION'  # see `cli.launch_flags.Extension`
