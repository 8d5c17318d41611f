"""Requests that wait together are computed together, in a thread beside the event loop."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar('Item')
Result = TypeVar('Result')

MAX_BATCH = 32  # requests that are computed together
MAX_WAITING = 100  # visitors


class Busy(Exception):
    """As many visitors wait as may."""


class Superseded(Exception):
    """The same visitor has asked for something else before this was computed."""


class Batcher(Generic[Item, Result]):
    """Computes what visitors ask for, at most one request of each at a time.

    The first request is computed at once. Those that arrive meanwhile wait, and are then computed in one call.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result]],
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """Takes what computes the results of several requests, how many it gets at once, and how many may wait."""
        self._compute = compute
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: dict[Hashable, tuple[Item, asyncio.Future[Result]]] = {}  # by visitor, in order of arrival
        self._thread = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, visitor: Hashable, item: Item) -> Result:
        """Returns the result of a request, which takes the place of the visitor's waiting one.

        Raises:
            Busy: Too many visitors wait; the visitor's former request is not affected.
            Superseded: The visitor's next request has taken the place of this one.
            Exception: What `compute` raises for this request alone.
        """
        if visitor in self._waiting:
            _, former = self._waiting[visitor]
            if not former.done():  # who asked may have left
                former.set_exception(Superseded())
        elif len(self._waiting) >= self._max_waiting:
            raise Busy
        result = asyncio.get_running_loop().create_future()
        self._waiting[visitor] = item, result
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await result

    async def _run(self) -> None:
        """Computes batches until nobody waits."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            visitors = list(self._waiting)[: self._max_batch]
            items, futures = zip(*map(self._waiting.pop, visitors))
            results = await loop.run_in_executor(self._thread, self._compute_each, items)
            for future, result in zip(futures, results, strict=True):
                if future.cancelled():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _compute_each(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """Returns the result of each request or its error; after an error each is computed alone."""
        try:
            return [result for _, result in zip(items, self._compute(items), strict=True)]
        except Exception as error:  # noqa: BLE001 (goes to whoever asked)
            return [error] if len(items) == 1 else [self._compute_each([item])[0] for item in items]
