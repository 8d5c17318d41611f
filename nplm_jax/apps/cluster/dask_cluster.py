"""An executor that runs tasks on an existing Dask cluster.

Start the cluster with `dask scheduler` and `dask worker` or, on SLURM, with Dask-Jobqueue. Tasks take paths and return
nothing. All results are written to files, so the scheduler keeps no state. See `executors.jobs`.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Self

from nplm_jax.utils.errors import BadInput, first_line, require

try:
    from distributed import Client, Future, KilledWorker
    from distributed.comm import CommClosedError, connect
except ImportError:
    raise BadInput('--scheduler', 'requires Dask; install it with: pip install "nplm-jax[cluster]"') from None

_TIMEOUT = 10  # seconds to wait for an answer from the scheduler
_RESTART = 30  # seconds to wait for the replacement of a dead worker
_MAX_KILLED = 10  # maximum number of KilledWorker errors per task
_SILENCE = 60  # seconds between checks that a running task has workers
_MAX_SILENT = 5  # maximum number of consecutive checks without workers
_AHEAD = 4  # number of tasks submitted in advance per worker thread


async def _shake_hands(address: str) -> None:
    """Raises OSError unless Dask answers at an address. Dask's client would wait forever for any other server."""
    comm = await asyncio.wait_for(connect(address, timeout=_TIMEOUT), _TIMEOUT)
    await comm.close()


class DaskCluster:
    """An executor that uses the workers of a Dask scheduler. See `executors.workers.Workers`."""

    are_remote: ClassVar[bool] = True

    def __init__(self, address: str) -> None:
        """Connects to a scheduler.

        Args:
            address: The address, `tcp://HOST:PORT`.

        Raises:
            BadInput: The address is invalid, or the scheduler does not answer.
        """
        self._address, self._flag = address, f'--scheduler={address}'
        allowed = 'must be the address tcp://HOST:PORT of a running `dask scheduler`'
        require(address.startswith('tcp://'), self._flag, ..., allowed)
        for name in ('distributed', 'distributed.client'):  # BadInput reports the loss of the scheduler instead
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            # Runs in a separate thread, because this thread may have an event loop, as in a notebook.
            concurrent.futures.ThreadPoolExecutor(1).submit(asyncio.run, _shake_hands(address)).result()
            self._client = Client(address, timeout=_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = 'the scheduler does not respond' if isinstance(error, OSError) else first_line(error)
            raise BadInput(self._flag, f'{reason}; {allowed}') from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the scheduler may be lost
            self._client.close(timeout=_TIMEOUT)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """See `Workers.map`.

        Raises:
            BadInput: The scheduler or all workers are lost, or the workers of a task die repeatedly.
            Exception: Any exception that `function` raises.
        """
        pending: collections.deque[tuple[Any, Future]] = collections.deque()
        for item in items:
            pending.append((item, self._submit(function, item)))
            while len(pending) > _AHEAD * max(self._num_threads(), 1):
                yield self._result(function, *pending.popleft())
        while pending:
            yield self._result(function, *pending.popleft())

    def on_each(self, function: Callable[[], Any]) -> Iterable[Any]:
        """See `Workers.on_each`.

        Raises:
            BadInput: The scheduler is lost, there are no workers, or this package is not installed on a worker.
            Exception: Any exception that `function` raises, except an OSError of a worker that died.
        """
        with self._connected():
            try:  # dead workers may soon be replaced
                self._client.wait_for_workers(1, timeout=_RESTART)
            except TimeoutError:
                raise self._no_workers() from None
            results = self._client.run(function, on_error='return').values()
        for result in results:
            if isinstance(result, (ImportError, AttributeError)):
                raise BadInput(self._flag, f'a worker cannot import this package ({first_line(result)})')
            # An OSError means that the worker died.
            if isinstance(result, Exception) and not isinstance(result, OSError):
                raise result
        return results

    def _submit(self, function: Callable[[Any], Any], item: Any) -> Future:
        with self._connected():
            return self._client.submit(function, item, pure=False)

    def _num_threads(self) -> int:
        with self._connected():
            return sum(self._client.nthreads().values())

    def _result(self, function: Callable[[Any], Any], item: Any, future: Future) -> Any:
        """Returns the result of a task. Resubmits the task if the scheduler gave up on it because workers died."""
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
        raise BadInput(self._flag, 'workers died repeatedly while running a task; give them more memory')

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Raises BadInput if the scheduler is lost inside the block."""
        try:
            yield
        except (OSError, RuntimeError, concurrent.futures.CancelledError) as error:
            if isinstance(error, (concurrent.futures.CancelledError, CommClosedError)) or not self._answers():
                advice = 'run the same command again to resume'
                raise BadInput(self._flag, f'the connection to the scheduler was lost; {advice}') from None
            raise

    def _answers(self) -> bool:
        try:
            return self._client.status == 'running' and bool(self._client.scheduler_info())
        except (OSError, RuntimeError, concurrent.futures.CancelledError):
            return False

    def _no_workers(self) -> BadInput:
        return BadInput(self._flag, f'has no workers; start a worker with: dask worker {self._address}')
