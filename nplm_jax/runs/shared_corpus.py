"""A corpus shared by several runs."""

import functools
import pathlib

from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset
from nplm_jax.runs import estimation, evaluation, run_inputs
from nplm_jax.runs.loading import load_stream


class SharedCorpus:
    """A corpus shared by runs on the same text, with the interpolated trigrams estimated from it.

    The corpus has two forms: a single stream, and separate lines. Each form has its own trigram. Forms and trigrams are
    created on first use.
    """

    def __init__(self, settings: Settings, data: dataset.Dataset | None = None) -> None:
        """Wraps a loaded corpus, or loads the corpus described by `corpus.*` in the settings."""
        self._settings = settings
        self._data = data
        self._by_lines: dataset.Dataset | None = None
        self._trigrams: dict[bool, evaluation.Trigram] = {}

    @functools.cached_property
    def files(self) -> dict[str, str] | None:
        """The result of `run_inputs.text_files`. None if the corpus was passed to the constructor."""
        return run_inputs.text_files(self._settings) if self._data is None else None

    @functools.cached_property
    def data(self) -> dataset.Dataset:
        """The corpus as a stream."""
        if self._data is not None:
            return self._data
        _ = self.files  # compute digests before reading, so that a file changed in between does not match its digest
        return load_stream(self._settings)

    def read(self, settings: Settings, folder: pathlib.Path) -> dataset.Dataset:
        """Returns the corpus in the form that a run requires: as one stream, or divided into lines."""
        if not estimation.reads_lines(settings, self.data):
            return self.data
        self._by_lines = self._by_lines or estimation.read(settings, self.data, folder)
        return self._by_lines

    def trigram(self, data: dataset.Dataset) -> evaluation.Trigram:
        """Returns the trigram of the paper's mixtures, estimated from the result of `read`, and its context bins."""
        if data.by_lines not in self._trigrams:
            self._trigrams[data.by_lines] = evaluation.fit_trigram(data)
        return self._trigrams[data.by_lines]
