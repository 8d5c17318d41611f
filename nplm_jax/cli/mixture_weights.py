"""The weights of a mixture of runs: from the command line, or from the file that `nplm mix` wrote."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_json

ROUNDING = 0.005  # of a weight that is printed with two digits


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
    weights_1xM = np.array([weights], np.float64)
    close = bool((weights_1xM >= 0).all() and abs(weights_1xM.sum() - 1) <= ROUNDING * len(folders) + 1e-9)
    require(close, '--weights', text, 'must be 0 or more each, and sum to one (up to rounding to two digits)')
    return weights_1xM / weights_1xM.sum()


def _parse_numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(',')]
    except ValueError:
        raise BadInput(f'--weights={text!r}: must be numbers with commas between them, or a file') from None


def _read_file(text: str, folders: Sequence[str]) -> list[float]:
    """Returns the learned weights of a file of `nplm mix`, by the runs' folders, or by their names."""
    models = read_json(expand('--weights', text)).get('models')
    valid = isinstance(models, list) and all(_is_entry(model) for model in models)
    require(valid, '--weights', text, 'is no file that `nplm mix --output=FILE` wrote')
    assert isinstance(models, list)
    by_name = {model['name']: model['weight'] for model in models}
    by_folder = {model['folder']: model['weight'] for model in models if 'folder' in model}
    weights = []
    for folder in folders:
        path = os.path.realpath(expand('RUN', folder))
        weight = by_folder.get(path, by_name.get(os.path.basename(path)))
        if weight is None:
            raise BadInput(f'--weights={text!r}: has no weight for {folder}; it has {", ".join(by_name)}')
        weights.append(float(weight))
    require(len(models) == len(folders), '--weights', text, f'is of {len(models)} runs; give all: {", ".join(by_name)}')
    return weights


def _is_entry(model: Any) -> bool:
    return isinstance(model, Mapping) and isinstance(model.get('name'), str) and type(model.get('weight')) is float
