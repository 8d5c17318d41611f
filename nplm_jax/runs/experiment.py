"""Runs a single experiment from config to results."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ml_collections import ConfigDict

from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.runs import compatibility
from nplm_jax.runs.loading import Path, load
from nplm_jax.runs.session import open_session
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.runs.signals import interruptible
from nplm_jax.training.train import ShouldPrune, fit, never, train
from nplm_jax.utils.errors import NonFiniteError

__all__ = ['load', 'load_settings', 'run']
Config: TypeAlias = ConfigDict | Mapping[str, Any]


def load_settings(config: Config | Settings) -> Settings:
    """Converts a config to immutable settings, after checking its values and whether its components are compatible.

    Args:
        config: A ConfigDict, such as one from `configs/`, or its values as nested dictionaries. Settings are returned
            unchanged.

    Raises:
        BadInput: The config is invalid. The error names the key, its value and the allowed values.
    """
    if isinstance(config, Settings):
        return config
    settings = config_lib.from_config(config)
    compatibility.validate(settings)
    return settings


def run(
    config: Config | Settings,
    folder: Path,
    command: str = '',
    data: Dataset | SharedCorpus | None = None,
    should_prune: ShouldPrune = never,
    notes: set[str] | None = None,
) -> dict[str, Any]:
    """Trains or estimates a model and evaluates it. Resumes the run if its folder exists.

    In multi-process runs, every process must call this function. Only the first process writes files and returns
    results.

    Args:
        config: A ConfigDict, such as one from `configs/`, its values as nested dictionaries, or validated settings.
        folder: The folder of the run. A finished run is not trained again.
        command: The command line to record in results.json.
        data: The corpus, which several runs may share, or None to load the corpus of the config.
        should_prune: A function that returns whether to stop the run. It is called after each validation except the
            last.
        notes: Notes already printed by earlier runs, which this run does not repeat. The notes of this run are added to
            the set.

    Returns:
        The content of `results.json`.

    Raises:
        BadInput: The config, the folder, the text or the devices are invalid.
        training.train.Interrupted: SIGINT or SIGTERM arrived during training. The state is saved.
        training.train.Pruned: `should_prune` requested a stop. The state is saved.
        NonFiniteError: A loss, parameter or optimizer state is not finite.
    """
    settings = load_settings(config)
    corpus = data if isinstance(data, SharedCorpus) else SharedCorpus(settings, data)
    with open_session(settings, folder, command, corpus) as session:
        trained = None
        if made := session.training_run:
            with interruptible() as interrupted:
                try:
                    trained = fit(
                        train(made, session.store, session.reporter, interrupted, session.started, should_prune)
                    )
                except NonFiniteError as error:
                    raise session.explain(error) from None
        return session.finish(trained, notes)
