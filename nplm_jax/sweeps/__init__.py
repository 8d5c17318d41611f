"""Several runs from one config: grids, searches, SLURM jobs, and `--minutes`."""
