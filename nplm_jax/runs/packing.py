"""Selects the files of a finished run that belong in a packed model."""

import pathlib

import numpy as np
from flax.traverse_util import flatten_dict

from nplm_jax.config.settings import user_files
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.ngram import archives, storage
from nplm_jax.reporting import card, catalog, packed
from nplm_jax.runs.loading import load
from nplm_jax.utils.io import write_atomically


def arrays_of(model: LanguageModel) -> dict[str, np.ndarray]:
    """Returns the arrays of a model by name: the parameters of a network, or the tables of a count-based model."""
    if isinstance(model, NeuralLanguageModel):
        return {name: np.asarray(array) for name, array in flatten_dict(dict(model.params), sep='.').items()}
    return storage.flatten(model)[1]


def packed_members(folder: pathlib.Path, scratch: pathlib.Path) -> dict[str, pathlib.Path]:
    """Selects the files of a finished run to include in its packed model. Returns their paths by archive member name.

    Args:
        folder: The folder of the run.
        scratch: A folder for temporary files, such as the parameters of a network.

    Raises:
        BadInput: The files of the run are damaged, or the code of its model is not installed.
    """
    loaded = load(folder)
    names = [catalog.CONFIG, catalog.CORPUS, catalog.VOCABULARY, catalog.RESULTS, *tokenizer_files.FILES]
    files = {name: folder / name for name in (*names, *user_files(loaded.settings), storage.MODEL_FILE)}
    members = {name: file for name, file in files.items() if file.exists()}
    if loaded.settings.is_neural:
        members[packed.PARAMETERS] = scratch / packed.PARAMETERS
        archives.write(scratch / packed.PARAMETERS, arrays_of(loaded.model), {})
    write_atomically(scratch / card.FILE, card.make(catalog.read_run(folder)))
    members[card.FILE] = scratch / card.FILE
    if catalog.is_finished(folder / catalog.SPELLING):
        (scratch / catalog.SPELLING).mkdir()
        spelling = packed_members(folder / catalog.SPELLING, scratch / catalog.SPELLING)
        members |= {f'{catalog.SPELLING}/{name}': file for name, file in spelling.items()}
    return members
