"""Garbage is collected in a moment without a key, and in the end whatever is typed."""

from __future__ import annotations

import gc
import time

import pytest

from console import garbage
from console.garbage import Garbage
from console.turns import Turns


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a whole collection was made; counting begins at none."""
    calls: list[int] = []
    monkeypatch.setattr(garbage, "TURNS", Turns())
    monkeypatch.setattr(gc, "collect", lambda *_: calls.append(1))
    monkeypatch.setattr(gc, "isenabled", lambda: True)
    return calls


def rounds(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, count))


def test_little_is_left_alone(monkeypatch: pytest.MonkeyPatch, collected: list[int]) -> None:
    rounds(monkeypatch, garbage.FEW - 1)
    Garbage().collect()
    assert not collected


def test_a_pause_is_used(monkeypatch: pytest.MonkeyPatch, collected: list[int]) -> None:
    rounds(monkeypatch, garbage.FEW)
    Garbage().collect()
    assert collected


def test_a_key_on_its_way_comes_first_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, collected: list[int]
) -> None:
    pressed = Turns()
    pressed.key()
    monkeypatch.setattr(garbage, "TURNS", pressed)
    monkeypatch.setattr(garbage, "REST_S", 3600.0)
    rounds(monkeypatch, garbage.MANY - 1)
    Garbage().collect()
    assert not collected
    rounds(monkeypatch, garbage.MANY)
    Garbage().collect()
    assert collected


def test_where_it_takes_long_it_is_done_less_often(
    monkeypatch: pytest.MonkeyPatch, collected: list[int]
) -> None:
    now = [1000.0]

    def long(*_: int) -> None:
        now[0] += 0.1
        collected.append(1)

    monkeypatch.setattr(gc, "collect", long)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rounds(monkeypatch, garbage.FEW)
    it = Garbage()
    it.collect()
    now[0] += 0.09 * garbage.SHARE
    it.collect()
    assert len(collected) == 1
    now[0] += 0.02 * garbage.SHARE
    it.collect()
    assert len(collected) == 2
