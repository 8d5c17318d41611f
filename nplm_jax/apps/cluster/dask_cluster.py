"""A cluster of Dask's workers, which somebody has started: `dask scheduler`, `dask worker`, or Dask-Jobqueue for SLURM.

The scheduler keeps nothing that is not also in files, see `executors.jobs`: tasks take paths and return nothing.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self

from nplm_jax.utils.errors import BadInput, first_line

try:
    from distributed import Client, Future, KilledWorker
    from distributed.comm import CommClosedError, connect
except ImportError:
    raise BadInput('--scheduler', 'needs Dask: pip install "nplm-jax[cluster]"') from None

_TIMEOUT = 10  # seconds in which the scheduler answers
_RESTART = 30  # seconds in which a worker that died is replaced
_MAX_KILLED = 10  # times that the scheduler may give up a task whose workers died
_SILENCE = 60  # seconds after which a task that says nothing is looked after
_MAX_SILENT = 5  # times that there are no workers then
_AHEAD = 4  # tasks a thread that the scheduler knows of


async def _shake_hands(address: str) -> None:
    """Connects to an address once. Raises OSError unless Dask answers: its client waits for ever for another server."""
    comm = await asyncio.wait_for(connect(address, timeout=_TIMEOUT), _TIMEOUT)
    await comm.close()


class DaskCluster:
    """The workers of a scheduler; see `executors.workers.Workers`."""

    are_remote: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        """Connects to the scheduler at `tcp://HOST:PORT`. Raises: BadInput when it does not answer."""
        self._address, self._flag = address, f'--scheduler={address}'
        allowed = 'must be tcp://HOST:PORT of a running `dask scheduler`'
        if not address.startswith('tcp://'):
            raise BadInput(self._flag, allowed)
        for name in ('distributed', 'distributed.client'):  # a lost scheduler is told in one line
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            # In a thread of its own: there may be an event loop in this one, as in a notebook.
            concurrent.futures.ThreadPoolExecutor(1).submit(asyncio.run, _shake_hands(address)).result()
            self._client = Client(address, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = 'does not answer' if isinstance(error, OSError) else first_line(error)
            raise BadInput(self._flag, f'{reason}; {allowed}') from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # of a scheduler that is lost
            self._client.close(timeout=_TIMEOUT)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """See `Workers.map`.

        Raises:
            BadInput: The scheduler or all workers are lost, or the workers of a task die again and again.
            Exception: What `function` raises.
        """
        pending: collections.deque[tuple[Any, Future]] = collections.deque()
        for item in items:
            pending.append((item, self._submit(function, item)))
            while len(pending) > _AHEAD * max(self._num_threads(), 1):
                yield self._result(function, *pending.popleft())
        while pending:
            yield self._result(function, *pending.popleft())

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """See `Workers.on_each`. Raises: BadInput, also when there are no workers, or one lacks this package."""
        self._wait_for_workers()
        with self._connected():
            answers = self._client.run(function, on_error='return').values()
        for error in answers:
            if isinstance(error, (ImportError, AttributeError)):
                raise BadInput(self._flag, f'a worker lacks this package ({first_line(error)})')
            if isinstance(error, Exception) and not isinstance(error, OSError):  # of a worker that has died meanwhile
                raise error
        return answers

    def _wait_for_workers(self) -> None:
        """Returns when there is a worker: all of them may have died a moment ago. Raises: BadInput if none comes."""
        with self._connected():
            try:
                self._client.wait_for_workers(1, timeout=_RESTART)
            except TimeoutError:
                raise self._no_workers() from None

    def _submit(self, function: Callable[[Any], Any], item: Any) -> Future:
        with self._connected():
            return self._client.submit(function, item, pure=False)

    def _num_threads(self) -> int:
        with self._connected():
            return sum(self._client.nthreads().values())

    def _result(self, function: Callable[[Any], Any], item: Any, future: Future) -> Any:
        """Returns the result of a task; submits it again where the scheduler blames it for workers that died."""
        num_killed = silent = 0
        while num_killed < _MAX_KILLED and silent < _MAX_SILENT:
            with self._connected():
                try:
                    return future.result(timeout=_SILENCE)
                except KilledWorker:
                    num_killed += 1
                    future = self._submit(function, item)
                except TimeoutError:
                    silent = 0 if self._num_threads() else silent + 1
        if silent:
            raise self._no_workers()
        raise BadInput(self._flag, 'the workers of one task died again and again; give them more memory')

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Raises BadInput if the scheduler is lost inside the block."""
        try:
            yield
        except (OSError, RuntimeError, concurrent.futures.CancelledError) as error:
            if isinstance(error, (concurrent.futures.CancelledError, CommClosedError)) or not self._answers():
                advice = 'the same command goes on with what is missing'
                raise BadInput(self._flag, f'the scheduler was lost; {advice}') from None
            raise

    def _answers(self) -> bool:
        try:
            return self._client.status == 'running' and bool(self._client.scheduler_info())
        except (OSError, RuntimeError, concurrent.futures.CancelledError):
            return False

    def _no_workers(self) -> BadInput:
        return BadInput(self._flag, f'has no workers; start some with: dask worker {self._address}')
