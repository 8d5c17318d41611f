"""Many runs of one config or of several: grids, searches, jobs of SLURM, points that train together."""

COMMANDS = {'sweep': ('command', 'train a config with several values of its keys')}
LAUNCH = 'launch:EXTENSION'  # see `cli.launch_flags.Extension`
