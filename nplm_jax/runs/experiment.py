"""Runs one experiment from config to results: what launch.py, sweeps and notebooks call."""

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
    """Checks and freezes a config: types, ranges, names, keys that nothing reads, and what the named parts cannot do.

    Args:
        config: A ConfigDict like those in `configs/`, or the dictionary of a config.json; or what this returned.

    Raises:
        BadInput: It names the key, the value and what is allowed.
    """
    if isinstance(config, Settings):
        return config
    settings = config_lib.from_config(config)
    compatibility.check(settings)
    return settings


def run(
    config: Config | Settings,
    folder: Path,
    command: str = '',
    data: Dataset | SharedCorpus | None = None,
    should_prune: ShouldPrune = never,
    notes: set[str] | None = None,
) -> dict[str, Any]:
    """Trains or estimates one model and evaluates it, or goes on where an earlier start of the same run ended.

    With several processes each calls this. All but the first train along, write nothing and return nothing.

    Args:
        config: A ConfigDict like those in `configs/`, the dictionary of a config.json, or checked settings.
        folder: Where the run's files lie. A finished run is not trained again.
        command: What results.json names as the command.
        data: The corpus, which runs may share; None reads the one that the config names.
        should_prune: Called after each validation; returns whether to stop, unless training is over.
        notes: Lines printed below earlier tables, which are not repeated; those of this run are added.

    Returns:
        What `results.json` holds.

    Raises:
        BadInput: The config, the folder, the text or the devices cannot serve.
        training.train.Interrupted: SIGINT or SIGTERM came during training, and the state is saved.
        training.train.Pruned: `should_prune` asked to stop, and the state is saved.
        NonFiniteError: A number is not finite.
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
