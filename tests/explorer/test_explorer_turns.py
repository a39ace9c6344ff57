"""Clients take turns."""

import asyncio
import threading
import time

import pytest

from capspoe.explorer.turns import BACKGROUND, Superseded, TooBusy, Turns


def run(scenario, **limits):
    async def whole():
        turns = Turns(**limits)
        turns.start()
        try:
            return await asyncio.wait_for(scenario(turns), 20)
        finally:
            await turns.stop()

    return asyncio.run(whole())


def steps(count, note=None, name=None):
    def work():
        for _ in range(count):
            if note is not None:
                note.append(name)
            time.sleep(0.002)
            yield
        return count

    return work


def test_results_and_errors_come_back():
    async def scenario(turns):
        assert await turns.do("a", None, lambda: 7) == 7
        assert await turns.do("a", None, steps(3)) == 3
        with pytest.raises(ZeroDivisionError):
            await turns.do("a", None, lambda: 1 / 0)
        assert await turns.do("a", None, lambda: threading.current_thread().name) != "MainThread"

    run(scenario)


def test_long_work_of_one_does_not_hold_up_another():
    note = []

    async def scenario(turns):
        long = asyncio.create_task(turns.do("a", None, steps(100, note, "a")))
        await asyncio.sleep(0.02)
        before = len(note)
        await turns.do("b", None, lambda: note.append("b"))
        assert note.index("b") - before <= 2
        assert await long == 100

    run(scenario)


def test_a_flood_is_refused_and_others_are_served():
    note = []

    async def scenario(turns):
        flood = [asyncio.create_task(turns.do("a", None, steps(5, note, "a"))) for _ in range(50)]
        await asyncio.sleep(0)
        await turns.do("b", None, lambda: note.append("b"))
        assert note.index("b") <= 2
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(r, TooBusy) for r in results) == 46
        assert results.count(5) == 4

    run(scenario, per_client=4)


def test_everybody_together_has_a_limit_too():
    async def scenario(turns):
        tasks = [asyncio.create_task(turns.do(str(k), None, steps(3))) for k in range(20)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(r, TooBusy) and r.everybody for r in results) == 10

    run(scenario, in_all=10)


def test_of_one_lane_only_the_latest_counts():
    async def scenario(turns):
        first, second = (asyncio.create_task(turns.do("a", "paint", steps(9))) for _ in range(2))
        other = asyncio.create_task(turns.do("b", "paint", steps(9)))
        with pytest.raises(Superseded):
            await first
        assert await second == 9
        assert await other == 9

    run(scenario)


def test_replaced_requests_take_nobodys_place():
    async def scenario(turns):
        turns.server.cancel()  # nothing is worked on meanwhile
        slider = [asyncio.create_task(turns.do("a", "slider", lambda: 1)) for _ in range(50)]
        await asyncio.sleep(0)
        other = asyncio.create_task(turns.do("b", None, lambda: "fine"))
        await asyncio.sleep(0)
        turns.start()
        assert await other == "fine"
        results = await asyncio.gather(*slider, return_exceptions=True)
        assert sum(isinstance(r, Superseded) for r in results) == 49
        assert results[-1] == 1

    run(scenario, in_all=10)


def test_who_has_gone_is_not_worked_for():
    note = []

    async def scenario(turns):
        gone = asyncio.Event()

        async def watch():
            await gone.wait()

        task = asyncio.create_task(turns.do("a", None, steps(1000, note, "a"), watch()))
        await asyncio.sleep(0.05)
        gone.set()
        with pytest.raises(Superseded):
            await task
        await asyncio.sleep(0.02)
        done = len(note)
        await asyncio.sleep(0.05)
        assert len(note) == done < 1000
        assert not turns.lines

    run(scenario)


def test_background_work_waits_for_everybody():
    note = []

    async def scenario(turns):
        back = asyncio.create_task(turns.do(BACKGROUND, None, steps(10, note, "background")))
        await asyncio.sleep(0.005)
        await turns.do("a", None, steps(10, note, "a"))
        await back
        first = note.index("a")
        assert note[first : first + 10] == ["a"] * 10

    run(scenario)


def test_stopping_with_work_left():
    note = []

    async def scenario(turns):
        return asyncio.create_task(turns.do("a", None, steps(10**5, note, "a")))

    task = run(scenario)
    assert task.cancelled() or task.done()
    assert len(note) < 10**5
