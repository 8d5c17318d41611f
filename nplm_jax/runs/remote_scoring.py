"""Scores long texts on cluster workers. Results do not depend on the number of workers.

A text is divided into chunks of a fixed number of words. Each task reads the file of a chunk, which includes the
context before the chunk, and writes the results for each line. Each worker process loads the model once, from the
folders of its runs. The files of chunks and results are in the folder `scores` of the cache, and are deleted after the
results have been read.

Dims: T words of a stream, B contexts, N words of a context.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import pickle
import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

import jax
import jaxlib
import numpy as np

from nplm_jax.config import plugins
from nplm_jax.config.settings import LOADED_PLUGINS, plugins_of, user_files
from nplm_jax.data import prepared_texts
from nplm_jax.data.stream import Span
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.executors import workers
from nplm_jax.executors.jobs import Job
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture import ContextBins, Mixture
from nplm_jax.ngram import storage
from nplm_jax.reporting import catalog, packed
from nplm_jax.reporting.shell import find_modules_here
from nplm_jax.runs import loading, process, workdir
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import cache_folder
from nplm_jax.utils.untrusted import sha256

_loading = threading.Lock()
_CHUNK_SIZE = 2**16  # words per task; texts of at most this length are scored in this process
_FILES = (catalog.CONFIG, catalog.VOCABULARY, *tokenizer_files.FILES, storage.MODEL_FILE, packed.PARAMETERS)

Arrays = Sequence[np.ndarray]
LinesFunction = Callable[..., Sequence[Arrays]]


class Source(NamedTuple):
    """The information that workers need to load a model.

    Attributes:
        folders: The folders of the runs.
        weights: The mixture weights of the runs, or () for a single run.
        modules: The plug-in modules that may be imported.
        digest: The digest of the model's files and the versions of JAX and jaxlib.
    """

    folders: tuple[pathlib.Path, ...]
    weights: tuple[float, ...]
    modules: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, runs: Sequence[str], weights: Sequence[float] = ()) -> Self:
        """Returns the information for loading the model of a run, or the mixture of several runs."""
        folders = tuple(catalog.expand_run(run).absolute() for run in runs)
        return cls(folders, tuple(weights), tuple(plugins.allowed()), _digest(folders))


def map_lines(model: LanguageModel, function: LinesFunction, *lists: Arrays) -> Sequence[Arrays]:
    """Applies a function to a model and independent lines. If the model is a RemoteModel, the workers do this.

    Args:
        model: Any language model.
        function: A module-level function, or a `functools.partial` of one. It returns a sequence of arrays for each
            line. All axes of these arrays except the last must have the same sizes for all lines.
        *lists: Lists of arrays with one array per line. The first list contains the words.

    Raises:
        BadInput: The workers are lost, or a worker cannot access the runs.
    """
    return model.map_lines(function, *lists) if isinstance(model, RemoteModel) else function(model, *lists)


class RemoteModel(LanguageModel):
    """A model that scores long texts on `workers.active` and computes everything else in this process.

    Streams are divided only if the model has a limited context (`n`), because other models carry a state through the
    stream.

    Attributes:
        n: See `LanguageModel`.
    """

    def __init__(self, model: LanguageModel, source: Callable[[], Source]) -> None:
        """Wraps a model.

        Args:
            model: The model.
            source: A function that returns the information that workers need to load the model. It is called on first
                use.
        """
        self.n, self._model, self._source = model.n, model, functools.cache(source)
        self.vocabulary_size, self.vocabulary = model.vocabulary_size, model.vocabulary
        for name in ('prefill', 'predict', 'advance', 'read'):  # computed in this process, like `next_word`
            setattr(self, name, getattr(model, name))

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`."""
        return self._map_span('score_span', tokens_T, span)

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.matched_lengths`."""
        if type(self._model).matched_lengths is LanguageModel.matched_lengths:
            return self._model.matched_lengths(tokens_T, span)
        return self._map_span('matched_lengths', tokens_T, span)

    def score_lines(self, lines: Arrays) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`."""
        return [log_p_T for (log_p_T,) in map_lines(self, _score_lines, lines)]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`. This process computes the result."""
        return self._model.next_word(contexts_BxN)

    def map_lines(self, function: LinesFunction, *lists: Arrays) -> Sequence[Arrays]:
        """See the function `map_lines`. Divides the lines into chunks by word count."""
        lengths = np.array([len(line) for line in lists[0]], int)
        numbers = (np.cumsum(lengths) - lengths) // _CHUNK_SIZE  # the chunk in which each line begins
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        if len(starts) < 2:
            return function(self._model, *lists)
        cuts = zip(starts, [*starts[1:], len(lengths)])
        chunks = [_pack([arrays[start:stop] for arrays in lists]) for start, stop in cuts]
        with self._scored(function, chunks) as files:
            return [line for file in files for line in zip(*_unpack(file))]

    def _map_span(self, method: str, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Applies a method of the model to the words of a span."""
        if self.n is None or len(span) <= _CHUNK_SIZE:
            return getattr(self._model, method)(tokens_T, span)
        starts = range(span.start, span.stop, _CHUNK_SIZE)
        chunks = [tokens_T[max(start - self.n, 0) : min(start + _CHUNK_SIZE, span.stop)] for start in starts]
        contexts = [np.array([min(start, self.n)]) for start in starts]
        scored = map_lines(self, functools.partial(_score_chunks, method), chunks, contexts)
        return np.concatenate([scores_T for (scores_T,) in scored])

    @contextlib.contextmanager
    def _scored(self, function: LinesFunction, chunks: Sequence[dict[str, np.ndarray]]) -> Iterator[list[pathlib.Path]]:
        """Yields the files with the results of the chunks. Reuses results that an interrupted process left behind.

        The files are removed at the end of the block, unless the block raises an exception.
        """
        source = self._source()
        digest = hashlib.sha256(pickle.dumps((source, function)))
        for array in (array for chunk in chunks for array in chunk.values()):
            digest.update(array.tobytes())
        folder = cache_folder().absolute() / 'scores' / digest.hexdigest()[:16]
        with prepared_texts.locked(folder):
            job = Job(folder / prepared_texts.JOB, {'scores': digest.hexdigest()}, workers.active(True))
            for number, chunk in enumerate(chunks):
                job.write(f'{number:06}.npz', functools.partial(np.savez, **chunk))  # type: ignore[arg-type]
            files = [job.folder / f'{number:06}.npz' for number in range(len(chunks))]
            done = job.run('scoring', functools.partial(_score, source, function), files)
            yield [task / 'results.npz' for task in done]
            shutil.rmtree(folder, ignore_errors=True)


# --- on the workers ---------------------------------------------------------------------------------------------------


def _score(source: Source, function: LinesFunction, file: pathlib.Path, folder: pathlib.Path) -> None:
    """Applies a function to the lines of a chunk and writes the results."""
    with _loading:  # a worker may have several threads
        model = _load(source)
    results = function(model, *_unpack(file))
    np.savez(folder / 'results.npz', **_pack(list(zip(*results))))  # type: ignore[arg-type]


@functools.lru_cache(1)
def _load(source: Source) -> LanguageModel:
    """Loads a model. Raises BadInput unless the files and the JAX version are the same as in the main process."""
    where = f'the worker on {socket.gethostname()}'
    for folder in source.folders:
        if not (folder / catalog.CONFIG).is_file():
            raise BadInput(
                folder, f'{where} cannot access this run; all workers must have access to the files of the run'
            )
    if source.modules:
        find_modules_here()
    with plugins.trust(source.modules):
        if _digest(source.folders) != source.digest:
            names = ', '.join(map(str, source.folders))
            differs = 'reads different files or has another version of JAX or of a plug-in; restart the worker'
            raise BadInput(names, f'{where} {differs}')
        process.set_up_process()
        models = [loading.load(folder).model for folder in source.folders]
    return Mixture(models, np.array([source.weights]), ContextBins()) if source.weights else models[0]


def _score_lines(model: LanguageModel, lines: Arrays) -> list[Arrays]:
    return [(log_p_T,) for log_p_T in model.score_lines(lines)]


def _score_chunks(method: str, model: LanguageModel, chunks: Arrays, contexts: Arrays) -> list[Arrays]:
    """Applies a method of the model to the words of each chunk.

    Args:
        method: The name of the method.
        model: The model.
        chunks: The words of each chunk, preceded by their context.
        contexts: The number of context words in each chunk.
    """
    return [(getattr(model, method)(chunk, Span(int(size[0]), len(chunk))),) for chunk, size in zip(chunks, contexts)]


# --- files ------------------------------------------------------------------------------------------------------------


def _digest(folders: Sequence[pathlib.Path]) -> str:
    """Returns a digest of the model files of runs, the code of their plug-ins and the versions of JAX and jaxlib."""
    digest = hashlib.sha256(f'{jax.__version__} {jaxlib.__version__}'.encode())
    for folder in folders:
        settings = workdir.read_settings(folder)
        code = [plugins.digest(key, path) for key, path in plugins_of(settings, LOADED_PLUGINS).items()]
        digest.update(f'{code}'.encode())
        names = (*_FILES, *user_files(settings))
        files = [folder / name for name in names] + sorted((folder / 'checkpoints').rglob('*'))
        for file in filter(pathlib.Path.is_file, files):
            digest.update(f'{file.relative_to(folder)}{os.sep}{sha256(str(file), file)}'.encode())
    return digest.hexdigest()


def _pack(lists: Sequence[Arrays]) -> dict[str, np.ndarray]:
    """Returns the arrays to save: the concatenated arrays of each list, and the end position of each array."""
    packed = {}
    for number, arrays in enumerate(lists):
        packed[f'values_{number}'] = np.concatenate(arrays, axis=-1)
        packed[f'ends_{number}'] = np.cumsum([array.shape[-1] for array in arrays])
    return packed


def _unpack(file: pathlib.Path) -> list[list[np.ndarray]]:
    """Reads lists that were saved with `_pack`."""
    with np.load(file, allow_pickle=False) as found:
        numbers = range(len(found.files) // 2)
        return [np.split(found[f'values_{number}'], found[f'ends_{number}'][:-1], axis=-1) for number in numbers]
