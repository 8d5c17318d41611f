"""Run one experiment or a sweep.

    python launch.py --config=configs/brown.py:mlp9 [--workdir=DIR] [--config.model.h=50 ...]

--config.KEY=VALUE sets a key; --print_config prints every key with its value, default and meaning, and exits.
--grid=model.m=10,30 --grid=model.h=20,60 runs every combination of these values, each in its own folder, prints a table
and draws a figure; --sweep runs every point that the config file's sweep() yields.
--search=40 runs trials of the config file's search(trial) until 40 are finished; Optuna chooses and prunes the trials.
--vectorize uses jax.vmap to train together the points of a sweep that differ only in seed, learning rate or decay.
--distributed trains with several processes; start this command once for each process.
--launcher=slurm submits the run, or each point of the sweep, as a SLURM job and waits for the jobs;
--launcher=local starts them as processes on this machine.
The same command resumes a run that was stopped. Exit codes: 0 (finished), 1 (failed, or another process was lost), 2
(invalid input), and 130 (Ctrl-C) or 143 (SIGTERM) if the run was stopped and all progress was saved.
"""

import functools
import pathlib

from absl import app, flags

from nplm_jax.cli import launch

flags.adopt_module_key_flags(launch)  # --help lists them

if __name__ == '__main__':
    main = functools.partial(launch.main, program=(str(pathlib.Path(__file__)),))
    app.run(main, flags_parser=launch.parse_flags)
