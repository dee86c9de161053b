"""A screen that has many messages to do lets a key be taken between any two of them."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest
from rich.console import RenderableType
from textual.app import App, ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from console import turns
from console.screens import yielding
from console.screens.dialog import Dialog
from console.screens.playing import Playing
from console.screens.yielding import STEP_S, Yielding
from console.turns import Turns


class Work(Message):
    """Something that takes long."""


class Busy(Yielding[None]):
    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.order = order

    def on_work(self) -> None:
        self.order.append("work")
        end = time.monotonic() + 2 * STEP_S
        while time.monotonic() < end:
            pass


async def test_others_have_their_turn_between_two_messages() -> None:
    order: list[str] = []
    screen = Busy(order)
    app: App[None] = App()
    async with app.run_test() as pilot:
        await app.push_screen(screen)
        await pilot.pause()

        async def other() -> None:
            while order.count("work") < 4:
                order.append("other")
                await asyncio.sleep(0)

        for _ in range(4):
            screen.post_message(Work())
        await asyncio.wait_for(other(), 60)
    at = [place for place, what in enumerate(order) if what == "work"]
    assert all("other" in order[a:b] for a, b in pairwise(at)), order


def test_every_screen_does() -> None:
    assert issubclass(Playing, Yielding)
    assert issubclass(Dialog, Yielding)


@pytest.mark.parametrize("layout", [False, True])
async def test_a_key_is_drawn_without_waiting_for_the_beat(
    monkeypatch: pytest.MonkeyPatch, layout: bool
) -> None:
    drawn: list[int] = []

    class Shown(Widget):
        def render_line(self, y: int) -> Strip:
            drawn.append(y)
            return super().render_line(y)

    class Only(Yielding[None]):
        def compose(self) -> ComposeResult:
            yield Shown()

    fresh = Turns()
    monkeypatch.setattr(yielding, "TURNS", fresh)
    monkeypatch.setattr(turns, "KEY_S", 3600.0)
    app: App[None] = App()
    async with app.run_test() as pilot:
        await app.push_screen(Only())
        await pilot.pause()
        shown = app.screen.query_one(Shown)
        app.screen._update_timer.stop()  # the beat never comes
        while app.screen._dirty_widgets:
            await asyncio.sleep(0.01)
        drawn.clear()
        shown.refresh(layout=layout)
        while not app.screen._dirty_widgets:
            await asyncio.sleep(0.01)
        assert not drawn
        fresh.key()
        shown.refresh(layout=layout)
        while not drawn:
            await asyncio.sleep(0.01)


async def test_what_is_laid_out_again_and_again_is_drawn_once() -> None:
    drawn: list[object] = []

    class Counting(App[None]):
        def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
            drawn.append(renderable)
            super()._display(screen, renderable)

    app = Counting()
    async with app.run_test() as pilot:
        await app.push_screen(Busy([]))
        await pilot.pause()
        while app.screen._repaint_required or app.screen._dirty_widgets:
            await asyncio.sleep(0.01)
        drawn.clear()
        for _ in range(3):
            app.screen._refresh_layout()
        assert not drawn
        while not drawn:
            await asyncio.sleep(0.01)
        await pilot.pause()
        assert len(drawn) == 1
