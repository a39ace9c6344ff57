"""One thread computes on the model; requests wait for it in one bounded queue.

Work is a function, or a generator function that yields every few milliseconds and returns its
result. After each step the next in line gets its turn, so long work delays the others by one step
each. Background work runs when nothing else waits. Of two requests in one lane (two positions of
one slider, say) only the newer counts.
"""

import asyncio
import itertools
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.exceptions import HTTPException

from capspoe import kernels

LIMIT = 256  # requests that may wait; as many as there may be connections (server.py)

Entry = tuple[bool, int, asyncio.Future, Generator]  # background, order, result, steps


class Scheduler:
    """`run` queues work for `serve`, which a task of the same event loop runs."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.order = itertools.count()
        # Background work comes last; among equals, the one that has waited longest comes first.
        self.queue: asyncio.PriorityQueue[Entry] = asyncio.PriorityQueue()
        self.waiting: set[asyncio.Future[Any]] = set()
        self.lanes: dict[str, asyncio.Future[Any]] = {}
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="capspoe-model")

    async def run(self, work: Callable[[], Any], lane: str = "", background: bool = False) -> Any:
        """The result of the work; an older request of the same lane ends with status 409."""
        older = self.lanes.get(lane)
        if older and not older.done():
            older.set_exception(HTTPException(409, "a newer request replaced this one"))
            self.waiting.discard(older)
        if len(self.waiting) >= self.limit:
            raise HTTPException(503, "the server is busy; try again in a moment", {"retry-after": "1"})
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.add(future)
        if lane:
            self.lanes[lane] = future
        self.queue.put_nowait((background, next(self.order), future, _steps(work)))
        try:
            return await future
        finally:
            self.waiting.discard(future)
            if self.lanes.get(lane) is future:
                del self.lanes[lane]

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            background, _, future, steps = await self.queue.get()
            if future.done():  # replaced, or nobody waits for it any more
                continue
            try:
                result = await loop.run_in_executor(self.thread, _step, steps)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                continue
            if result is None:
                self.queue.put_nowait((background, next(self.order), future, steps))
            elif not future.done():
                future.set_result(result[0])

    def close(self) -> None:
        for future in list(self.waiting):
            future.cancel()
        self.thread.shutdown(wait=True, cancel_futures=True)


def _steps(work: Callable[[], Any]) -> Generator[None, None, Any]:
    result = work()
    if isinstance(result, Generator):
        result = yield from result
    return result


def _step(steps: Generator[None, None, Any]) -> tuple[Any] | None:
    """The result, once it is there. Batches are small here: plain PyTorch is as fast as the kernels."""
    with kernels.use("reference"):
        try:
            next(steps)
        except StopIteration as stop:
            return (stop.value,)
    return None
