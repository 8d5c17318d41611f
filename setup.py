"""Puts the configs into wheels, as nplm_jax/configs; pyproject.toml has everything else."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Copies configs/ beside the modules of the package."""

    def run(self) -> None:
        """Builds the package."""
        super().run()
        if not self.editable_mode:
            folder = pathlib.Path(self.build_lib) / 'nplm_jax' / 'configs'
            shutil.copytree('configs', folder, ignore=shutil.ignore_patterns('__pycache__'), dirs_exist_ok=True)


setup(cmdclass={'build_py': BuildWithConfigs})
