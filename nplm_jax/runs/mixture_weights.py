"""Reads mixture weights from the command line or from a file written by `nplm mix`."""

import re
from collections.abc import Sequence

import numpy as np

from nplm_jax.models.mixture import normalize_weights
from nplm_jax.reporting import catalog
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import finite_numbers, read_json


def read_weights(text: str, folders: Sequence[str]) -> np.ndarray:
    """Returns the float64 mixture weights of M runs, 1 x M. They sum to one.

    Args:
        text: The value of --weights: comma-separated numbers, or the path of a file written by `nplm mix`. '' stands
            for equal weights.
        folders: The folders of the runs.

    Raises:
        BadInput: The number of weights is wrong, the weights do not sum to one, or the file belongs to other runs.
    """
    require(not text or len(folders) > 1, '--weights', text, 'requires two or more runs')
    weights = [1 / len(folders)] * len(folders)
    if re.fullmatch(r'[-+0-9.eE, ]+', text):
        problem = 'must be comma-separated numbers or a file'
        weights = finite_numbers(text.split(','), '--weights', problem, text)
    elif text:
        weights = _read_file(text, folders)
    require(len(weights) == len(folders), '--weights', text, f'must contain one number per run ({len(folders)})')
    return normalize_weights('--weights', text, weights)


def _read_file(text: str, folders: Sequence[str]) -> list[float]:
    """Reads the weights of runs from a file written by `nplm mix`. The file identifies runs by their digests."""
    models = read_json(expand('--weights', text)).get('models')
    try:
        learned = {str(model['digest']): float(model['weight']) for model in models or ()}
        names = ', '.join(model['folder'] for model in models or ())
    except (KeyError, TypeError, ValueError):
        learned = {}
    require(bool(learned), '--weights', text, 'must be a file written by `nplm mix --output=FILE`')
    paths = map(catalog.expand_run, folders)
    digests = [catalog.digest(path) if path.is_dir() else '' for path in paths]  # an ARPA file has no digest
    for folder, digest in zip(folders, digests):
        known = f'contains no weight for the run {folder}, only for {names}'
        require(digest in learned, '--weights', text, known)
    require(
        len(learned) == len(folders),
        '--weights',
        text,
        f'contains weights for {len(learned)} runs; give all of these runs: {names}',
    )
    return [learned[digest] for digest in digests]
