"""The weights of a mixture of runs: from the command line, or from the file that `nplm mix` wrote."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.runs import catalog
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_json


def read_weights(text: str, folders: Sequence[str]) -> np.ndarray:
    """Returns the weight of each run, float64, 1 x M; they sum to one.

    Args:
        text: The value of --weights: empty for equal weights, numbers, or the path of a file of `nplm mix`.
        folders: The folders of the runs.

    Raises:
        BadInput: There are not as many weights as runs, or they do not sum to one, or the file is of other runs.
    """
    require(not text or len(folders) > 1, '--weights', text, 'belongs to two runs or more')
    if not text:
        weights = [1 / len(folders)] * len(folders)
    elif re.fullmatch(r'[-+0-9.eE, ]+', text):
        weights = _parse_numbers(text)
    else:
        weights = _read_file(text, folders)
    require(len(weights) == len(folders), '--weights', text, f'must be {len(folders)} numbers, one a run')

    from nplm_jax.models.mixture import normalize_weights  # imports JAX

    return normalize_weights('--weights', text, weights)


def _parse_numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(',')]
    except ValueError:
        raise BadInput(f'--weights={text!r}: must be numbers with commas between them, or a file') from None


def _read_file(text: str, folders: Sequence[str]) -> list[float]:
    """Returns the learned weights of a file of `nplm mix`, by the digests of the runs."""
    models = read_json(expand('--weights', text)).get('models')
    valid = isinstance(models, list) and all(_is_entry(model) for model in models)
    require(valid, '--weights', text, 'is no file that `nplm mix --output=FILE` wrote')
    assert isinstance(models, list)
    learned = ', '.join(model['folder'] for model in models)
    weights, left = [], list(models)
    for folder in folders:
        run = catalog.digest(catalog.expand_run(folder))
        model = next((model for model in left if model['digest'] == run), None)
        if model is None:
            raise BadInput(f'--weights={text!r}: has no weight for the run in {folder}; it has those of {learned}')
        left.remove(model)
        weights.append(model['weight'])
    require(not left, '--weights', text, f'is of {len(models)} runs; give all: {learned}')
    return weights


def _is_entry(model: Any) -> bool:
    if not isinstance(model, Mapping) or type(model.get('weight')) is not float:
        return False
    return isinstance(model.get('folder'), str) and isinstance(model.get('digest'), str)
