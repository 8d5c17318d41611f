"""A cluster of Dask's workers, which somebody has started: `dask scheduler`, `dask worker`, or Dask-Jobqueue for SLURM.

The scheduler keeps nothing that is not also in files, see `utils.jobs`: tasks take paths and return nothing.
"""

import collections
import concurrent.futures
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self

from nplm_jax.utils.errors import BadInput, first_line

try:
    from distributed import Client, Future, KilledWorker
except ImportError:
    raise BadInput('--scheduler: needs Dask: pip install "nplm-jax[cluster]"') from None

_TIMEOUT = 10  # seconds in which the scheduler answers
_MAX_KILLED = 10  # times that the scheduler may give up a task whose workers died
_AHEAD = 4  # tasks a thread that the scheduler knows of


class DaskCluster:
    """The workers of a scheduler; see `utils.workers.Workers`."""

    are_remote: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        """Connects to the scheduler at `tcp://HOST:PORT`. Raises: BadInput when it does not answer."""
        self._address = address
        logging.getLogger('distributed').setLevel(logging.CRITICAL)  # a lost scheduler is told in one line
        try:
            self._client = Client(address, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = 'does not answer' if isinstance(error, OSError) else first_line(error)
            allowed = 'must be tcp://HOST:PORT of a running `dask scheduler`'
            raise BadInput(f'--scheduler={address}: {reason}; {allowed}') from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close(timeout=_TIMEOUT)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """See `Workers.map`.

        Raises:
            BadInput: The scheduler is lost, or the workers of a task die again and again.
            Exception: What `function` raises.
        """
        pending: collections.deque[tuple[Any, Future]] = collections.deque()
        for item in items:
            pending.append((item, self._submit(function, item)))
            while len(pending) > _AHEAD * max(sum(self._client.nthreads().values()), 1):
                yield self._result(function, *pending.popleft())
        while pending:
            yield self._result(function, *pending.popleft())

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """See `Workers.on_each`. Raises: BadInput, also when there are no workers, or one lacks this package."""
        if not self._client.nthreads():
            raise BadInput(f'--scheduler={self._address}: has no workers; start one with: dask worker {self._address}')
        try:
            answers = self._client.run(function, on_error='return').values()
        except (OSError, concurrent.futures.CancelledError):
            raise self._lost() from None
        for error in answers:
            if isinstance(error, (ImportError, AttributeError)):
                raise BadInput(f'--scheduler={self._address}: a worker lacks this package ({first_line(error)})')
            if isinstance(error, Exception) and not isinstance(error, OSError):  # of a worker that has died meanwhile
                raise error
        return answers

    def _submit(self, function: Callable[[Any], Any], item: Any) -> Future:
        return self._client.submit(function, item, pure=False)

    def _result(self, function: Callable[[Any], Any], item: Any, future: Future) -> Any:
        """Returns the result of a task; submits it again where the scheduler blames it for workers that died."""
        for _ in range(_MAX_KILLED):
            try:
                return future.result()
            except KilledWorker:
                future = self._submit(function, item)
            except (OSError, concurrent.futures.CancelledError):  # of the connection
                raise self._lost() from None
        allowed = 'the workers of one task died again and again; give them more memory'
        raise BadInput(f'--scheduler={self._address}: {allowed}')

    def _lost(self) -> BadInput:
        return BadInput(
            f'--scheduler={self._address}: the scheduler was lost; the same command goes on with what is missing'
        )
