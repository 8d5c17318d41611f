"""Trains multiple runs of one or more configs: in grids and searches, as SLURM jobs, or in one compiled program."""

COMMANDS = {'sweep': ('command', 'train and compare several configs or several values of config keys')}
LAUNCH = 'launch:EXTENSION'  # see `cli.launch_flags.Extension`
