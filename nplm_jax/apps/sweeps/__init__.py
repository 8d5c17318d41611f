"""Trains multiple runs of one or more configs: grids, searches, SLURM jobs and vectorized training."""

COMMANDS = {'sweep': ('command', 'train and compare several configs or several values of config keys')}
LAUNCH = 'launch:EXTENSION'  # see `cli.launch_flags.Extension`
