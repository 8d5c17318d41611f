"""Counts n-grams in parallel across processes or machines."""

import contextlib
import dataclasses
import hashlib
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nplm_jax.data.mapped_arrays import chunks
from nplm_jax.executors import jobs, workers
from nplm_jax.ngram.scratch import Scratch

_LARGE = 2**22  # smallest number of words counted by several processes


@dataclasses.dataclass(frozen=True)
class SharedScratch(Scratch):
    """A `Scratch` whose jobs run on the workers of `workers.active` and resume after a crash.

    The folder must have the same path on all workers. If no folder is given, jobs run in processes on this machine.
    """

    @contextlib.contextmanager
    def open_job(self, words_L: np.ndarray, identity: Mapping[str, Any]) -> Iterator[jobs.Job]:
        """See `Scratch.open_job`.

        Raises:
            BadInput: The disk is full, or all workers are lost.
        """
        digest = hashlib.sha256()
        for chunk_L in chunks(words_L):
            digest.update(chunk_L.data)
        with contextlib.ExitStack() as stack:
            folder = self.folder or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            choose = workers.active if self.folder else workers.local_processes
            identity = {'words': digest.hexdigest(), **identity}
            job = jobs.Job(folder / '.counting', identity, choose(len(words_L) >= _LARGE))
            yield job
            job.remove()
