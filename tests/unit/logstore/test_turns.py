"""Bulk work gives the loop away in time, to a key at once, and to no key for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from console import turns
from console.turns import Turns


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Time and CPU time that only sleeping and the test move on."""
    now = {"time": 1000.0, "cpu": 50.0, "slept": 0.0}

    async def sleep(seconds: float) -> None:
        now["time"] += seconds
        now["slept"] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now["time"])
    monkeypatch.setattr(time, "thread_time", lambda: now["cpu"])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return now


def work(shared: Turns, clocks: dict[str, float], seconds: float) -> float:
    """Bulk work in steps of a millisecond; how long it had to rest."""
    before = clocks["slept"]
    for _ in range(round(seconds * 1000)):
        clocks["time"] += 0.001
        clocks["cpu"] += 0.001
        asyncio.run(shared.give())
    return clocks["slept"] - before


def test_it_rests_as_long_as_it_works(clocks: dict[str, float]) -> None:
    rested = work(Turns(), clocks, 0.3)
    assert 0.2 <= rested <= 0.4


def test_a_key_comes_before_all_of_it(clocks: dict[str, float]) -> None:
    shared = Turns()
    work(shared, clocks, 0.1)
    shared.key()
    assert shared.aside
    before = clocks["slept"]
    asyncio.run(shared.give())
    assert clocks["slept"] - before >= turns.KEY_S - 0.001
    assert not shared.aside


def test_a_key_held_down_does_not_stop_it(clocks: dict[str, float]) -> None:
    shared, rested, begun = Turns(), 0.0, clocks["time"]
    for _ in range(300):
        shared.key()
        rested += work(shared, clocks, 0.002)
    assert rested < 0.9 * (clocks["time"] - begun)


def test_a_log_that_is_behind_is_read_on_whatever_is_typed(clocks: dict[str, float]) -> None:
    shared = Turns()
    shared.lag_bytes = turns.BEHIND
    shared.key()
    assert not shared.aside
