"""One thread does all work on the model, a step at a time, and clients take turns.

Work is a function, or a generator function that yields between steps of a few milliseconds and returns its
result. After each step the next client is served, so a long piece of work, or a client with many, delays the
others by a step each and no more. Of two requests in one lane of a client (two positions of one slider, say)
only the later counts.
"""

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from capspoe import kernels

PER_CLIENT = 8  # requests that may wait for one client
IN_ALL = 256  # as many as there may be connections (server.py)
BACKGROUND = "background"  # a client that is served only when nobody else waits

_UNFINISHED = object()


class Superseded(Exception):
    """A later request of the same client took this one's place."""


class TooBusy(Exception):
    """The client, or everybody together, has too much waiting already."""

    def __init__(self, everybody: bool) -> None:
        super().__init__("the server is busy" if everybody else "too many requests are waiting")
        self.everybody = everybody


class Job:
    def __init__(self, lane: str | None, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.lane, self.work, self.future = lane, work, future
        self.steps: Generator[None, None, Any] | None = None

    def step(self) -> Any:
        """The result, or _UNFINISHED. Batches are small here: plain PyTorch is as fast as the kernels."""
        with kernels.use("reference"):
            if self.steps is None:
                result = self.work()
                if not isinstance(result, Generator):
                    return result
                self.steps = result
            try:
                next(self.steps)
            except StopIteration as stop:
                return stop.value
            return _UNFINISHED


class Turns:
    def __init__(self, per_client: int = PER_CLIENT, in_all: int = IN_ALL) -> None:
        self.per_client, self.in_all = per_client, in_all
        self.lines: OrderedDict[str, deque[Job]] = OrderedDict()
        self.wake = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="capspoe-model")
        self.server: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.server = asyncio.get_running_loop().create_task(self._serve())

    async def stop(self) -> None:
        if self.server:
            self.server.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.server
        for line in self.lines.values():
            for job in line:
                job.future.cancel()
        self.thread.shutdown(wait=True, cancel_futures=True)

    async def do(
        self,
        client: str,
        lane: str | None,
        work: Callable[[], Any],
        gone: Coroutine[Any, Any, None] | None = None,
    ) -> Any:
        """The result of the work once its turn has come. When `gone` ends first, the work is dropped."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        watch = asyncio.ensure_future(gone) if gone else None
        try:
            self._add(client, Job(lane, work, future))
            if watch:
                await asyncio.wait({future, watch}, return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    raise Superseded
            return await future
        finally:
            future.cancel()
            if watch:
                watch.cancel()

    def _add(self, client: str, job: Job) -> None:
        line = self.lines.get(client, deque())
        if job.lane is not None:
            for older in line:
                if older.lane == job.lane and not older.future.done():
                    older.future.set_exception(Superseded())
        waiting = [j for j in line if not j.future.done()]
        line.clear()  # whoever was replaced or left takes nobody's place
        line.extend(waiting)
        if len(line) >= self.per_client:
            raise TooBusy(everybody=False)
        if sum(map(len, self.lines.values())) >= self.in_all:
            raise TooBusy(everybody=True)
        self.lines.setdefault(client, line).append(job)
        self.wake.set()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.wake.wait()
            client = next((name for name in self.lines if name != BACKGROUND), BACKGROUND)
            line = self.lines[client]
            job = line.popleft()
            if not job.future.done():
                try:
                    result = await loop.run_in_executor(self.thread, job.step)
                except asyncio.CancelledError:
                    line.append(job)
                    raise
                except Exception as error:
                    if not job.future.done():
                        job.future.set_exception(error)
                else:
                    if result is _UNFINISHED:
                        line.append(job)
                    elif not job.future.done():
                        job.future.set_result(result)
            if line:
                self.lines.move_to_end(client)
            else:
                del self.lines[client]
            if not self.lines:
                self.wake.clear()
