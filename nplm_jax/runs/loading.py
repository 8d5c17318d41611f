"""Loads the models and corpora of existing runs."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax

from nplm_jax.config import settings as config_lib
from nplm_jax.config.plugins import trust
from nplm_jax.config.settings import Settings
from nplm_jax.data import corpora, dataset, encoding, vocabulary
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.distributed import jax_settings
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.ngram import archives, storage
from nplm_jax.reporting import catalog, packed
from nplm_jax.runs import estimation, run_inputs, workdir
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import BadInput, require

if TYPE_CHECKING:
    from nplm_jax.models.network import Network
    from nplm_jax.models.neural import NeuralLanguageModel
    from nplm_jax.outputs.output_layer import Params

Path: TypeAlias = str | os.PathLike[str]


def load(folder: Path, plugins: Sequence[str] = ()) -> LoadedModel:
    """Loads the best model of a run folder, or a packed model, with its settings and vocabulary.

    Reads only the parameters, not the corpus or training states. Warns on stderr if the code of a plug-in has changed
    since training.

    Args:
        folder: The run folder or the packed model.
        plugins: Modules that may be imported if the run names a body, an output layer or a tokenizer in them.

    Raises:
        BadInput: The folder contains no run, files are missing or damaged, the model family is not installed, or the
            run requires a plug-in from a module not in `plugins`. For a network, BadInput is also raised if the network
            has not been validated yet or if JAX settings are invalid.
    """
    with trust(plugins):
        return load_allowed(folder)


def load_allowed(folder: Path, before_validation: bool = False) -> LoadedModel:
    """Loads a run in the same way as `load`, but only with plug-ins that have already been allowed.

    Args:
        folder: The run folder or the packed model.
        before_validation: See `load_network`.
    """
    name, folder = os.path.basename(os.path.abspath(folder)), catalog.expand_run(folder)
    settings = workdir.read_settings(folder)
    words = workdir.read_vocabulary(folder)
    results = catalog.finished(folder)
    code = run_inputs.code_digests(settings, config_lib.LOADED_PLUGINS)
    if code and (change := run_inputs.difference(folder, settings, code)):
        print(f'warning: {folder}: {change.partition("; ")[0]}; the results may differ', file=sys.stderr)
    if settings.is_neural:
        model, _ = load_network(folder, settings, words, before_validation)
        return LoadedModel(settings, words, model, folder.absolute(), results, name)
    if (file := folder / storage.MODEL_FILE).exists():
        return LoadedModel(settings, words, storage.load(file, len(words)), folder.absolute(), results, name)
    if source := (results or {}).get('imported'):
        raise BadInput(file, f'is missing; run `nplm import` again on {source}')
    raise BadInput(file, 'is missing; run the training command again')


def load_teachers(settings: Settings, folder: pathlib.Path) -> list[LoadedModel]:
    """Loads the teachers named by `output.teacher`. They may use the plug-ins of the student.

    Args:
        settings: The settings of the student.
        folder: The folder of the student.

    Raises:
        BadInput: A teacher is the student itself, is not finished, is not a network, or cannot be loaded.
    """
    if not (value := run_inputs.teacher_of(settings)):
        return []
    for name in catalog.split_names(value):
        is_student = catalog.exists(name) and catalog.expand_run(name).resolve() == folder.resolve()
        require(not is_student, run_inputs.TEACHER, value, f'must not name --workdir={folder}, the student itself')
    teachers: list[LoadedModel] = []
    for path in catalog.split_runs(run_inputs.TEACHER, value):
        try:
            with config_lib.trusting_settings(settings):
                found = workdir.read_settings(path)
                teachers += [load(path)] if found.is_neural else []
        except BadInput as error:
            raise BadInput(run_inputs.TEACHER, f'{path} cannot be loaded ({error})', value=value) from None
        allowed = f'must name networks; {path} is a count-based model ({found.model.name})'
        require(found.is_neural, run_inputs.TEACHER, value, allowed)
    return teachers


def check_words(settings: Settings, teachers: Sequence[LoadedModel], words: vocabulary.Vocabulary) -> None:
    """Raises BadInput unless teachers and student have the same vocabulary and kind of context.

    Args:
        settings: The settings of the student.
        teachers: The result of `load_teachers`.
        words: The vocabulary of the student.
    """
    for teacher in teachers:
        difference = teacher.vocabulary.difference(words, 'this run')
        allowed = f'{teacher.folder} cannot teach this run: {difference}'
        require(not difference, run_inputs.TEACHER, run_inputs.teacher_of(settings), allowed)
        contexts = settings.corpus.context, teacher.settings.corpus.context
        allowed = f'must be {contexts[1]}, as in the teacher {teacher.folder}'
        require(len({context == 'line' for context in contexts}) == 1, 'corpus.context', contexts[0], allowed)


def load_network(
    folder: pathlib.Path, settings: Settings, words: vocabulary.Vocabulary, before_validation: bool = False
) -> tuple[NeuralLanguageModel, dict[str, Any] | None]:
    """Loads the network of a run with its best parameters, and the training progress recorded in its checkpoint.

    The progress is a dictionary with the fields of `milestones.Progress`, or None for a packed model. For errors, see
    `load`.

    Args:
        folder: The run folder or the unpacked model.
        settings: The settings of the run.
        words: The vocabulary of the run.
        before_validation: Whether to return the initial parameters of a network that has not been validated yet,
            instead of raising BadInput.
    """
    # Importing Orbax takes a second, and count-based models do not need it.
    from nplm_jax.models.neural import NeuralLanguageModel  # noqa: PLC0415
    from nplm_jax.training import checkpoints  # noqa: PLC0415

    jax_settings.require_pinned()
    is_packed = (folder / packed.PARAMETERS).exists()
    if not (is_packed or (folder / 'checkpoints').is_dir()):
        raise BadInput(folder, 'has no checkpoint yet')
    network, params = example_parameters(folder, settings, words)
    if is_packed:
        return NeuralLanguageModel(network, _read_parameters(folder / packed.PARAMETERS, params)), None
    with contextlib.closing(checkpoints.CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        best, progress = store.restore_best(params)
    if not progress.get('finished') and catalog.finished(folder) is not None:
        problem = f'the last checkpoint is damaged; delete {catalog.RESULTS} and repeat the training command'
        raise BadInput(folder / 'checkpoints', problem)
    if progress.get('best_valid_nll') == math.inf and not before_validation:
        raise BadInput(folder, 'has no finite validation loss yet; continue training')
    return NeuralLanguageModel(network, best), progress


def _read_parameters(path: pathlib.Path, example: Params) -> Params:
    """Reads the parameters of a packed model. Raises BadInput unless the shapes and dtypes equal those of `example`."""
    from flax.traverse_util import flatten_dict, unflatten_dict  # noqa: PLC0415 (importing flax takes half a second)

    arrays, expected = archives.read(path)[0], flatten_dict(dict(example), sep='.')
    for name in sorted(arrays.keys() | expected.keys()):
        found, wanted = arrays.get(name), expected.get(name)
        if found is None or wanted is None or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            raise BadInput(path, f'the shape or dtype of {name} differs from the network in {catalog.CONFIG}')
    return unflatten_dict({name: jax.numpy.asarray(array) for name, array in arrays.items()}, sep='.')


def example_parameters(
    folder: pathlib.Path, settings: Settings, words: vocabulary.Vocabulary
) -> tuple[Network, Params]:
    """Returns the network of a run, and the shapes and dtypes of its parameters.

    Raises:
        BadInput: The parameters exceed the memory of this machine.
    """
    network = network_from_settings(settings, words)
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    _check_memory(folder, params)
    return network, params


def _check_memory(folder: pathlib.Path, params: Params) -> None:
    """Raises BadInput if parameters with the shapes of `params` would exceed the memory of this machine.

    Checkpoints compress zeros, so a small folder may contain parameters of any size.
    """
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(params))
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    if size > memory:
        sizes = f'{size / 1e9:,.0f} GB, but this machine has {memory / 1e9:,.0f} GB of memory'
        raise BadInput(folder, f'the network requires {sizes}')


def load_dataset(run: Settings | Path, tokenizer: Tokenizer | None = None) -> dataset.Dataset:
    """Loads the corpus of a run, or the corpus described by settings. See `corpora.load`.

    The corpus is either a single stream or divided into lines, depending on `corpus.context`.

    Args:
        run: The folder of a run, or settings.
        tokenizer: A tokenizer trained on this corpus, or None to create a tokenizer from the settings. The tokenizer is
            ignored if `run` is a folder, because the folder contains the tokenizer.

    Raises:
        BadInput: The text cannot be read, or has changed since the run was started.
    """
    if not isinstance(run, Settings):
        return prepare_recorded(workdir.read_settings(catalog.expand_run(run)), run)
    return estimation.read(run, load_stream(run, tokenizer))


def load_stream(settings: Settings, tokenizer: Tokenizer | None = None) -> dataset.Dataset:
    """Loads the corpus described by `corpus.*` as a stream. See `load_dataset`."""
    corpus = corpora.load(settings.corpus, tokenizer)
    return encoding.build_dataset(corpus, encoding.build_vocabulary(corpus, settings.corpus))


def prepare_recorded(settings: Settings, *folders: Path) -> dataset.Dataset:
    """Rereads the corpus shared by existing runs, in the form that the first run requires.

    Args:
        settings: The settings of the first run.
        *folders: The folders of the runs, all trained on the same corpus.

    Raises:
        BadInput: The text has changed since a run was started.
    """
    with config_lib.trusting_settings(settings):
        tokenizer = workdir.read_vocabulary(catalog.expand_run(folders[0])).tokenizer
    data = load_stream(settings, tokenizer)
    text, code = run_inputs.text_digest(data), run_inputs.code_digests(settings, ('corpus.name', 'corpus.tokens'))
    for folder in folders:
        path = catalog.expand_run(folder)
        if run_inputs.difference(path, settings, text):
            changed = run_inputs.difference(path, settings, {**code, **text})
            require(not changed, 'RUN', str(path), changed)
    return estimation.read(settings, data)
