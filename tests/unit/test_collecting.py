"""Garbage is collected in a moment without a key, and in the end whatever is typed."""

from __future__ import annotations

import gc

import pytest

from console import terminal
from console.turns import Turns


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a whole collection was made; counting begins at none."""
    calls: list[int] = []
    monkeypatch.setattr(terminal, "TURNS", Turns())
    monkeypatch.setattr(gc, "collect", lambda *_: calls.append(1))
    monkeypatch.setattr(gc, "isenabled", lambda: True)
    return calls


def rounds(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, count))


def test_little_is_left_alone(monkeypatch: pytest.MonkeyPatch, collected: list[int]) -> None:
    rounds(monkeypatch, terminal.FEW - 1)
    terminal.collect_at_rest()
    assert not collected


def test_a_pause_is_used(monkeypatch: pytest.MonkeyPatch, collected: list[int]) -> None:
    rounds(monkeypatch, terminal.FEW)
    terminal.collect_at_rest()
    assert collected


def test_a_key_on_its_way_comes_first_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, collected: list[int]
) -> None:
    pressed = Turns()
    pressed.key()
    monkeypatch.setattr(terminal, "TURNS", pressed)
    monkeypatch.setattr(terminal, "REST_S", 3600.0)
    rounds(monkeypatch, terminal.MANY - 1)
    terminal.collect_at_rest()
    assert not collected
    rounds(monkeypatch, terminal.MANY)
    terminal.collect_at_rest()
    assert collected
