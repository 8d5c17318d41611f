"""A corpus that several runs share."""

import functools
import pathlib

from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset
from nplm_jax.runs import estimation, evaluation, run_inputs
from nplm_jax.runs.loading import load_dataset


class SharedCorpus:
    """The corpus, as a stream and by lines, and its interpolated trigrams; runs on the same text share them.

    Each is made when it is first asked for.
    """

    def __init__(self, settings: Settings, data: dataset.Dataset | None = None) -> None:
        """Takes the settings, of which `corpus.*` is read, or the corpus."""
        self._settings = settings
        self._data = data
        self._by_lines: dataset.Dataset | None = None
        self._trigrams: dict[bool, evaluation.Trigram] = {}

    @functools.cached_property
    def files(self) -> dict[str, str] | None:
        """What `run_inputs.text_files` returns of the corpus; None for a corpus that was given."""
        return run_inputs.text_files(self._settings) if self._data is None else None

    @functools.cached_property
    def data(self) -> dataset.Dataset:
        """The corpus as a stream."""
        if self._data is not None:
            return self._data
        _ = self.files  # before the words: if a file changes in between, the recorded digest is not that of later files
        return load_dataset(self._settings)

    def read(self, settings: Settings, folder: pathlib.Path) -> dataset.Dataset:
        """Returns the corpus as a run reads it: as a stream, or by lines."""
        if not estimation.reads_lines(settings, self.data):
            return self.data
        self._by_lines = self._by_lines or estimation.read(settings, self.data, folder)
        return self._by_lines

    def trigram(self, data: dataset.Dataset) -> evaluation.Trigram:
        """Returns the trigram of the paper's mixtures, and its bins, of what `read` returned."""
        if data.by_lines not in self._trigrams:
            self._trigrams[data.by_lines] = evaluation.fit_trigram(data)
        return self._trigrams[data.by_lines]
