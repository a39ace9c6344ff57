"""Requests share one thread."""

import asyncio
import threading
import time

import pytest
from starlette.exceptions import HTTPException

from capspoe.explorer.scheduler import Scheduler


def run(scenario, **options):
    async def whole():
        scheduler = Scheduler(**options)
        serving = asyncio.create_task(scheduler.serve())
        try:
            return await asyncio.wait_for(scenario(scheduler), 20)
        finally:
            serving.cancel()
            scheduler.close()

    return asyncio.run(whole())


def steps(count, log=None, name=None):
    def work():
        for _ in range(count):
            if log is not None:
                log.append(name)
            time.sleep(0.002)
            yield
        return count

    return work


def statuses(results):
    return [r.status_code if isinstance(r, HTTPException) else r for r in results]


def test_results_and_errors_come_back():
    async def scenario(scheduler):
        assert await scheduler.run(lambda: 7) == 7
        assert await scheduler.run(lambda: None) is None
        assert await scheduler.run(steps(3)) == 3
        with pytest.raises(ZeroDivisionError):
            await scheduler.run(lambda: 1 / 0)
        threads = {await scheduler.run(threading.get_ident) for _ in range(5)}
        assert len(threads) == 1
        assert threading.get_ident() not in threads

    run(scenario)


def test_long_work_delays_others_by_a_step():
    log = []

    async def scenario(scheduler):
        long = asyncio.create_task(scheduler.run(steps(100, log, "long")))
        await asyncio.sleep(0.02)
        before = len(log)
        await scheduler.run(lambda: log.append("short"))
        assert log.index("short") - before <= 2
        assert await long == 100

    run(scenario)


def test_background_work_waits_for_everybody():
    log = []

    async def scenario(scheduler):
        back = asyncio.create_task(scheduler.run(steps(10, log, "background"), background=True))
        await asyncio.sleep(0.005)
        await scheduler.run(steps(10, log, "page"))
        await back
        first = log.index("page")
        assert log[first : first + 10] == ["page"] * 10

    run(scenario)


def test_the_queue_is_bounded():
    async def scenario(scheduler):
        tasks = [asyncio.create_task(scheduler.run(steps(3))) for _ in range(20)]
        results = statuses(await asyncio.gather(*tasks, return_exceptions=True))
        assert results == [3] * 10 + [503] * 10
        assert await scheduler.run(lambda: "room again") == "room again"
        assert not scheduler.waiting

    run(scenario, limit=10)


def test_of_one_lane_only_the_newest_counts():
    async def scenario(scheduler):
        slider = [asyncio.create_task(scheduler.run(steps(5), "slider")) for _ in range(50)]
        other = asyncio.create_task(scheduler.run(steps(5), "other"))
        results = statuses(await asyncio.gather(*slider, other, return_exceptions=True))
        assert results == [409] * 49 + [5, 5]  # the replaced ones took nobody's place
        assert not scheduler.lanes
        await scheduler.run(lambda: 1, "slider")

    run(scenario, limit=2)


def test_replaced_work_stops():
    log = []

    async def scenario(scheduler):
        old = asyncio.create_task(scheduler.run(steps(10_000, log, "old"), "slider"))
        await asyncio.sleep(0.02)
        assert await scheduler.run(lambda: "new", "slider") == "new"
        with pytest.raises(HTTPException):
            await old
        done = len(log)
        await asyncio.sleep(0.05)
        assert len(log) <= done + 1

    run(scenario)
