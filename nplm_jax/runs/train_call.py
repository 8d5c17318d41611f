"""The function `nplm_jax.train`, the Python equivalent of `nplm train`."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import settings as config_lib
from nplm_jax.config.plugins import trust
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.reporting.catalog import RUNS
from nplm_jax.runs import experiment, time_budget
from nplm_jax.runs.command_line import find_config, load_config
from nplm_jax.runs.loading import Path, load
from nplm_jax.runs.run_names import default_name
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand


def train(
    config: str | ConfigDict,
    workdir: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    minutes: float | None = None,
    plugins: Sequence[str] = (),
) -> LoadedModel:
    """Trains or estimates a model and evaluates it, as `nplm train` does. Shows the learning curve in notebooks.

    Args:
        config: The name of a config with an optional preset, such as `brown:mlp9`, the path of a config file, or a
            ConfigDict.
        workdir: The output folder. The default is a folder in `runs/` named after the config and the changed keys.
            Repeating the call resumes a stopped run, or returns a finished run without training.
        changes: Values by flattened key, such as `{'model.h': 50, 'seed': 2}`. See `override`.
        minutes: The time budget in minutes, used to choose a network. See `time_budget`. `config` must then be the name
            or path of a config that defines `network`, such as `text` or `brown`.
        plugins: Additional modules that may be imported. Modules named in the config need not be listed, but plug-ins
            required by a model in `output.teacher` must be.

    Returns:
        The trained model with its `folder` and its `results`. See `nplm_jax.load`.

    Raises:
        BadInput: The config, the folder, the text or the devices are unusable.
        training.train.Interrupted: SIGINT or SIGTERM arrived during training. The state is saved.
        NonFiniteError: A loss, parameter or optimizer state is not finite.
    """
    made, corpus = config_lib.override(load_config(config) if isinstance(config, str) else config, changes), None
    if minutes is not None:
        require(isinstance(config, str), 'minutes', minutes, 'requires the name or path of a config, such as text')
        time_budget.check_flags(minutes, changes)
    folder = expand('--workdir', workdir or f'{RUNS}/{default_name(made, changes, minutes)}')
    with trust(plugins):
        if minutes is not None and isinstance(config, str):
            made, corpus = time_budget.config_for_budget(made, find_config(config), changes, minutes, folder)
        with config_lib.trusting(config_lib.flatten(made)):
            experiment.run(made, folder, data=corpus)
            return load(folder)
