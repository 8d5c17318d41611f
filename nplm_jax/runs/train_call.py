"""The function `nplm_jax.train`, which does what `nplm train` does, `--minutes` included."""

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
    """Trains or estimates one model and evaluates it, as `nplm train` does; a notebook shows the learning curve.

    Args:
        config: The name of a config and of its row, such as `brown:mlp9`, the path of a config file, or a ConfigDict.
        workdir: Output directory; None for `runs/` and the names of the config and of the changed keys. The same call
            resumes a run that was stopped, and a finished run is not trained again.
        changes: The values of flattened keys: `{'model.h': 50, 'seed': 2}`. See `override`.
        minutes: Minutes of training, for which the network that suits the text and the machine is chosen, as by
            `nplm train --minutes`; the config is then named, and defines `network` as `text` and `brown` do.
        plugins: Modules that may be imported, beside those of the parts that the config names: those of the models that
            `output.teacher` names.

    Returns:
        The trained model with its `folder` and its `results`, as `nplm_jax.load` returns it.

    Raises:
        BadInput: The config, the folder, the text or the devices cannot serve.
        training.train.Interrupted: SIGINT or SIGTERM came during training, and the state is saved.
        NonFiniteError: A number is not finite.
    """
    made, corpus = config_lib.override(load_config(config) if isinstance(config, str) else config, changes), None
    if minutes is not None:
        require(isinstance(config, str), 'minutes', minutes, 'needs a config by its name or path, such as text')
        time_budget.check_flags(minutes, changes)
    folder = expand('--workdir', workdir or f'{RUNS}/{default_name(made, changes, minutes)}')
    with trust(plugins):
        if minutes is not None and isinstance(config, str):
            made, corpus = time_budget.config_for_budget(made, find_config(config), changes, minutes, folder)
        with config_lib.trusting(config_lib.flatten(made)):
            experiment.run(made, folder, data=corpus)
            return load(folder)
